// Draws the GLB models that a report page holds, in WebGL 2, without any network.
// In: <canvas class="model" data-source="ID"> and <script id="ID" type="model/gltf-binary"> with base64.
// Drag turns, wheel and pinch zoom, double click resets; the buttons of the figure choose the look.
"use strict";
(() => {
  const LOOKS = ["texture", "shaded", "normals", "wire frame"];
  const COMPONENTS = { SCALAR: 1, VEC2: 2, VEC3: 3, VEC4: 4, MAT4: 16 };
  const ARRAYS = { 5121: Uint8Array, 5123: Uint16Array, 5125: Uint32Array, 5126: Float32Array };

  const VERTEX = `#version 300 es
    in vec3 position; in vec3 normal; in vec2 uv; in vec3 corner;
    uniform mat4 view, projection;
    out vec3 seen, worldNormal; out vec2 at; out vec3 weights;
    void main() {
      vec4 p = view * vec4(position, 1.0);
      seen = p.xyz; worldNormal = normal; at = uv; weights = corner;
      gl_Position = projection * p;
    }`;
  const FRAGMENT = `#version 300 es
    precision highp float;
    in vec3 seen, worldNormal; in vec2 at; in vec3 weights;
    uniform sampler2D albedo; uniform vec4 factor; uniform int look; uniform mat4 view;
    out vec4 colour;
    void main() {
      vec3 n = normalize(worldNormal);
      vec3 v = normalize(mat3(view) * n);
      vec3 toEye = normalize(-seen);
      if (dot(v, toEye) < 0.0) v = -v;
      float light = 0.15 + 0.85 * max(dot(v, normalize(toEye + vec3(-0.35, 0.45, 0.0))), 0.0);
      vec3 linear = vec3(0.75 * light);
      if (look == 0) linear = texture(albedo, at).rgb * factor.rgb;
      vec3 shown = pow(max(linear, 0.0), vec3(1.0 / 2.2));
      if (look == 2) shown = 0.5 + 0.5 * n;
      if (look == 3) {
        vec3 width = fwidth(weights);
        vec3 inside = smoothstep(vec3(0.0), 1.2 * width, weights);
        float faint = clamp(0.15 / max(max(width.x, width.y), width.z), 0.2, 0.8);
        shown *= 1.0 - faint * (1.0 - min(min(inside.x, inside.y), inside.z));
      }
      colour = vec4(shown, 1.0);
    }`;

  function bytesOf(id) {
    const text = atob(document.getElementById(id).textContent.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  // The JSON and the binary chunk of a GLB.
  function parse(bytes) {
    const words = new DataView(bytes.buffer);
    if (words.getUint32(0, true) !== 0x46546c67) throw new Error("not a GLB");
    let json = null, data = null;
    for (let at = 12; at < bytes.length; ) {
      const length = words.getUint32(at, true), kind = words.getUint32(at + 4, true);
      const chunk = bytes.slice(at + 8, at + 8 + length);
      if (kind === 0x4e4f534a) json = JSON.parse(new TextDecoder().decode(chunk));
      else if (kind === 0x004e4942) data = chunk;
      at += 8 + length;
    }
    return { json, data };
  }

  function accessor({ json, data }, index) {
    const a = json.accessors[index], view = json.bufferViews[a.bufferView];
    const Type = ARRAYS[a.componentType], n = COMPONENTS[a.type];
    const stride = view.byteStride || n * Type.BYTES_PER_ELEMENT;
    const start = (view.byteOffset || 0) + (a.byteOffset || 0);
    const out = new Type(a.count * n);
    for (let i = 0; i < a.count; i++) {
      const from = start + i * stride;
      out.set(new Type(data.slice(from, from + n * Type.BYTES_PER_ELEMENT).buffer), i * n);
    }
    return out;
  }

  function multiply(a, b) {
    const c = new Float32Array(16);
    for (let i = 0; i < 4; i++)
      for (let j = 0; j < 4; j++)
        for (let k = 0; k < 4; k++) c[4 * j + i] += a[4 * k + i] * b[4 * j + k];
    return c;
  }

  const IDENTITY = new Float32Array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);

  function localMatrix(node) {
    if (node.matrix) return new Float32Array(node.matrix);
    const [x, y, z, w] = node.rotation || [0, 0, 0, 1], s = node.scale || [1, 1, 1];
    const t = node.translation || [0, 0, 0];
    return new Float32Array([
      (1 - 2 * (y * y + z * z)) * s[0], 2 * (x * y + z * w) * s[0], 2 * (x * z - y * w) * s[0], 0,
      2 * (x * y - z * w) * s[1], (1 - 2 * (x * x + z * z)) * s[1], 2 * (y * z + x * w) * s[1], 0,
      2 * (x * z + y * w) * s[2], 2 * (y * z - x * w) * s[2], (1 - 2 * (x * x + y * y)) * s[2], 0,
      t[0], t[1], t[2], 1,
    ]);
  }

  // Corners of all triangles in the world: each corner stands alone, so that edges can be drawn.
  function triangles(glb) {
    const parts = [], { json } = glb;
    const visit = (index, above) => {
      const node = json.nodes[index], m = multiply(above, localMatrix(node));
      for (const p of node.mesh === undefined ? [] : json.meshes[node.mesh].primitives)
        parts.push(corners(glb, p, m));
      for (const child of node.children || []) visit(child, m);
    };
    for (const root of json.scenes[json.scene || 0].nodes) visit(root, IDENTITY);
    return parts;
  }

  function corners(glb, primitive, m) {
    const pos = accessor(glb, primitive.attributes.POSITION);
    const has = (name) => primitive.attributes[name] !== undefined;
    const nor = has("NORMAL") ? accessor(glb, primitive.attributes.NORMAL) : null;
    const uv = has("TEXCOORD_0") ? accessor(glb, primitive.attributes.TEXCOORD_0) : null;
    let index = null;
    if (primitive.indices !== undefined) index = accessor(glb, primitive.indices);
    const count = index ? index.length : pos.length / 3;
    const out = {
      count, position: new Float32Array(3 * count), normal: new Float32Array(3 * count),
      uv: new Float32Array(2 * count), corner: new Float32Array(3 * count),
      material: (glb.json.materials || [])[primitive.material] || {},
    };
    for (let i = 0; i < count; i++) {
      const v = index ? index[i] : i;
      for (let r = 0; r < 3; r++) {
        out.position[3 * i + r] = m[12 + r];
        for (let c = 0; c < 3; c++) {
          out.position[3 * i + r] += m[4 * c + r] * pos[3 * v + c];
          if (nor) out.normal[3 * i + r] += m[4 * c + r] * nor[3 * v + c];
        }
      }
      if (uv) out.uv.set([uv[2 * v], uv[2 * v + 1]], 2 * i);
      out.corner[3 * i + (i % 3)] = 1;
    }
    if (!nor) flatNormals(out);
    return out;
  }

  function flatNormals(part) {
    const p = part.position;
    for (let i = 0; i + 8 < p.length; i += 9) {
      const e = [0, 1, 2].map((k) => p[i + 3 + k] - p[i + k]);
      const f = [0, 1, 2].map((k) => p[i + 6 + k] - p[i + k]);
      for (let c = 0; c < 3; c++)
        part.normal.set(
          [e[1] * f[2] - e[2] * f[1], e[2] * f[0] - e[0] * f[2], e[0] * f[1] - e[1] * f[0]],
          i + 3 * c);
    }
  }

  function program(gl) {
    const made = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost())
        throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(made, shader);
    }
    gl.linkProgram(made);
    return made;
  }

  function upload(gl, shaders, part) {
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    for (const [name, n] of [["position", 3], ["normal", 3], ["uv", 2], ["corner", 3]]) {
      const place = gl.getAttribLocation(shaders, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, part[name], gl.STATIC_DRAW);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, n, gl.FLOAT, false, 0, 0);
    }
    return array;
  }

  // White until the picture of the file is decoded; redraws then.
  function texture(gl, glb, material, redraw) {
    const made = gl.createTexture(), pbr = material.pbrMetallicRoughness || {};
    gl.bindTexture(gl.TEXTURE_2D, made);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 1, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE,
      new Uint8Array([255, 255, 255, 255]));
    if (pbr.baseColorTexture) {
      const source = glb.json.images[glb.json.textures[pbr.baseColorTexture.index].source];
      const view = glb.json.bufferViews[source.bufferView], start = view.byteOffset || 0;
      const file = new Blob([glb.data.slice(start, start + view.byteLength)],
        { type: source.mimeType });
      createImageBitmap(file, { colorSpaceConversion: "none" }).then((picture) => {
        gl.bindTexture(gl.TEXTURE_2D, made);
        gl.texImage2D(gl.TEXTURE_2D, 0, gl.SRGB8_ALPHA8, gl.RGBA, gl.UNSIGNED_BYTE, picture);
        gl.generateMipmap(gl.TEXTURE_2D);
        redraw();
      });
    }
    return { made, factor: pbr.baseColorFactor || [1, 1, 1, 1] };
  }

  function box(parts) {
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    for (const { position } of parts)
      for (let i = 0; i < position.length; i++) {
        low[i % 3] = Math.min(low[i % 3], position[i]);
        high[i % 3] = Math.max(high[i % 3], position[i]);
      }
    const centre = low.map((x, k) => (x + high[k]) / 2);
    return { centre, radius: Math.hypot(...low.map((x, k) => (high[k] - x) / 2)) || 1 };
  }

  function matrices(camera, { centre, radius }, aspect) {
    const { turn, tilt, zoom } = camera, far = (radius / Math.sin(0.3)) * zoom;
    const [c, s, d, t] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
    const about = new Float32Array([c, t * s, -d * s, 0, 0, d, t, 0, s, -t * c, d * c, 0, 0, 0, 0, 1]);
    const away = new Float32Array(IDENTITY), home = new Float32Array(IDENTITY);
    away[14] = -far;
    home.set(centre.map((x) => -x), 12);
    const f = Math.min(1, aspect) / Math.tan(0.3), near = Math.max(far - 1.5 * radius, far * 0.01);
    const last = far + 1.5 * radius;
    const projection = new Float32Array([f / aspect, 0, 0, 0, 0, f, 0, 0,
      0, 0, (last + near) / (near - last), -1, 0, 0, (2 * last * near) / (near - last), 0]);
    return { view: multiply(away, multiply(about, home)), projection };
  }

  function show(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true });
    if (!gl) {
      canvas.replaceWith("This browser has no WebGL 2: the model cannot be turned here.");
      return;
    }
    const glb = parse(bytesOf(canvas.dataset.source)), parts = triangles(glb);
    const shaders = program(gl), place = box(parts), start = { turn: 0.5, tilt: 0.3, zoom: 0.9 };
    const camera = { ...start, look: 0 };
    let waiting = false;
    const redraw = () => {
      if (!waiting) requestAnimationFrame(draw);
      waiting = true;
    };
    const models = parts.map((part) => ({
      count: part.count, array: upload(gl, shaders, part),
      ...texture(gl, glb, part.material, redraw),
    }));
    function draw() {
      waiting = false;
      const scale = window.devicePixelRatio || 1;
      canvas.width = Math.round(canvas.clientWidth * scale);
      canvas.height = Math.round(canvas.clientHeight * scale);
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(1, 1, 1, 1);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.enable(gl.DEPTH_TEST);
      gl.useProgram(shaders);
      const at = (name) => gl.getUniformLocation(shaders, name);
      const { view, projection } = matrices(camera, place, canvas.width / canvas.height);
      gl.uniformMatrix4fv(at("view"), false, view);
      gl.uniformMatrix4fv(at("projection"), false, projection);
      gl.uniform1i(at("look"), camera.look);
      for (const model of models) {
        gl.bindVertexArray(model.array);
        gl.bindTexture(gl.TEXTURE_2D, model.made);
        gl.uniform4fv(at("factor"), model.factor);
        gl.drawArrays(gl.TRIANGLES, 0, model.count);
      }
      canvas.dataset.drawn = "yes";
    }
    control(canvas, camera, start, redraw);
    redraw();
  }

  function control(canvas, camera, start, redraw) {
    const down = new Map();
    const spread = () => {
      const [a, b] = [...down.values()];
      return Math.hypot(a.x - b.x, a.y - b.y);
    };
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      down.set(e.pointerId, { x: e.clientX, y: e.clientY });
    });
    canvas.addEventListener("pointermove", (e) => {
      const last = down.get(e.pointerId);
      if (!last) return;
      const before = down.size === 2 ? spread() : 0;
      down.set(e.pointerId, { x: e.clientX, y: e.clientY });
      if (down.size === 2) camera.zoom *= before / Math.max(spread(), 1);
      else {
        camera.turn += (e.clientX - last.x) * 0.01;
        camera.tilt = Math.max(-1.57, Math.min(1.57, camera.tilt + (e.clientY - last.y) * 0.01));
      }
      redraw();
    });
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, (e) => down.delete(e.pointerId));
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      camera.zoom = Math.max(0.05, Math.min(5, camera.zoom * Math.exp(e.deltaY * 0.001)));
      redraw();
    }, { passive: false });
    canvas.addEventListener("dblclick", () => { Object.assign(camera, start); redraw(); });
    window.addEventListener("resize", redraw);
    const bar = canvas.parentElement.querySelector(".looks");
    LOOKS.forEach((name, look) => {
      const button = document.createElement("button");
      button.textContent = name;
      button.addEventListener("click", () => { camera.look = look; redraw(); });
      bar.appendChild(button);
    });
  }

  for (const canvas of document.querySelectorAll("canvas.model")) show(canvas);
})();
