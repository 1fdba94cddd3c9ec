// plan workgroups: 8 functions, 4 substages, 4 stages, 6 images, 1 buffers, 0.1 MB
// stage 0 compute 4x3
//   raster_key64 (1 functions) pushed 3, 2, 9 <- texture corner0, texture corner1, texture corner2, buffer %0 -> buffers
// stage 1 compute 80x60
//   swizzle,bit_not,gte,+2 (5 functions) pushed 3, 2, 9 <- buffer %0, texture corner0 -> %1 RGBA32F
// stage 2 compute 4x2
//   group_sum (1 functions) pushed 3, 2 <- texture %1 -> %2 RGBA32F
// stage 3 compute 1x1
//   group_sum (1 functions) pushed 3, 2 <- texture %2 -> %3 RGBA32F
// ===== stage 0, substage 0, compute: raster_key64
#version 450
#extension GL_EXT_samplerless_texture_functions : require
#extension GL_EXT_shader_atomic_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 128) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(set = 0, binding = 2) uniform texture2D x2;
layout(std430, set = 0, binding = 3) buffer Buffer3 { uint64_t b3[]; };  // %0 IVEC2@80x60
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // corner0 VEC4@9x1
vec4 fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // corner1 VEC4@9x1
vec4 fetch2(ivec2 p, int l) { return texelFetch(x2, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // corner2 VEC4@9x1
shared int row_sums[2][64];  // rows of all primitives up to one
shared int pair_sums[2][128];  // pairs of covered pixels of these rows up to one
shared ivec4 rows[64];  // of both triangles: first row, how many
shared ivec4 firsts[64];  // corners 0 and 1, in 1/256 pixel
shared ivec4 lasts[64];  // corners 2 and 3
shared ivec2 turns[64];  // of the two triangles: 1 and -1 by orientation, 0 is not drawn
shared ivec4 spans[128];  // column before the first pair's sum, row, place in group, last column
shared bool any_crossing;

// Sign of d x q: the side of a line along d on which q lies.
int side(ivec2 d, ivec2 q) {
  int64_t a = int64_t(d.x) * int64_t(q.y), b = int64_t(d.y) * int64_t(q.x);
  return a > b ? 1 : a < b ? -1 : 0;
}

// Inside of an edge, or on it where it is a top or a left one.
bool within(ivec2 a, ivec2 b, ivec2 p) {
  ivec2 d = b - a;
  int s = side(d, p - a);
  return s > 0 || (s == 0 && (d.y < 0 || (d.y == 0 && d.x > 0)));
}

ivec2 snapped(vec4 p) {
  precise vec2 at = (p.xy / p.w * 0.5 + 0.5) * vec2(80.0, 60.0);
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
  bool whole = all(greaterThan(w, vec3(1.2e-38))) && all(greaterThanEqual(z, vec3(0.0)))
      && all(lessThanEqual(z, w)) && all(lessThanEqual(abs(x), w * 409.6))
      && all(lessThanEqual(abs(y), w * 409.6));
  return whole ? 1 : 2;
}

// The orientation of a triangle; 0 for those without area and those that are culled.
int turn_of(ivec2 a, ivec2 b, ivec2 c) {
  int s = side(b - a, c - a);
  return s > 0 ? 0 : s;
}

// Rows of this slice with pixel centres between two heights: the first, how many.
ivec2 rows_between(int low, int high, ivec4 view, int slice) {
  low = max((low + 127) >> 8, view.y);
  high = min((high - 128) >> 8, view.y + view.w - 1);
  low += (slice - low % 60 + 60) % 60;
  return ivec2(low, high < low ? 0 : (high - low) / 60 + 1);
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
  return plane == 0 ? p.z : plane == 1 ? p.w - p.z : plane == 2 ? p.w * 409.6 - p.x
      : plane == 3 ? p.w * 409.6 + p.x : plane == 4 ? p.w * 409.6 - p.y : p.w * 409.6 + p.y;
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
void fragment(int primitive_id, ivec2 pos, int layer, out float depth, out float keep) {
  precise int v0;  // rasterize  test_golden.py
  v0 = primitive_id;
  precise vec4 v1;  // lookup  test_golden.py
  v1 = fetch0(ivec2(v0, 0), layer);
  precise float v2;  // swizzle  test_golden.py
  v2 = v1.z;
  precise float v3;
  v3 = 1.0;
  depth = v2; keep = v3;
}
void main() {
  int me = int(gl_LocalInvocationIndex), slice = int(gl_WorkGroupID.y);
  int layer = int(gl_WorkGroupID.z);
  int mine = me * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
  ivec4 view = ivec4(0, 0, 80, 60);
  if (me == 0) any_crossing = false;
  barrier();
  int found = 0;
  if (me < 64 && mine < pushed[2]) {
    vec4 p0 = fetch0(ivec2(mine, 0), layer), p1 = fetch1(ivec2(mine, 0), layer), p2 = fetch2(ivec2(mine, 0), layer), p3 = fetch0(ivec2(mine, 0), layer);
    found = place(p0, p1, p2);
    if (false && place(p0, p2, p3) != found) found = 2;
    if (found == 2) any_crossing = true;
  }
  barrier();
  // Turn 0 takes what is whole; later turns one triangle of what was left of each that was clipped.
  int n_turns = any_crossing ? 8 : 1;
  for (int turn = 0; turn < n_turns; turn++) {
    bool has = found == 1 && turn == 0;
    vec4 q0, q1, q2, q3;
    if (found == min(turn + 1, 2)) {  // read again: kept, they would take 16 registers
      q0 = fetch0(ivec2(mine, 0), layer); q1 = fetch1(ivec2(mine, 0), layer); q2 = fetch2(ivec2(mine, 0), layer); q3 = fetch0(ivec2(mine, 0), layer);
    }
    if (found == 2 && turn > 0) {
      vec4 points[10];
      bool second = turn > 7;
      points[0] = q0; points[1] = second ? q2 : q1; points[2] = second ? q3 : q2;
      int n = clipped(points, 3), k = (turn - 1) % 7 + 1;
      if (k + 1 < n) {
        q0 = points[0]; q1 = points[k]; q2 = points[k + 1]; q3 = q0;
        has = min(min(q0.w, q1.w), q2.w) > 1.2e-38;
      }
    }
    ivec4 mine_rows = ivec4(0);
    if (has) {
      ivec2 a = snapped(q0), b = snapped(q1), c = snapped(q2), d = false ? snapped(q3) : a;
      ivec2 way = ivec2(turn_of(a, b, c), false && turn == 0 ? turn_of(a, c, d) : 0);
      int low = min(a.y, c.y), high = max(a.y, c.y);
      if (way.x != 0) mine_rows.xy = rows_between(min(low, b.y), max(high, b.y), view, slice);
      if (way.y != 0) mine_rows.zw = rows_between(min(low, d.y), max(high, d.y), view, slice);
      firsts[me] = ivec4(a, b);
      lasts[me] = ivec4(c, d);
      turns[me] = way;
    }
    if (me < 64) {
      rows[me] = mine_rows;
      row_sums[0][me] = mine_rows.y + mine_rows.w;
    }
    barrier();
    for (int step = 1, from = 0; step < 64; step *= 2, from = 1 - from) {
      if (me < 64) {
        int before = me >= step ? row_sums[from][me - step] : 0;
        row_sums[1 - from][me] = row_sums[from][me] + before;
      }
      barrier();
    }
    int n_rows = row_sums[0][64 - 1];
    for (int base = 0; base < n_rows; base += 128) {
      int n_pairs = 0;
      ivec4 span = ivec4(0);
      if (base + me < n_rows) {
        int at = 0;
        for (int step = 64 / 2; step > 0; step /= 2) {
          at += row_sums[0][at + step - 1] <= base + me ? step : 0;
        }
        int k = base + me - (at > 0 ? row_sums[0][at - 1] : 0);
        ivec4 first = firsts[at], last = lasts[at], its = rows[at];
        bool second = k >= its.y;
        int row = second ? its.z + (k - its.y) * 60 : its.x + k * 60;
        ivec2 found = covered(first.xy, second ? last.xy : first.zw, second ? last.zw : last.xy,
            second ? turns[at].y : turns[at].x, row, view);
        n_pairs = max(found.y - found.x + 2, 0) / 2;
        span = ivec4(found.x + n_pairs * 2, row, at, found.y);
      }
      pair_sums[0][me] = n_pairs;
      barrier();
    for (int step = 1, from = 0; step < 128; step *= 2, from = 1 - from) {
      if (me < 128) {
        int before = me >= step ? pair_sums[from][me - step] : 0;
        pair_sums[1 - from][me] = pair_sums[from][me] + before;
      }
      barrier();
    }
      // Of the pair i of all these rows the column is then i * 2 + a number of its row.
      spans[me] = span - ivec4(pair_sums[1][me] * 2, 0, 0, 0);
      barrier();
      int total = pair_sums[1][128 - 1];
      for (int i = me; i < total; i += 128) {
        int at = 0;
        for (int step = 128 / 2; step > 0; step /= 2) {
          at += pair_sums[1][at + step - 1] <= i ? step : 0;
        }
        ivec4 its = spans[at];
        int primitive = its.z * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
        ivec2 first = ivec2(its.x + i * 2, its.y);
        float depths[2], kept[2];
        fragment(primitive, first, layer, depths[0], kept[0]);
        fragment(primitive, ivec2(min(first.x + 1, its.w), first.y), layer, depths[1], kept[1]);
        if (first.x + 1 > its.w) kept[1] = 0.0;
        for (int k = 0; k < 2; k++) {
          float depth = depths[k];
          if (kept[k] == 0.0 || !(depth < 1.0)) continue;
          ivec2 pixel = ivec2(first.x + k, first.y);
          uint bits = depth > 0.0 ? floatBitsToUint(depth) : 0u;
          int slot = (layer * 60 + pixel.y) * 80 + pixel.x;
          atomicMax(b3[slot], ~((uint64_t(bits) << 32) | uint64_t(uint(primitive))));
        }
      }
      barrier();
    }
    barrier();
  }  // raster_key64  test_golden.py
}

// ===== stage 1, substage 0, compute: swizzle,bit_not,gte,+2
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(std430, set = 0, binding = 0) readonly buffer Buffer0 { int b0[]; };  // %0 IVEC2@80x60
layout(set = 0, binding = 1) uniform texture2D x1;
layout(rgba32f, set = 0, binding = 2) uniform writeonly image2D w2;
bool greaterThanEqual_(float a, float b) { return a >= b; }
bvec2 greaterThanEqual_(vec2 a, vec2 b) { return greaterThanEqual(a, b); }
bvec3 greaterThanEqual_(vec3 a, vec3 b) { return greaterThanEqual(a, b); }
bvec4 greaterThanEqual_(vec4 a, vec4 b) { return greaterThanEqual(a, b); }
bool greaterThanEqual_(int a, int b) { return a >= b; }
bvec2 greaterThanEqual_(ivec2 a, ivec2 b) { return greaterThanEqual(a, b); }
bvec3 greaterThanEqual_(ivec3 a, ivec3 b) { return greaterThanEqual(a, b); }
bvec4 greaterThanEqual_(ivec4 a, ivec4 b) { return greaterThanEqual(a, b); }
ivec2 fetch0(ivec2 p, int l) { int i = (p.y * 80 + p.x) * 2; return ivec2(b0[i + 0], b0[i + 1]); }
vec4 fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // corner0 VEC4@9x1
void main() {
  if (gl_GlobalInvocationID.x >= 80 || gl_GlobalInvocationID.y >= 60) return;
  ivec2 pos = ivec2(gl_GlobalInvocationID.xy); int layer = 0;
  ivec2 i1 = fetch0(pos, layer);  // %0 IVEC2@80x60
  precise int v0;  // swizzle  test_golden.py
  v0 = i1.x;
  precise int v2;  // bit_not  test_golden.py
  v2 = ~v0;
  precise int v4;
  v4 = 0;
  precise float v3;  // gte  test_golden.py
  v3 = float(greaterThanEqual_(int(v2), int(v4)));
  precise int v6;
  v6 = -1;
  precise int v5;  // where  test_golden.py
  v5 = (v3 != 0.0) ? int(v2) : int(v6);
  precise vec4 v7;  // lookup  test_golden.py
  int v7_i = clamp(v5, 0, pushed[2] - 1);
  v7 = fetch1(ivec2(v7_i, 0), layer);
  if (v7_i != v5) v7 = vec4(0);
  imageStore(w2, ivec2(gl_GlobalInvocationID.xy), vec4(v7));
}

// ===== stage 2, substage 0, compute: group_sum
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(local_size_x = 64) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(rgba32f, set = 0, binding = 1) uniform writeonly image2D w1;
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2(p.x, p.y), 0); }  // %1 VEC4@80x60
shared vec4 parts[64];
shared vec4 rests[64];
void store(ivec2 p, int l, vec4 value) {
  imageStore(w1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), vec4(value));
}
void main() {
  precise vec4 v0;  // group_sum  test_golden.py
  uint me = gl_LocalInvocationIndex, at = gl_WorkGroupID.x;
  int layer = int(gl_WorkGroupID.z);
  precise vec4 s = vec4(0), lost = vec4(0);
  for (uint b = 0u; b < 1u; b++) {
    uint x = at % 3u * 32u + b * 16u % 4u * 8u + me % 8u, y = at / 3u * 32u + b * 16u / 4u * 8u + me / 8u;
    vec4 a0 = fetch0(ivec2(min(x + 0u, 79u), min(y + 0u, 59u)), layer),
    a1 = fetch0(ivec2(min(x + 8u, 79u), min(y + 0u, 59u)), layer),
    a2 = fetch0(ivec2(min(x + 16u, 79u), min(y + 0u, 59u)), layer),
    a3 = fetch0(ivec2(min(x + 24u, 79u), min(y + 0u, 59u)), layer),
    a4 = fetch0(ivec2(min(x + 0u, 79u), min(y + 8u, 59u)), layer),
    a5 = fetch0(ivec2(min(x + 8u, 79u), min(y + 8u, 59u)), layer),
    a6 = fetch0(ivec2(min(x + 16u, 79u), min(y + 8u, 59u)), layer),
    a7 = fetch0(ivec2(min(x + 24u, 79u), min(y + 8u, 59u)), layer),
    a8 = fetch0(ivec2(min(x + 0u, 79u), min(y + 16u, 59u)), layer),
    a9 = fetch0(ivec2(min(x + 8u, 79u), min(y + 16u, 59u)), layer),
    a10 = fetch0(ivec2(min(x + 16u, 79u), min(y + 16u, 59u)), layer),
    a11 = fetch0(ivec2(min(x + 24u, 79u), min(y + 16u, 59u)), layer),
    a12 = fetch0(ivec2(min(x + 0u, 79u), min(y + 24u, 59u)), layer),
    a13 = fetch0(ivec2(min(x + 8u, 79u), min(y + 24u, 59u)), layer),
    a14 = fetch0(ivec2(min(x + 16u, 79u), min(y + 24u, 59u)), layer),
    a15 = fetch0(ivec2(min(x + 24u, 79u), min(y + 24u, 59u)), layer);
    if (x + 0u < 80u && y + 0u < 60u) { precise vec4 t = s + a0, b = t - s; lost += (s - (t - b)) + (a0 - b); s = t; }
    if (x + 8u < 80u && y + 0u < 60u) { precise vec4 t = s + a1, b = t - s; lost += (s - (t - b)) + (a1 - b); s = t; }
    if (x + 16u < 80u && y + 0u < 60u) { precise vec4 t = s + a2, b = t - s; lost += (s - (t - b)) + (a2 - b); s = t; }
    if (x + 24u < 80u && y + 0u < 60u) { precise vec4 t = s + a3, b = t - s; lost += (s - (t - b)) + (a3 - b); s = t; }
    if (x + 0u < 80u && y + 8u < 60u) { precise vec4 t = s + a4, b = t - s; lost += (s - (t - b)) + (a4 - b); s = t; }
    if (x + 8u < 80u && y + 8u < 60u) { precise vec4 t = s + a5, b = t - s; lost += (s - (t - b)) + (a5 - b); s = t; }
    if (x + 16u < 80u && y + 8u < 60u) { precise vec4 t = s + a6, b = t - s; lost += (s - (t - b)) + (a6 - b); s = t; }
    if (x + 24u < 80u && y + 8u < 60u) { precise vec4 t = s + a7, b = t - s; lost += (s - (t - b)) + (a7 - b); s = t; }
    if (x + 0u < 80u && y + 16u < 60u) { precise vec4 t = s + a8, b = t - s; lost += (s - (t - b)) + (a8 - b); s = t; }
    if (x + 8u < 80u && y + 16u < 60u) { precise vec4 t = s + a9, b = t - s; lost += (s - (t - b)) + (a9 - b); s = t; }
    if (x + 16u < 80u && y + 16u < 60u) { precise vec4 t = s + a10, b = t - s; lost += (s - (t - b)) + (a10 - b); s = t; }
    if (x + 24u < 80u && y + 16u < 60u) { precise vec4 t = s + a11, b = t - s; lost += (s - (t - b)) + (a11 - b); s = t; }
    if (x + 0u < 80u && y + 24u < 60u) { precise vec4 t = s + a12, b = t - s; lost += (s - (t - b)) + (a12 - b); s = t; }
    if (x + 8u < 80u && y + 24u < 60u) { precise vec4 t = s + a13, b = t - s; lost += (s - (t - b)) + (a13 - b); s = t; }
    if (x + 16u < 80u && y + 24u < 60u) { precise vec4 t = s + a14, b = t - s; lost += (s - (t - b)) + (a14 - b); s = t; }
    if (x + 24u < 80u && y + 24u < 60u) { precise vec4 t = s + a15, b = t - s; lost += (s - (t - b)) + (a15 - b); s = t; }
  }
  parts[me] = s;
  rests[me] = lost;
  for (uint n = 32u; n > 0u; n /= 2u) {
    barrier();
    if (me < n) {
      { precise vec4 t = s + parts[me + n], b = t - s; lost += (s - (t - b)) + (parts[me + n] - b); s = t; }
      lost += rests[me + n];
      parts[me] = s;
      rests[me] = lost;
    }
  }
  s = mix(s, s + lost, lessThanEqual(abs(lost), vec4(3.0e38)));
  if (me == 0u) store(ivec2(at, 0), layer, s);
}

// ===== stage 3, substage 0, compute: group_sum
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(local_size_x = 64) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(rgba32f, set = 0, binding = 1) uniform writeonly image2D w1;
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %2 VEC4@6x1
shared vec4 parts[64];
shared vec4 rests[64];
void store(ivec2 p, int l, vec4 value) {
  imageStore(w1, ivec2(0), vec4(value));
}
void main() {
  precise vec4 v0;  // group_sum  test_golden.py
  uint me = gl_LocalInvocationIndex, at = gl_WorkGroupID.x;
  int layer = int(gl_WorkGroupID.z);
  precise vec4 s = vec4(0), lost = vec4(0);
  for (uint b = 0u; b < 1u; b++) {
    uint i = at * 64u + b * 64u + me;
    vec4 a0 = fetch0(ivec2(min(i + 0u, 5u), 0), layer);
    if (i + 0u < 6u) { precise vec4 t = s + a0, b = t - s; lost += (s - (t - b)) + (a0 - b); s = t; }
  }
  parts[me] = s;
  rests[me] = lost;
  for (uint n = 32u; n > 0u; n /= 2u) {
    barrier();
    if (me < n) {
      { precise vec4 t = s + parts[me + n], b = t - s; lost += (s - (t - b)) + (parts[me + n] - b); s = t; }
      lost += rests[me + n];
      parts[me] = s;
      rests[me] = lost;
    }
  }
  s = mix(s, s + lost, lessThanEqual(abs(lost), vec4(3.0e38)));
  if (me == 0u) store(ivec2(at, 0), layer, s);
}
