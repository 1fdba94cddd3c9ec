//! Dilates a packed mask, or its border, in workgroups: bits_group.py says how.
//!
//! {wide} {tall}     words and rows that a workgroup of {lanes} invocations makes
//! {across}          invocations along a row while words are loaded
//! {halo}            words on either side that the radius, {most} at the most, reaches
//! {edge}            words and rows more that the border looks at: 1, or 0 without it
//! {columns}         words loaded per row; {most_rows}: rows loaded for the largest radius
//! {border}          the function border(), or nothing
//! {farther}         loads of words that are two words away, where the radius reaches them;
//! {far_left} {far_right}    where they begin to reach
//! {load}            loads of the words, and their border
shared uint words[{most_rows} * ({columns} + {wide})];
{border}

// The word at i, with the bits within n of a set one.
uint along_row(int i, int n) {
  uint c = words[i], l = words[i - 1], r = words[i + 1];
  {farther}
  int inner = min(n, 31);
  for (int d = 0; d < inner;) {
    int s = min(d + 1, inner - d);
    c |= c << s | c >> s;
    d += s;
  }
  // How many bits of the word the nearest ones beside it reach.
  int low = n + (l != 0u ? findMSB(l) - 31 : {far_left});
  int high = n - (r != 0u ? findLSB(r) : {far_right});
  c |= low >= 32 ? ~0u : (1u << max(low, 0)) - 1u;
  return c | (high >= 32 ? ~0u : ~(~0u >> max(high, 0)));
}

void main() {
  int me = int(gl_LocalInvocationIndex), across = me % {across}, down = me / {across};
  int n = clamp({x1}, 0, {most}), n_rows = {tall} + 2 * (n + {edge});
  ivec2 at = pos * ivec2({wide}, {tall}) - ivec2({halo} + {edge}, n + {edge}) + ivec2(across, down);
  ivec2 last = ivec2({w0}, {h0}) - 1;
  bool in_row = at.x >= 0 && at.x <= last.x && across >= {edge} && across < {columns} - {edge};
  int here = down * {columns} + across;
  {load}
  barrier();
  for (int i = me; i < ({tall} + 2 * n) * {wide}; i += {lanes}) {
    int i_word = (i / {wide} + {edge}) * {columns} + i % {wide} + {halo} + {edge};
    words[{most_rows} * {columns} + i] = along_row(i_word, n);
  }
  barrier();
  // Every word is the union of a run of rows that begins with it.
  int from = {most_rows} * {columns}, to = 0, run = 1, whole = 2 * n + 1;
  while (3 * run < whole) {
    for (int i = me; i < ({tall} + whole - 3 * run) * {wide}; i += {lanes}) {
      int k = from + i;
      words[to + i] = words[k] | words[k + run * {wide}] | words[k + 2 * run * {wide}];
    }
    barrier();
    run *= 3;
    int other = from;
    from = to;
    to = other;
  }
  int two = min(run, whole - run) * {wide}, three = (whole - run) * {wide};
  for (int i = me; i < {tall} * {wide}; i += {lanes}) {
    ivec2 p = pos * ivec2({wide}, {tall}) + ivec2(i % {wide}, i / {wide});
    int k = from + i;
    if (p.x <= last.x && p.y <= last.y) {
      {store}(p, layer, int(words[k] | words[k + two] | words[k + three]));
    }
  }
}
