// plan fused: 3 functions, 1 substages, 1 stages, 2 images, 0 buffers, 0.0 MB
// stage 0 graphics 8x12
//   mul,sigmoid,add (3 functions) <- input albedo, uniforms -> %0 RGBA32F
// ===== stage 0, substage 0, vertex: mul,sigmoid,add
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 0, substage 0, fragment: mul,sigmoid,add
#version 450
layout(input_attachment_index = 0, set = 0, binding = 0) uniform subpassInput a0;
layout(std140, set = 0, binding = 1) uniform Uniforms { uvec4 u[2]; };
layout(location = 0) out vec4 o0;  // %0 VEC3@8x6x2
bool greaterThanEqual_(float a, float b) { return a >= b; }
bvec2 greaterThanEqual_(vec2 a, vec2 b) { return greaterThanEqual(a, b); }
bvec3 greaterThanEqual_(vec3 a, vec3 b) { return greaterThanEqual(a, b); }
bvec4 greaterThanEqual_(vec4 a, vec4 b) { return greaterThanEqual(a, b); }
bool greaterThanEqual_(int a, int b) { return a >= b; }
bvec2 greaterThanEqual_(ivec2 a, ivec2 b) { return greaterThanEqual(a, b); }
bvec3 greaterThanEqual_(ivec3 a, ivec3 b) { return greaterThanEqual(a, b); }
bvec4 greaterThanEqual_(ivec4 a, ivec4 b) { return greaterThanEqual(a, b); }
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  layer = pos.y / 6; pos.y -= layer * 6;
  vec3 i1 = subpassLoad(a0).xyz;  // albedo VEC3@8x6x2
  vec3 i2 = uintBitsToFloat(u[0 + layer * 1]).xyz;  // light VEC3@1x1x2
  precise vec3 v0;  // mul  test_golden.py
  v0 = i1 * i2;
  precise vec3 v3;  // sigmoid  test_golden.py
  vec3 v3_e = exp(-abs(v0)); v3 = mix(v3_e, vec3(1.0), greaterThanEqual_(v0, vec3(0.0))) / (vec3(1.0) + v3_e);
  precise vec2 v7;
  v7 = vec2(pos) + 0.5;
  precise float v6;  // swizzle  test_golden.py
  v6 = v7.x;
  precise float v8;
  v8 = 0.5;
  precise float v5;  // mul  test_golden.py
  v5 = v6 * v8;
  precise vec3 v4;  // add  test_golden.py
  v4 = v3 + v5;
  o0 = vec4(v4, 0);
}
