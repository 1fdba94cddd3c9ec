// plan subgroups: 10 functions, 3 substages, 3 stages, 8 images, 1 buffers, 0.0 MB
// stage 0 compute 8x6
//   dynamic,lookup,zero_mul,+2 (5 functions) pushed 3, 2, 5 <- pixel index, texture pos, buffer %0 -> buffers
// stage 1 compute 8x4
//   lookup,zero_mul,add_n (3 functions) pushed 7, 4, 3, 30, 3, 2, 5 <- texture pos, pixel faces -> %1 RGBA32F
// stage 2 compute 4x2
//   csr_gather,expand (2 functions) pushed 3, 2, 2, 5, 7, 3, 3, 2 <- texture %1, texture faces.offsets, texture faces.items, buffer %0 -> %2 RGBA32F, %3 RGBA32F
// ===== stage 0, substage 0, compute: dynamic,lookup,zero_mul,+2
#version 450
#extension GL_EXT_samplerless_texture_functions : require
#extension GL_EXT_shader_atomic_float : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform itexture2D x0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(std430, set = 0, binding = 2) buffer Buffer2 { float b2[]; };  // %0 VEC3@5x1
bool equal_(float a, float b) { return a == b; }
bvec2 equal_(vec2 a, vec2 b) { return equal(a, b); }
bvec3 equal_(vec3 a, vec3 b) { return equal(a, b); }
bvec4 equal_(vec4 a, vec4 b) { return equal(a, b); }
bool equal_(int a, int b) { return a == b; }
bvec2 equal_(ivec2 a, ivec2 b) { return equal(a, b); }
bvec3 equal_(ivec3 a, ivec3 b) { return equal(a, b); }
bvec4 equal_(ivec4 a, ivec4 b) { return equal(a, b); }
vec3 fetch0(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0).xyz; }  // pos VEC3@5x1
void add_b2(int i, vec3 v) {
  i *= 3;
  if (v.x != 0.0) atomicAdd(b2[i + 0], v.x);
  if (v.y != 0.0) atomicAdd(b2[i + 1], v.y);
  if (v.z != 0.0) atomicAdd(b2[i + 2], v.z);
}
void reduce_b2(int i, vec3 v) {
  i *= 3;
  if (v.x != 0.0) { float s = subgroupAdd(v.x); if (subgroupElect()) atomicAdd(b2[i + 0], s); }
  if (v.y != 0.0) { float s = subgroupAdd(v.y); if (subgroupElect()) atomicAdd(b2[i + 1], s); }
  if (v.z != 0.0) { float s = subgroupAdd(v.z); if (subgroupElect()) atomicAdd(b2[i + 2], s); }
}
void main() {
  if (gl_GlobalInvocationID.x >= 8 || gl_GlobalInvocationID.y >= 6) return;
  ivec2 pos = ivec2(gl_GlobalInvocationID.xy); int layer = 0;
  precise vec3 v1;
  v1 = vec3(1.0, 1.0, 1.0);
  precise vec3 v0;  // expand  test_golden.py
  v0 = v1;
  if (v0 != vec3(0)) {
    int i3 = texelFetch(x0, ivec2(gl_GlobalInvocationID.xy), 0).x;  // index INT@8x6
    precise int v2;  // dynamic  test_golden.py
    v2 = i3;
    precise vec3 v4;  // lookup  test_golden.py
    int v4_i = clamp(v2, 0, pushed[2] - 1);
    v4 = fetch0(ivec2(v4_i, 0), layer);
    if (v4_i != v2) v4 = vec3(0);
    precise vec3 v5;  // zero_mul  test_golden.py
    v5 = v0 * v4; v5 = mix(v5, vec3(0.0), equal_(vec3(v0), vec3(0.0)));
    precise vec3 v6;  // add_n  test_golden.py
    v6 = v5 + v5;
    // scatter_add  test_golden.py
    {
      int row = v2;
      bool left = row >= 0 && row < pushed[2] && (v6 != vec3(0));
      row += 0;
      for (int k = 0; k < 3 && left; k++)
        if (row == subgroupBroadcastFirst(row)) { reduce_b2(row, v6); left = false; }
      if (left) { add_b2(row, v6); }
    }
  }
}

// ===== stage 1, substage 0, compute: lookup,zero_mul,add_n
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform itexture2D x1;
layout(rgba32f, set = 0, binding = 2) uniform writeonly image2D w2;
bool equal_(float a, float b) { return a == b; }
bvec2 equal_(vec2 a, vec2 b) { return equal(a, b); }
bvec3 equal_(vec3 a, vec3 b) { return equal(a, b); }
bvec4 equal_(vec4 a, vec4 b) { return equal(a, b); }
bool equal_(int a, int b) { return a == b; }
bvec2 equal_(ivec2 a, ivec2 b) { return equal(a, b); }
bvec3 equal_(ivec3 a, ivec3 b) { return equal(a, b); }
bvec4 equal_(ivec4 a, ivec4 b) { return equal(a, b); }
vec3 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[4]), (p.x >> pushed[5])), 0).xyz; }  // pos VEC3@5x1
void main() {
  if (gl_GlobalInvocationID.x > pushed[0] || gl_GlobalInvocationID.y >= pushed[1]) return;
  ivec2 pos = ivec2(gl_GlobalInvocationID.xy); int layer = 0;
  pos = ivec2((pos.y << pushed[2]) + pos.x, 0);
  if (pos.x >= pushed[3]) return;
  int i1 = texelFetch(x1, ivec2(gl_GlobalInvocationID.xy), 0).x;  // faces INT@30x1
  precise vec3 v0;  // lookup  test_golden.py
  int v0_i = clamp(i1, 0, pushed[6] - 1);
  v0 = fetch0(ivec2(v0_i, 0), layer);
  if (v0_i != i1) v0 = vec3(0);
  precise vec3 v4;
  v4 = vec3(1.0, 1.0, 1.0);
  precise vec3 v3;  // expand  test_golden.py
  v3 = v4;
  precise vec3 v2;  // zero_mul  test_golden.py
  v2 = v3 * v0; v2 = mix(v2, vec3(0.0), equal_(vec3(v3), vec3(0.0)));
  precise vec3 v5;  // add_n  test_golden.py
  v5 = v2 + v2;
  imageStore(w2, ivec2(gl_GlobalInvocationID.xy), vec4(v5, 0));
}

// ===== stage 2, substage 0, compute: csr_gather,expand
#version 450
#extension GL_EXT_samplerless_texture_functions : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform itexture2D x1;
layout(set = 0, binding = 2) uniform itexture2D x2;
layout(std430, set = 0, binding = 3) readonly buffer Buffer3 { float b3[]; };  // %0 VEC3@5x1
layout(rgba32f, set = 0, binding = 4) uniform writeonly image2D w4;
layout(rgba32f, set = 0, binding = 5) uniform writeonly image2D w5;
vec3 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[4]), (p.x >> pushed[5])), 0).xyz; }  // %1 VEC3@30x1
int fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[6]), (p.x >> pushed[7])), 0).x; }  // faces.offsets INT@6x1
int fetch2(ivec2 p, int l) { return texelFetch(x2, ivec2((p.x & pushed[4]), (p.x >> pushed[5])), 0).x; }  // faces.items INT@30x1
vec3 fetch3(ivec2 p, int l) { int i = (p.x) * 3; return vec3(b3[i + 0], b3[i + 1], b3[i + 2]); }
void main() {
  if (gl_GlobalInvocationID.x > pushed[0] || gl_GlobalInvocationID.y >= pushed[1]) return;
  ivec2 pos = ivec2(gl_GlobalInvocationID.xy); int layer = 0;
  pos = ivec2((pos.y << pushed[2]) + pos.x, 0);
  if (pos.x >= pushed[3]) return;
  precise vec3 v0;  // csr_gather  test_golden.py
  vec3 v0_s = vec3(0);
  int v0_k = fetch1(ivec2((pos.y * pushed[3] + pos.x), 0), 0), v0_e = fetch1(ivec2((pos.y * pushed[3] + pos.x) + 1, 0), 0);
  int v0_last = max(v0_e - 1, 0);
  {
    int k0 = min(v0_k + 0, v0_last), k1 = min(v0_k + 1, v0_last), k2 = min(v0_k + 2, v0_last), k3 = min(v0_k + 3, v0_last);
    int j0 = fetch2(ivec2(k0, 0), 0), j1 = fetch2(ivec2(k1, 0), 0), j2 = fetch2(ivec2(k2, 0), 0), j3 = fetch2(ivec2(k3, 0), 0);
    vec3 a0 = fetch0(ivec2(j0, 0), layer), a1 = fetch0(ivec2(j1, 0), layer), a2 = fetch0(ivec2(j2, 0), layer), a3 = fetch0(ivec2(j3, 0), layer);
    a0 += v0_s; v0_s = v0_k + 0 < v0_e ? a0 : v0_s; a1 += v0_s; v0_s = v0_k + 1 < v0_e ? a1 : v0_s; a2 += v0_s; v0_s = v0_k + 2 < v0_e ? a2 : v0_s; a3 += v0_s; v0_s = v0_k + 3 < v0_e ? a3 : v0_s;
  }
  // The rest: csr_gather
  v0_k += 4;
  if (subgroupBallot(v0_k < v0_e) != uvec4(0)) {
    bool v0_long = v0_e - v0_k > 12;
    if (subgroupBallot(v0_long) != uvec4(0)) {
      uvec4 lanes = subgroupBallot(true);
      int me = int(subgroupBallotExclusiveBitCount(lanes));
      int n = int(subgroupBallotBitCount(lanes));
      for (;;) {
        int leader = subgroupMin(v0_long ? me : n);
        if (leader >= n) break;
        bool mine = leader == me;
        int from = subgroupMax(mine ? v0_k : 0), to = subgroupMax(mine ? v0_e : 0);
        int of_layer = subgroupMax(mine ? layer : 0);
        vec3 part = vec3(0);
        for (int k = from + me; k < to; k += 4 * n) {
          int k0 = min(k + 0 * n, to - 1), k1 = min(k + 1 * n, to - 1), k2 = min(k + 2 * n, to - 1), k3 = min(k + 3 * n, to - 1);
          int j0 = fetch2(ivec2(k0, 0), 0), j1 = fetch2(ivec2(k1, 0), 0), j2 = fetch2(ivec2(k2, 0), 0), j3 = fetch2(ivec2(k3, 0), 0);
          vec3 a0 = fetch0(ivec2(j0, 0), of_layer), a1 = fetch0(ivec2(j1, 0), of_layer), a2 = fetch0(ivec2(j2, 0), of_layer), a3 = fetch0(ivec2(j3, 0), of_layer);
          a0 += part; part = k + 0 * n < to ? a0 : part; a1 += part; part = k + 1 * n < to ? a1 : part; a2 += part; part = k + 2 * n < to ? a2 : part; a3 += part; part = k + 3 * n < to ? a3 : part;
        }
        part = subgroupAdd(part);
        if (mine) { v0_s += part; v0_k = v0_e; v0_long = false; }
      }
    }
    for (; v0_k < v0_e; v0_k += 8) {
      int k0 = min(v0_k + 0, v0_last), k1 = min(v0_k + 1, v0_last), k2 = min(v0_k + 2, v0_last), k3 = min(v0_k + 3, v0_last), k4 = min(v0_k + 4, v0_last), k5 = min(v0_k + 5, v0_last), k6 = min(v0_k + 6, v0_last), k7 = min(v0_k + 7, v0_last);
      int j0 = fetch2(ivec2(k0, 0), 0), j1 = fetch2(ivec2(k1, 0), 0), j2 = fetch2(ivec2(k2, 0), 0), j3 = fetch2(ivec2(k3, 0), 0), j4 = fetch2(ivec2(k4, 0), 0), j5 = fetch2(ivec2(k5, 0), 0), j6 = fetch2(ivec2(k6, 0), 0), j7 = fetch2(ivec2(k7, 0), 0);
      vec3 a0 = fetch0(ivec2(j0, 0), layer), a1 = fetch0(ivec2(j1, 0), layer), a2 = fetch0(ivec2(j2, 0), layer), a3 = fetch0(ivec2(j3, 0), layer), a4 = fetch0(ivec2(j4, 0), layer), a5 = fetch0(ivec2(j5, 0), layer), a6 = fetch0(ivec2(j6, 0), layer), a7 = fetch0(ivec2(j7, 0), layer);
      a0 += v0_s; v0_s = v0_k + 0 < v0_e ? a0 : v0_s; a1 += v0_s; v0_s = v0_k + 1 < v0_e ? a1 : v0_s; a2 += v0_s; v0_s = v0_k + 2 < v0_e ? a2 : v0_s; a3 += v0_s; v0_s = v0_k + 3 < v0_e ? a3 : v0_s; a4 += v0_s; v0_s = v0_k + 4 < v0_e ? a4 : v0_s; a5 += v0_s; v0_s = v0_k + 5 < v0_e ? a5 : v0_s; a6 += v0_s; v0_s = v0_k + 6 < v0_e ? a6 : v0_s; a7 += v0_s; v0_s = v0_k + 7 < v0_e ? a7 : v0_s;
    }
  }
  v0 = v0_s;
  vec3 i2 = fetch3(pos, layer);  // %0 VEC3@5x1
  precise vec3 v1;  // expand  test_golden.py
  v1 = i2;
  imageStore(w4, ivec2(gl_GlobalInvocationID.xy), vec4(v0, 0));
  imageStore(w5, ivec2(gl_GlobalInvocationID.xy), vec4(v1, 0));
}
