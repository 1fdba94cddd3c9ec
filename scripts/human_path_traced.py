"""The portrait of ``dressi experiment human`` once more, path traced by Mitsuba 3, to compare.

``python scripts/human_path_traced.py pack FILE.npz`` writes the scene's arrays with this package;
``python scripts/human_path_traced.py trace FILE.npz OUT.png`` draws them with Mitsuba (3.9.1),
which may be installed elsewhere. Same meshes, strands, lights, environment and camera. Differs:
skin is ``principled`` without light below its surface, the iris lies on the cornea, and light goes
from strand to strand.
"""

from __future__ import annotations

import sys

import numpy as np

SIZE, SAMPLES = 384, 64


def pack(path: str, camera_name: str = "portrait", n_strands: int = 20000) -> None:
    """Write the scene's arrays."""
    from dressi.apps.data import human_file
    from dressi.apps.experiments.human_hair import grow_human_hair
    from dressi.apps.experiments.human_parts import PARTS, build_human
    from dressi.apps.experiments.human_scene import (
        DEFAULT_LIGHTS,
        FIBER,
        Setting,
        close_ups,
        eye_texture,
        portrait,
        skin_texture,
    )
    from dressi.apps.experiments.human_shading import COLORS, NUMBERS
    from dressi.render.io import read_image
    from dressi.render.shading.hair import EUMELANIN, PHEOMELANIN

    human = build_human(human_file("ict/ict_face_light.npz"))
    strands = grow_human_hair(human, skin_texture(), n_strands)
    camera = {c.name: c for c in (portrait(), *close_ups(human))}[camera_name]
    setting = Setting([camera], (SIZE, SIZE))
    arrays: dict[str, np.ndarray] = {}
    for k, name in enumerate(PARTS):
        rows = human.parts == k
        corners, uv = human.mesh.faces[rows].ravel(), human.mesh.corner_faces[rows].ravel()
        arrays[f"{name}_p"] = human.mesh.positions[corners]
        arrays[f"{name}_n"] = human.normals[corners]
        arrays[f"{name}_uv"] = human.mesh.uvs[uv]
        arrays[f"{name}_numbers"] = np.array(NUMBERS[name])
        arrays[f"{name}_color"] = np.array(COLORS.get(name, (0.5, 0.5, 0.5)))
    amount = -np.log(1.0 - FIBER.melanin)
    red = FIBER.redness
    sigma = amount * ((1.0 - red) * np.array(EUMELANIN) + red * np.array(PHEOMELANIN))
    np.savez_compressed(
        path,
        **arrays,
        skin_map=skin_texture(),
        eye_map=eye_texture(),
        points=strands.points,
        counts=strands.counts,
        radii=strands.widths * 0.5,
        sigma=sigma,
        fiber=np.array([FIBER.roughness, FIBER.azimuthal_roughness, FIBER.ior, FIBER.tilt_deg]),
        env=read_image(human_file(setting.environment)) * setting.ambient,
        lights=np.array(
            [[*x.direction, *(np.array(x.color) * x.intensity)] for x in DEFAULT_LIGHTS]
        ),
        view=np.linalg.inv(camera.view),
        fov=2.0 * np.degrees(np.arctan(1.0 / abs(camera.projection[1, 1]))),
        background=np.array(setting.background),
    )


def trace(path: str, out: str) -> None:
    """Draw them."""
    import mitsuba as mi

    mi.set_variant("scalar_rgb")
    with np.load(path) as found:
        d = {k: found[k] for k in found.files}
    scene: dict = {
        "type": "scene",
        "integrator": {"type": "path", "max_depth": 12, "hide_emitters": True},
    }
    view = d["view"]
    eye, ahead, up = view[:3, 3], -view[:3, 2], view[:3, 1]
    scene["sensor"] = {
        "type": "perspective",
        "fov": float(d["fov"]),
        "fov_axis": "y",
        "to_world": mi.ScalarTransform4f().look_at(
            eye.tolist(), (eye + ahead).tolist(), up.tolist()
        ),
        "film": {"type": "hdrfilm", "width": SIZE, "height": SIZE, "pixel_format": "rgba"},
        "sampler": {"type": "independent", "sample_count": SAMPLES},
    }
    # Mitsuba's maps begin where ours have their middle.
    env = np.roll(d["env"], d["env"].shape[1] // 2, axis=1).astype(np.float32)
    scene["env"] = {"type": "envmap", "bitmap": mi.Bitmap(env)}
    for k, light in enumerate(d["lights"]):
        scene[f"light{k}"] = {
            "type": "directional",
            "direction": light[:3].tolist(),
            "irradiance": {"type": "rgb", "value": light[3:].tolist()},
        }
    for name in ("skin", "eye", "teeth", "gums"):
        scene[name] = part(mi, d, name)
    with open(path + ".hair.txt", "w", encoding="ascii") as file:
        first = 0
        for n in d["counts"]:
            for p, r in zip(
                d["points"][first : first + n], d["radii"][first : first + n], strict=True
            ):
                print(*p, max(float(r), 1e-5), file=file)
            print(file=file)
            first += n
    rough, around, ior, tilt = d["fiber"].tolist()
    scene["hair"] = {
        "type": "linearcurve",
        "filename": path + ".hair.txt",
        "bsdf": {
            "type": "hair",
            "sigma_a": {"type": "rgb", "value": d["sigma"].tolist()},
            "longitudinal_roughness": rough,
            "azimuthal_roughness": around,
            "int_ior": ior,
            "scale_tilt": tilt,
        },
    }
    image = np.array(mi.render(mi.load_dict(scene)))
    color = image[..., :3] + (1.0 - image[..., 3:4]) * d["background"]
    from PIL import Image

    Image.fromarray((np.clip(shown(color), 0, 1) * 255 + 0.5).astype(np.uint8)).save(out)


def part(mi, d: dict, name: str) -> dict:  # type: ignore[no-untyped-def]
    """One mesh with its material."""
    n = len(d[f"{name}_p"])
    props = mi.Properties()
    ior, rough, _ = d[f"{name}_numbers"].tolist()
    color: dict = {"type": "rgb", "value": d[f"{name}_color"].tolist()}
    if f"{name}_map" in d:
        bitmap = mi.Bitmap(np.ascontiguousarray(d[f"{name}_map"], dtype=np.float32))
        color = {"type": "bitmap", "bitmap": bitmap, "raw": True, "wrap_mode": "clamp"}
    bsdf = mi.load_dict(
        {
            "type": "twosided",
            "bsdf": {"type": "principled", "base_color": color, "roughness": rough, "eta": ior},
        }
    )
    props["mesh_bsdf"] = bsdf
    mesh = mi.Mesh(name, n, n // 3, has_vertex_normals=True, has_vertex_texcoords=True, props=props)
    params = mi.traverse(mesh)
    params["vertex_positions"] = d[f"{name}_p"].ravel().astype(np.float32)
    params["vertex_normals"] = d[f"{name}_n"].ravel().astype(np.float32)
    params["vertex_texcoords"] = d[f"{name}_uv"].ravel().astype(np.float32)
    params["faces"] = np.arange(n, dtype=np.uint32)
    params.update()
    return mesh


def shown(color: np.ndarray) -> np.ndarray:
    """ACES' curve as a rational fit (Narkowicz 2015) and sRGB, as the experiment shows pictures."""
    c = np.clip(color * (2.51 * color + 0.03) / (color * (2.43 * color + 0.59) + 0.14), 0, 1)
    return np.where(c <= 0.0031308, 12.92 * c, 1.055 * np.maximum(c, 1e-8) ** (1 / 2.4) - 0.055)


if __name__ == "__main__":
    {"pack": pack, "trace": trace}[sys.argv[1]](*sys.argv[2:])
