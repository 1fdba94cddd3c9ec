// plan mesh: 14 functions, 5 substages, 4 stages, 13 images, 1 buffers, 0.0 MB
// stage 0 graphics 4x2
//   matmul (1 functions) pushed 2 <- uniforms, input pos -> %0 RGBA32F
// stage 1 graphics 2x2
//   lookup,lookup,lookup (3 functions) pushed 1, 3, 2, 5, 3 <- texture %0, input index0, input index1, input index2 -> %1 RGBA32F, %2 RGBA32F, %3 RGBA32F
// stage 2 graphics 8x6
//   rasterize,lookup,swizzle,+1 (4 functions) pushed 1, 1 <- texture %1, texture %2, texture %3 -> %4 R32I
//   lookup,zero_mul,add_n,+1 (4 functions) pushed 1, 1, 3 <- texture %1, input %4, buffer %5 -> %6 RGBA32F
// stage 3 graphics 4x2
//   csr_gather,matmul (2 functions) pushed 2, 3, 2, 1, 1, 5 <- buffer %5, texture index0.offsets, texture index0.items, uniforms -> %7 RGBA32F
// ===== stage 0, substage 0, vertex: matmul
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 0, substage 0, fragment: matmul
#version 450
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(std140, set = 0, binding = 0) uniform Uniforms { uvec4 u[4]; };
layout(input_attachment_index = 0, set = 0, binding = 1) uniform subpassInput a1;
layout(location = 0) out vec4 o0;  // %0 VEC4@5x1
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  pos = ivec2((pos.y << pushed[0]) + pos.x, 0);
  mat4 i1 = mat4(uintBitsToFloat(u[0 + 0]), uintBitsToFloat(u[0 + 1]), uintBitsToFloat(u[0 + 2]), uintBitsToFloat(u[0 + 3]));  // matrix MAT4@1x1
  vec4 i2 = subpassLoad(a1);  // pos VEC4@5x1
  precise vec4 v0;  // matmul  test_golden.py
  v0 = (i1[0] * i2.x + i1[1] * i2.y + i1[2] * i2.z + i1[3] * i2.w);
  o0 = v0;
}

// ===== stage 1, substage 0, vertex: lookup,lookup,lookup
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 1, substage 0, fragment: lookup,lookup,lookup
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(input_attachment_index = 0, set = 0, binding = 1) uniform isubpassInput a1;
layout(input_attachment_index = 1, set = 0, binding = 2) uniform isubpassInput a2;
layout(input_attachment_index = 2, set = 0, binding = 3) uniform isubpassInput a3;
layout(location = 0) out vec4 o0;  // %1 VEC4@3x1
layout(location = 1) out vec4 o1;  // %2 VEC4@3x1
layout(location = 2) out vec4 o2;  // %3 VEC4@3x1
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[1]), (p.x >> pushed[2])), 0); }  // %0 VEC4@5x1
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  pos = ivec2((pos.y << pushed[0]) + pos.x, 0);
  if (pos.x >= pushed[4]) return;
  int i1 = subpassLoad(a1).x;  // index0 INT@3x1
  precise vec4 v0;  // lookup  test_golden.py
  int v0_i = clamp(i1, 0, pushed[3] - 1);
  v0 = fetch0(ivec2(v0_i, 0), layer);
  if (v0_i != i1) v0 = vec4(0);
  int i3 = subpassLoad(a2).x;  // index1 INT@3x1
  precise vec4 v2;  // lookup  test_golden.py
  int v2_i = clamp(i3, 0, pushed[3] - 1);
  v2 = fetch0(ivec2(v2_i, 0), layer);
  if (v2_i != i3) v2 = vec4(0);
  int i5 = subpassLoad(a3).x;  // index2 INT@3x1
  precise vec4 v4;  // lookup  test_golden.py
  int v4_i = clamp(i5, 0, pushed[3] - 1);
  v4 = fetch0(ivec2(v4_i, 0), layer);
  if (v4_i != i5) v4 = vec4(0);
  o0 = v0;
  o1 = v2;
  o2 = v4;
}

// ===== stage 2, substage 0, vertex: rasterize,lookup,swizzle,+1
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(location = 0) flat out int primitive_id;
layout(location = 1) flat out vec4 flat0;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(set = 0, binding = 2) uniform texture2D x2;
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %1 VEC4@3x1
vec4 fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %2 VEC4@3x1
vec4 fetch2(ivec2 p, int l) { return texelFetch(x2, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %3 VEC4@3x1
void main() {
  primitive_id = gl_VertexIndex / 3; int layer = gl_InstanceIndex;
  int k = gl_VertexIndex % 3;
  int corner = k < 3 ? k : (k == 3 ? 0 : k - 2);  // 0 1 2, then 0 2 3
  ivec2 p = ivec2(primitive_id, 0);
  if (corner == 0) gl_Position = fetch0(p, layer);
  if (corner == 1) gl_Position = fetch1(p, layer);
  if (corner == 2) gl_Position = fetch2(p, layer);
  {
  precise vec4 v1;  // lookup  test_golden.py
  v1 = fetch0(ivec2(primitive_id, 0), layer);
  flat0 = v1;
  }
}

// ===== stage 2, substage 0, fragment: rasterize,lookup,swizzle,+1
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(location = 0) flat in int primitive_id;
layout(location = 1) flat in vec4 flat0;
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(set = 0, binding = 2) uniform texture2D x2;
layout(location = 0) out int o0;  // %4 INT@8x6
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %1 VEC4@3x1
vec4 fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %2 VEC4@3x1
vec4 fetch2(ivec2 p, int l) { return texelFetch(x2, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %3 VEC4@3x1
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  precise int v1;  // rasterize  test_golden.py
  v1 = primitive_id;
  precise float v2;  // swizzle  test_golden.py
  v2 = flat0.z;
  precise float v4;
  v4 = 1.0;
  precise int v3;  // resolve  test_golden.py
  v3 = v1;
  if (v4 == 0.0 || !(v2 < 1.0)) discard;
  gl_FragDepth = v2;
  o0 = v3;
}

// ===== stage 2, substage 1, vertex: lookup,zero_mul,add_n,+1
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 2, substage 1, fragment: lookup,zero_mul,add_n,+1
#version 450
#extension GL_EXT_samplerless_texture_functions : require
#extension GL_EXT_shader_atomic_float : require
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(set = 0, binding = 0) uniform texture2D x0;
layout(input_attachment_index = 0, set = 0, binding = 1) uniform isubpassInput a1;
layout(std430, set = 0, binding = 2) buffer Buffer2 { float b2[]; };  // %5 VEC4@3x1
layout(location = 0) out vec4 o0;  // %6 VEC4@8x6
bool equal_(float a, float b) { return a == b; }
bvec2 equal_(vec2 a, vec2 b) { return equal(a, b); }
bvec3 equal_(vec3 a, vec3 b) { return equal(a, b); }
bvec4 equal_(vec4 a, vec4 b) { return equal(a, b); }
bool equal_(int a, int b) { return a == b; }
bvec2 equal_(ivec2 a, ivec2 b) { return equal(a, b); }
bvec3 equal_(ivec3 a, ivec3 b) { return equal(a, b); }
bvec4 equal_(ivec4 a, ivec4 b) { return equal(a, b); }
vec4 fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2((p.x & pushed[0]), (p.x >> pushed[1])), 0); }  // %1 VEC4@3x1
void add_b2(int i, vec4 v) {
  i *= 4;
  if (v.x != 0.0) atomicAdd(b2[i + 0], v.x);
  if (v.y != 0.0) atomicAdd(b2[i + 1], v.y);
  if (v.z != 0.0) atomicAdd(b2[i + 2], v.z);
  if (v.w != 0.0) atomicAdd(b2[i + 3], v.w);
}
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  int i1 = subpassLoad(a1).x;  // %4 INT@8x6
  precise vec4 v0;  // lookup  test_golden.py
  int v0_i = clamp(i1, 0, pushed[2] - 1);
  v0 = fetch0(ivec2(v0_i, 0), layer);
  if (v0_i != i1) v0 = vec4(0);
  precise vec4 v4;
  v4 = vec4(1.0, 1.0, 1.0, 1.0);
  precise vec4 v3;  // expand  test_golden.py
  v3 = v4;
  precise vec4 v2;  // zero_mul  test_golden.py
  v2 = v3 * v0; v2 = mix(v2, vec4(0.0), equal_(vec4(v3), vec4(0.0)));
  precise vec4 v5;  // add_n  test_golden.py
  v5 = v2 + v2;
  if (i1 >= 0 && i1 < pushed[2]) add_b2(i1, v5);  // scatter_add  test_golden.py
  o0 = v0;
}

// ===== stage 3, substage 0, vertex: csr_gather,matmul
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 3, substage 0, fragment: csr_gather,matmul
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(push_constant) uniform Pushed { int pushed[32]; };
layout(std430, set = 0, binding = 0) readonly buffer Buffer0 { vec4 b0[]; };  // %5 VEC4@3x1
layout(set = 0, binding = 1) uniform itexture2D x1;
layout(set = 0, binding = 2) uniform itexture2D x2;
layout(std140, set = 0, binding = 3) uniform Uniforms { uvec4 u[4]; };
layout(location = 0) out vec4 o0;  // %7 VEC4@5x1
vec4 fetch0(ivec2 p, int l) { return b0[p.x]; }
int fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2((p.x & pushed[1]), (p.x >> pushed[2])), 0).x; }  // index0.offsets INT@6x1
int fetch2(ivec2 p, int l) { return texelFetch(x2, ivec2((p.x & pushed[3]), (p.x >> pushed[4])), 0).x; }  // index0.items INT@3x1
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  pos = ivec2((pos.y << pushed[0]) + pos.x, 0);
  if (pos.x >= pushed[5]) return;
  precise vec4 v0;  // csr_gather  test_golden.py
  vec4 v0_s = vec4(0);
  int v0_k = fetch1(ivec2((pos.y * pushed[5] + pos.x), 0), 0), v0_e = fetch1(ivec2((pos.y * pushed[5] + pos.x) + 1, 0), 0);
  for (; v0_k < v0_e; v0_k++) {
    int j = fetch2(ivec2(v0_k, 0), 0);
    v0_s += fetch0(ivec2(j, 0), layer);
  }
  v0 = v0_s;
  mat4 i3 = mat4(uintBitsToFloat(u[0 + 0]), uintBitsToFloat(u[0 + 1]), uintBitsToFloat(u[0 + 2]), uintBitsToFloat(u[0 + 3]));  // matrix MAT4@1x1
  precise mat4 v2;  // transpose  test_golden.py
  v2 = transpose(i3);
  precise vec4 v1;  // matmul  test_golden.py
  v1 = (v2[0] * v0.x + v2[1] * v0.y + v2[2] * v0.z + v2[3] * v0.w);
  o0 = v1;
}
