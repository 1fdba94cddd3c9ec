//! Finds the fragments of triangles and quads in workgroups: raster_compute.py says how.
//!
//! {group} primitives and {lanes} invocations per workgroup, {pair} pixels of a row per invocation
//! {width} {height}  of the picture in pixels; {view}: the scissor (x, y, width, height)
//! {slices}          workgroups that share the rows of the same primitives
//! {n_primitives}    of the table of corners; {corner0} to {corner3}: those of one of them
//! {quads}           whether there is a fourth corner; {turns}: one, and those of clipped triangles
//! {guard}           half the width of the guard band over that of the picture
//! {least_w}         of a corner that is drawn; {culled}: whether a winding s is culled
//! {side}            the function side()
//! {sum_rows} {sum_pairs}    prefix sums, whose results lie in the halves {last_rows} {last_pairs}
//! {update}          what is done with two fragments
shared int row_sums[2][{group}];  // rows of all primitives up to one
shared int pair_sums[2][{lanes}];  // pairs of covered pixels of these rows up to one
shared ivec4 rows[{group}];  // of both triangles: first row, how many
shared ivec4 firsts[{group}];  // corners 0 and 1, in 1/256 pixel
shared ivec4 lasts[{group}];  // corners 2 and 3
shared ivec2 turns[{group}];  // of the two triangles: 1 and -1 by orientation, 0 is not drawn
shared ivec4 spans[{lanes}];  // column before the first pair's sum, row, place in group, last column
shared bool any_crossing;

{side}

// Inside of an edge, or on it where it is a top or a left one.
bool within(ivec2 a, ivec2 b, ivec2 p) {
  ivec2 d = b - a;
  int s = side(d, p - a);
  return s > 0 || (s == 0 && (d.y < 0 || (d.y == 0 && d.x > 0)));
}

ivec2 snapped(vec4 p) {
  precise vec2 at = (p.xy / p.w * 0.5 + 0.5) * vec2({width}, {height});
  return ivec2(floor(at * 256.0 + 0.5));
}

// Whether something is NaN or infinite, by its bits: comparisons with itself may be folded away.
bool is_bad(vec3 v) {
  uvec3 exponents = floatBitsToUint(v) & 0x7F800000u;
  return any(equal(exponents, uvec3(0x7F800000u)));
}

// 0: not seen, 1: wholly in front of the camera and near the picture, 2: to be clipped.
int place(vec4 a, vec4 b, vec4 c) {
  vec3 x = vec3(a.x, b.x, c.x), y = vec3(a.y, b.y, c.y), z = vec3(a.z, b.z, c.z);
  vec3 w = vec3(a.w, b.w, c.w);
  if (is_bad(x) || is_bad(y) || is_bad(z) || is_bad(w)) return 0;
  if (all(lessThan(z, vec3(0.0))) || all(greaterThan(z, w)) || all(greaterThan(x, w))
      || all(lessThan(x, -w)) || all(greaterThan(y, w)) || all(lessThan(y, -w))) return 0;
  bool whole = all(greaterThan(w, vec3({least_w}))) && all(greaterThanEqual(z, vec3(0.0)))
      && all(lessThanEqual(z, w)) && all(lessThanEqual(abs(x), w * {guard}))
      && all(lessThanEqual(abs(y), w * {guard}));
  return whole ? 1 : 2;
}

// The orientation of a triangle; 0 for those without area and those that are culled.
int turn_of(ivec2 a, ivec2 b, ivec2 c) {
  int s = side(b - a, c - a);
  return {culled} ? 0 : s;
}

// Rows of this slice with pixel centres between two heights: the first, how many.
ivec2 rows_between(int low, int high, ivec4 view, int slice) {
  low = max((low + 127) >> 8, view.y);
  high = min((high - 128) >> 8, view.y + view.w - 1);
  low += (slice - low % {slices} + {slices}) % {slices};
  return ivec2(low, high < low ? 0 : (high - low) / {slices} + 1);
}

// Narrows columns to those inside of an edge: found roughly, a little too far out, then looked at
// exactly. What is far from the picture may be far off: it is beyond the same side.
void narrow(ivec2 a, ivec2 b, int y, ivec4 view, inout ivec2 columns) {
  ivec2 d = b - a;
  if (d.y == 0) {
    if (!within(a, b, ivec2(a.x, y))) columns.y = -1;
    return;
  }
  float x = (float(a.x - 128) + float(d.x) * (float(y - a.y) / float(d.y))) / 256.0;
  float least = float(view.x - 1), most = float(view.x + view.z);
  if (d.y < 0) {
    int at = int(clamp(ceil(x - 0.03125), least, most));
    columns.x = max(columns.x, within(a, b, ivec2(at * 256 + 128, y)) ? at : at + 1);
  } else {
    int at = int(clamp(floor(x + 0.03125), least, most));
    columns.y = min(columns.y, within(a, b, ivec2(at * 256 + 128, y)) ? at : at - 1);
  }
}

// First and last column that a triangle covers in a row; the last is less where there is none.
ivec2 covered(ivec2 a, ivec2 b, ivec2 c, int turn, int row, ivec4 view) {
  ivec2 second = turn > 0 ? b : c, third = turn > 0 ? c : b;
  int y = row * 256 + 128;
  ivec2 columns = ivec2(view.x, view.x + view.z - 1);
  narrow(a, second, y, view, columns);
  narrow(second, third, y, view, columns);
  narrow(third, a, y, view, columns);
  return columns;
}

float depth_of_plane(vec4 p, int plane) {
  return plane == 0 ? p.z : plane == 1 ? p.w - p.z : plane == 2 ? p.w * {guard} - p.x
      : plane == 3 ? p.w * {guard} + p.x : plane == 4 ? p.w * {guard} - p.y : p.w * {guard} + p.y;
}

// Clips a polygon to the view volume (to the guard band at the sides). An edge is cut from its
// inner to its outer end, so that two faces that share it cut it at the same point.
int clipped(inout vec4 points[10], int n) {
  vec4 old[10];
  for (int plane = 0; plane < 6; plane++) {
    int m = 0;
    for (int i = 0; i < n; i++) old[i] = points[i];
    for (int i = 0; i < n; i++) {
      vec4 p = old[i], q = old[i + 1 < n ? i + 1 : 0];
      precise float e = depth_of_plane(p, plane), f = depth_of_plane(q, plane);
      if (e >= 0.0 && m < 10) points[m++] = p;
      if ((e >= 0.0) != (f >= 0.0) && m < 10) {
        precise vec4 cut = e >= 0.0 ? p + (q - p) * (e / (e - f)) : q + (p - q) * (f / (f - e));
        points[m++] = cut;
      }
    }
    n = m;
  }
  return n;
}

void main() {
  int me = int(gl_LocalInvocationIndex), slice = int(gl_WorkGroupID.y);
  int layer = int(gl_WorkGroupID.z);
  int mine = me * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
  ivec4 view = {view};
  if (me == 0) any_crossing = false;
  barrier();
  int found = 0;
  if (me < {group} && mine < {n_primitives}) {
    vec4 p0 = {corner0}, p1 = {corner1}, p2 = {corner2}, p3 = {corner3};
    found = place(p0, p1, p2);
    if ({quads} && place(p0, p2, p3) != found) found = 2;
    if (found == 2) any_crossing = true;
  }
  barrier();
  // Turn 0 takes what is whole; later turns one triangle of what was left of each that was clipped.
  int n_turns = any_crossing ? {turns} : 1;
  for (int turn = 0; turn < n_turns; turn++) {
    bool has = found == 1 && turn == 0;
    vec4 q0, q1, q2, q3;
    if (found == min(turn + 1, 2)) {  // read again: kept, they would take 16 registers
      q0 = {corner0}; q1 = {corner1}; q2 = {corner2}; q3 = {corner3};
    }
    if (found == 2 && turn > 0) {
      vec4 points[10];
      bool second = turn > 7;
      points[0] = q0; points[1] = second ? q2 : q1; points[2] = second ? q3 : q2;
      int n = clipped(points, 3), k = (turn - 1) % 7 + 1;
      if (k + 1 < n) {
        q0 = points[0]; q1 = points[k]; q2 = points[k + 1]; q3 = q0;
        has = min(min(q0.w, q1.w), q2.w) > {least_w};
      }
    }
    ivec4 mine_rows = ivec4(0);
    if (has) {
      ivec2 a = snapped(q0), b = snapped(q1), c = snapped(q2), d = {quads} ? snapped(q3) : a;
      ivec2 way = ivec2(turn_of(a, b, c), {quads} && turn == 0 ? turn_of(a, c, d) : 0);
      int low = min(a.y, c.y), high = max(a.y, c.y);
      if (way.x != 0) mine_rows.xy = rows_between(min(low, b.y), max(high, b.y), view, slice);
      if (way.y != 0) mine_rows.zw = rows_between(min(low, d.y), max(high, d.y), view, slice);
      firsts[me] = ivec4(a, b);
      lasts[me] = ivec4(c, d);
      turns[me] = way;
    }
    if (me < {group}) {
      rows[me] = mine_rows;
      row_sums[0][me] = mine_rows.y + mine_rows.w;
    }
    {sum_rows}
    int n_rows = row_sums[{last_rows}][{group} - 1];
    for (int base = 0; base < n_rows; base += {lanes}) {
      int n_pairs = 0;
      ivec4 span = ivec4(0);
      if (base + me < n_rows) {
        int at = 0;
        for (int step = {group} / 2; step > 0; step /= 2) {
          at += row_sums[{last_rows}][at + step - 1] <= base + me ? step : 0;
        }
        int k = base + me - (at > 0 ? row_sums[{last_rows}][at - 1] : 0);
        ivec4 first = firsts[at], last = lasts[at], its = rows[at];
        bool second = k >= its.y;
        int row = second ? its.z + (k - its.y) * {slices} : its.x + k * {slices};
        ivec2 found = covered(first.xy, second ? last.xy : first.zw, second ? last.zw : last.xy,
            second ? turns[at].y : turns[at].x, row, view);
        n_pairs = max(found.y - found.x + {pair}, 0) / {pair};
        span = ivec4(found.x + n_pairs * {pair}, row, at, found.y);
      }
      pair_sums[0][me] = n_pairs;
      {sum_pairs}
      // Of the pair i of all these rows the column is then i * {pair} + a number of its row.
      spans[me] = span - ivec4(pair_sums[{last_pairs}][me] * {pair}, 0, 0, 0);
      barrier();
      int total = pair_sums[{last_pairs}][{lanes} - 1];
      for (int i = me; i < total; i += {lanes}) {
        int at = 0;
        for (int step = {lanes} / 2; step > 0; step /= 2) {
          at += pair_sums[{last_pairs}][at + step - 1] <= i ? step : 0;
        }
        ivec4 its = spans[at];
        int primitive = its.z * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
        ivec2 first = ivec2(its.x + i * {pair}, its.y);
        float depths[{pair}], kept[{pair}];
        {inner}(primitive, first, layer, depths[0], kept[0]);
        {inner}(primitive, ivec2(min(first.x + 1, its.w), first.y), layer, depths[1], kept[1]);
        if (first.x + 1 > its.w) kept[1] = 0.0;
        {update}
      }
      barrier();
    }
    barrier();
  }
}
