// plan weak_device: 6 functions, 3 substages, 3 stages, 6 images, 1 buffers, 0.0 MB
// stage 0 graphics 6x5
//   swizzle,texture,zero_mul,+1 (4 functions) <- input uv, texture tex -> %0 RG32F, %1 R32F, %2 R32F
// stage 1 compute 6x5
//   texture_scatter (1 functions) <- texture %2, texture %0, buffer %3 -> buffers
// stage 2 graphics 4x4
//   expand (1 functions) <- buffer %3 -> %4 R32F
// ===== stage 0, substage 0, vertex: swizzle,texture,zero_mul,+1
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 0, substage 0, fragment: swizzle,texture,zero_mul,+1
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(input_attachment_index = 0, set = 0, binding = 0) uniform subpassInput a0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(location = 0) out vec2 o0;  // %0 VEC2@6x5
layout(location = 1) out float o1;  // %1 FLOAT@6x5
layout(location = 2) out float o2;  // %2 FLOAT@6x5
bool equal_(float a, float b) { return a == b; }
bvec2 equal_(vec2 a, vec2 b) { return equal(a, b); }
bvec3 equal_(vec3 a, vec3 b) { return equal(a, b); }
bvec4 equal_(vec4 a, vec4 b) { return equal(a, b); }
bool equal_(int a, int b) { return a == b; }
bvec2 equal_(ivec2 a, ivec2 b) { return equal(a, b); }
bvec3 equal_(ivec3 a, ivec3 b) { return equal(a, b); }
bvec4 equal_(ivec4 a, ivec4 b) { return equal(a, b); }
float fetch0(ivec2 p, int l) { return texelFetch(x1, max(ivec2(p.x, p.y), 0), 0).x; }  // tex FLOAT@4x4
float sample0_linear_mirror(vec2 uv, int l) { precise vec2 q = uv * vec2(4, 4) - 0.5, p = vec2(q.x > -4194304.0 ? min(q.x, 4194304.0) : -4194304.0, q.y > -4194304.0 ? min(q.y, 4194304.0) : -4194304.0); ivec2 i = ivec2(floor(p)); vec2 t = fract(p);
  precise float v = ((fetch0(ivec2(min(clamp((i.x + 0) - 8 * int(floor((float((i.x + 0)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.x + 0) - 8 * int(floor((float((i.x + 0)) + 0.5) / 8.0)), 0, 8 - 1)), min(clamp((i.y + 0) - 8 * int(floor((float((i.y + 0)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.y + 0) - 8 * int(floor((float((i.y + 0)) + 0.5) / 8.0)), 0, 8 - 1))), l) * (1.0 - t.x) + fetch0(ivec2(min(clamp((i.x + 1) - 8 * int(floor((float((i.x + 1)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.x + 1) - 8 * int(floor((float((i.x + 1)) + 0.5) / 8.0)), 0, 8 - 1)), min(clamp((i.y + 0) - 8 * int(floor((float((i.y + 0)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.y + 0) - 8 * int(floor((float((i.y + 0)) + 0.5) / 8.0)), 0, 8 - 1))), l) * t.x) * (1.0 - t.y) + (fetch0(ivec2(min(clamp((i.x + 0) - 8 * int(floor((float((i.x + 0)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.x + 0) - 8 * int(floor((float((i.x + 0)) + 0.5) / 8.0)), 0, 8 - 1)), min(clamp((i.y + 1) - 8 * int(floor((float((i.y + 1)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.y + 1) - 8 * int(floor((float((i.y + 1)) + 0.5) / 8.0)), 0, 8 - 1))), l) * (1.0 - t.x) + fetch0(ivec2(min(clamp((i.x + 1) - 8 * int(floor((float((i.x + 1)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.x + 1) - 8 * int(floor((float((i.x + 1)) + 0.5) / 8.0)), 0, 8 - 1)), min(clamp((i.y + 1) - 8 * int(floor((float((i.y + 1)) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp((i.y + 1) - 8 * int(floor((float((i.y + 1)) + 0.5) / 8.0)), 0, 8 - 1))), l) * t.x) * t.y); return v; }
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  vec3 i1 = subpassLoad(a0).xyz;  // uv VEC3@6x5
  precise vec2 v0;  // swizzle  test_golden.py
  v0 = i1.xy;
  precise float v2;  // texture  test_golden.py
  v2 = sample0_linear_mirror(v0, layer);
  precise float v5;
  v5 = 1.0;
  precise float v4;  // expand  test_golden.py
  v4 = v5;
  precise float v3;  // zero_mul  test_golden.py
  v3 = v4 * v2; v3 = mix(v3, float(0.0), equal_(float(v4), float(0.0)));
  precise float v6;  // add_n  test_golden.py
  v6 = v3 + v3;
  o0 = v0;
  o1 = v2;
  o2 = v6;
}

// ===== stage 1, substage 0, compute: texture_scatter
#version 450
#extension GL_EXT_samplerless_texture_functions : require
layout(local_size_x = 8, local_size_y = 8) in;
layout(set = 0, binding = 0) uniform texture2D x0;
layout(set = 0, binding = 1) uniform texture2D x1;
layout(std430, set = 0, binding = 2) buffer Buffer2 { uint b2[]; };  // %3 FLOAT@4x4
float fetch0(ivec2 p, int l) { return texelFetch(x0, ivec2(p.x, p.y), 0).x; }  // %2 FLOAT@6x5
vec2 fetch1(ivec2 p, int l) { return texelFetch(x1, ivec2(p.x, p.y), 0).xy; }  // %0 VEC2@6x5
void add_b2_one(int i, float v) {
  uint seen = b2[i], old;
  do { old = seen; seen = atomicCompSwap(b2[i], old, floatBitsToUint(uintBitsToFloat(old) + v)); } while (seen != old);
}
void add_b2(int i, float v) {
  i *= 1;
  if (v != 0.0) add_b2_one(i + 0, v);
}
void main() {
  if (gl_GlobalInvocationID.x >= 6 || gl_GlobalInvocationID.y >= 5) return;
  ivec2 pos = ivec2(gl_GlobalInvocationID.xy); int layer = 0;
  float i1 = fetch0(pos, layer);  // %2 FLOAT@6x5
  vec2 i2 = fetch1(pos, layer);  // %0 VEC2@6x5
  if (i1 != float(0)) {
    precise vec2 q = i2 * vec2(4, 4) - 0.5;
    precise vec2 p = vec2(q.x > -4194304.0 ? min(q.x, 4194304.0) : -4194304.0, q.y > -4194304.0 ? min(q.y, 4194304.0) : -4194304.0);
    vec2 o = floor(p), t = p - o;
    for (int k = 0; k < 4; k++) {
      ivec2 d = ivec2(k & 1, k >> 1), a = ivec2(o) + d, i = ivec2(min(clamp(a.x - 8 * int(floor((float(a.x) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp(a.x - 8 * int(floor((float(a.x) + 0.5) / 8.0)), 0, 8 - 1)), min(clamp(a.y - 8 * int(floor((float(a.y) + 0.5) / 8.0)), 0, 8 - 1), 8 - 1 - clamp(a.y - 8 * int(floor((float(a.y) + 0.5) / 8.0)), 0, 8 - 1)));
      vec2 n = abs(vec2(1 - d) - t);
      precise float s = n.x * n.y; add_b2(i.y * 4 + i.x, s * i1);
    }
  }  // texture_scatter  test_golden.py
}

// ===== stage 2, substage 0, vertex: expand
#version 450
// One triangle that covers the viewport.
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}

// ===== stage 2, substage 0, fragment: expand
#version 450
layout(std430, set = 0, binding = 0) readonly buffer Buffer0 { float b0[]; };  // %3 FLOAT@4x4
layout(location = 0) out float o0;  // %4 FLOAT@4x4
float fetch0(ivec2 p, int l) { int i = (p.y * 4 + p.x) * 1; return float(b0[i + 0]); }
void main() {
  ivec2 pos = ivec2(gl_FragCoord.xy); int layer = 0;
  float i1 = fetch0(pos, layer);  // %3 FLOAT@4x4
  precise float v0;  // expand  test_golden.py
  v0 = i1;
  o0 = v0;
}
