"""The parts of a scene: images, materials, meshes, lights, cameras, nodes.

In: arrays. Out: frozen dataclasses that refer to each other by index; ``Scene`` holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dressi.ad.precision import say_rounded
from dressi.errors import GraphError
from dressi.render.scene.mesh import int32_indices

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float64]

ColorSpace = Literal["srgb", "linear"]
COLOR_SPACES: tuple[ColorSpace, ...] = get_args(ColorSpace)

SceneWrap = Literal["repeat", "mirror", "clamp"]
WRAPS: tuple[SceneWrap, ...] = get_args(SceneWrap)

MagFilter = Literal["nearest", "linear"]
MAG_FILTERS: tuple[MagFilter, ...] = get_args(MagFilter)

MinFilter = Literal[
    "nearest",
    "linear",
    "nearest_mipmap_nearest",
    "linear_mipmap_nearest",
    "nearest_mipmap_linear",
    "linear_mipmap_linear",
]
MIN_FILTERS: tuple[MinFilter, ...] = get_args(MinFilter)

AlphaMode = Literal["OPAQUE", "MASK", "BLEND"]
ALPHA_MODES: tuple[AlphaMode, ...] = get_args(AlphaMode)

LightKind = Literal["directional", "point", "spot"]
LIGHT_KINDS: tuple[LightKind, ...] = get_args(LightKind)

CameraKind = Literal["perspective", "orthographic"]
CAMERA_KINDS: tuple[CameraKind, ...] = get_args(CameraKind)


def _set_floats(owner: object, name: str, dtype: type = np.float32) -> None:
    """Turn a field of a frozen dataclass into a contiguous float array; None stays None."""
    value = getattr(owner, name)
    if value is None:
        return
    try:
        array: npt.NDArray[np.floating] = np.ascontiguousarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{type(owner).__name__}.{name} must be numbers: {error}") from error
    object.__setattr__(owner, name, array)


@dataclass(frozen=True, eq=False)
class Image:
    """A picture. pixels: (H, W, C) float32, linear, row 0 on top, C = 1 to 4 (2 and 4 with alpha).

    color_space: how a file holds it. "srgb": it is a colour, encoded on writing; "linear": data
    (normals, roughness), written as it is. ``pixels`` are linear in both cases.
    bit_depth: 8 or 16, of the PNG that is written. Raises GraphError for integer pixels.
    """

    pixels: Floats
    color_space: ColorSpace = "srgb"
    name: str = ""
    bit_depth: int = 8
    extras: Any = None

    def __post_init__(self) -> None:
        kind = np.asarray(self.pixels).dtype
        if kind.kind in "iu":
            raise GraphError(
                f"pixels of image '{self.name}' must be linear floats, not {kind}\n"
                "  hint: dressi.render.io.srgb_to_linear(pixels / 255)"
            )
        _set_floats(self, "pixels")
        if self.pixels.ndim == 2:
            object.__setattr__(self, "pixels", self.pixels[..., None])


@dataclass(frozen=True, eq=False)
class TextureRef:
    """How a material reads an image: sampler, UV set and KHR_texture_transform.

    image: row of ``Scene.images``. uv_set: row of ``Primitive.uvs``. wrap_u, wrap_v: repeat, mirror
    or clamp, as ``F.texture`` names them. mag_filter: nearest or linear; min_filter: one of
    ``MIN_FILTERS``. offset, scale: (u, v). rotation_rad: counter-clockwise around the UV origin.
    """

    image: int
    uv_set: int = 0
    wrap_u: SceneWrap = "repeat"
    wrap_v: SceneWrap = "repeat"
    mag_filter: MagFilter = "linear"
    min_filter: MinFilter = "linear_mipmap_linear"
    offset: tuple[float, float] = (0.0, 0.0)
    rotation_rad: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)

    @property
    def uv_matrix(self) -> Matrix:
        """(3, 3) float64: (u, v, 1) of the primitive to that of the image.

        Translation @ rotation @ scale, as KHR_texture_transform defines them. Counter-clockwise is
        meant as seen, with v down (so the sign of the sine differs from a frame with y up).
        """
        c, s = np.cos(self.rotation_rad), np.sin(self.rotation_rad)
        (x, y), (u, v) = self.offset, self.scale
        return np.array([[c * u, s * v, x], [-s * u, c * v, y], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Material:
    """Metallic-roughness material of glTF. Factors are linear and multiply the maps.

    base_color: (4,) RGBA. metallic, roughness: in [0, 1]; ``metallic_roughness_map`` has roughness
    in G and metallic in B. normal_map: tangent space, 2 * value - 1, x and y times
    ``normal_scale``. occlusion_map: R, mixed in by ``occlusion_strength``. emissive: (3,), times
    ``emissive_strength`` (KHR_materials_emissive_strength). alpha_mode: OPAQUE, MASK (below
    ``alpha_cutoff`` nothing is drawn) or BLEND. unlit: KHR_materials_unlit. extras: any JSON; its
    entry ``dressi`` asks for a model of shading (``dressi.render.scene.models``).
    """

    base_color: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    base_color_map: TextureRef | None = None
    metallic: float = 1.0
    roughness: float = 1.0
    metallic_roughness_map: TextureRef | None = None
    normal_map: TextureRef | None = None
    normal_scale: float = 1.0
    occlusion_map: TextureRef | None = None
    occlusion_strength: float = 1.0
    emissive: tuple[float, float, float] = (0.0, 0.0, 0.0)
    emissive_strength: float = 1.0
    emissive_map: TextureRef | None = None
    alpha_mode: AlphaMode = "OPAQUE"
    alpha_cutoff: float = 0.5
    double_sided: bool = False
    unlit: bool = False
    name: str = ""
    extras: Any = None

    @property
    def maps(self) -> dict[str, TextureRef]:
        """The maps that there are, by the name of their field."""
        names = ("base_color", "metallic_roughness", "normal", "occlusion", "emissive")
        found = {f"{name}_map": getattr(self, f"{name}_map") for name in names}
        return {name: ref for name, ref in found.items() if ref is not None}


COLOR_MAPS = ("base_color_map", "emissive_map")
"""The maps that hold colours; the others hold data and are never decoded from sRGB."""


@dataclass(frozen=True, eq=False)
class MorphTarget:
    """One blendshape: what is added for a weight of 1. Each (V, 3) float32 or None (nothing)."""

    positions: Floats | None = None
    normals: Floats | None = None
    tangents: Floats | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for name in ("positions", "normals", "tangents"):
            _set_floats(self, name)


@dataclass(frozen=True, eq=False)
class Primitive:
    """Triangles of one material. One index for all attributes: vertices are split at seams.

    positions: (V, 3), units of the mesh. faces: (F, 3) int32. normals: (V, 3) unit length, or None.
    tangents: (V, 4), w = ±1 is the sign of the bitangent, or None. uvs: sets of (V, 2). colors:
    (V, 4) linear RGBA that multiplies the base colour, or None. material: row of
    ``Scene.materials``, or None for glTF's default. targets: blendshapes. Tables are float32.
    Raises GraphError where faces are no integers.
    """

    positions: Floats
    faces: npt.NDArray[np.int32]
    normals: Floats | None = None
    tangents: Floats | None = None
    uvs: tuple[Floats, ...] = ()
    colors: Floats | None = None
    material: int | None = None
    targets: tuple[MorphTarget, ...] = ()
    name: str = ""
    extras: Any = None

    def __post_init__(self) -> None:
        say_rounded(f"primitive '{self.name}'", np.asarray(self.positions))
        for name in ("positions", "normals", "tangents", "colors"):
            _set_floats(self, name)
        uvs = tuple(np.ascontiguousarray(table, dtype=np.float32) for table in self.uvs)
        object.__setattr__(self, "uvs", uvs)
        faces = int32_indices(f"faces of primitive '{self.name}'", self.faces)
        object.__setattr__(self, "faces", faces)


@dataclass(frozen=True, eq=False)
class SceneMesh:
    """Primitives that belong together. weights: one a blendshape, the defaults of its nodes."""

    primitives: tuple[Primitive, ...]
    weights: tuple[float, ...] = ()
    name: str = ""
    extras: Any = None


@dataclass(frozen=True, eq=False)
class PunctualLight:
    """A light of KHR_lights_punctual: at the node's origin, shining along its -Z.

    kind: directional, point or spot. color: (3,) linear. intensity: lux for directional lights,
    candela for the others. range: world units, None is infinite. The cone of a spot falls off from
    inner_cone_rad to outer_cone_rad, half angles.
    """

    kind: LightKind
    color: tuple[float, float, float] = (1.0, 1.0, 1.0)
    intensity: float = 1.0
    range: float | None = None
    inner_cone_rad: float = 0.0
    outer_cone_rad: float = float(np.pi / 4)
    name: str = ""
    extras: Any = None


@dataclass(frozen=True, eq=False)
class SceneCamera:
    """A camera of glTF; ``flat.camera_at`` turns it into a ``Camera``.

    kind: perspective (fov_y_deg; aspect None: that of the picture; far None: infinite) or
    orthographic (x_mag, y_mag: half the width and height, world units; far is needed).
    near, far: distances along -Z, world units.
    """

    kind: CameraKind = "perspective"
    fov_y_deg: float = 45.0
    aspect: float | None = None
    x_mag: float = 1.0
    y_mag: float = 1.0
    near: float = 0.01
    far: float | None = None
    name: str = ""
    extras: Any = None


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the tree. matrix: (4, 4) float64, node to parent.

    children: rows of ``Scene.nodes``. mesh, camera, light: rows of the tables of the scene.
    weights: of the blendshapes, where they differ from those of the mesh.
    """

    matrix: Matrix = field(default_factory=lambda: np.eye(4))
    children: tuple[int, ...] = ()
    mesh: int | None = None
    camera: int | None = None
    light: int | None = None
    weights: tuple[float, ...] | None = None
    name: str = ""
    extras: Any = None

    def __post_init__(self) -> None:
        _set_floats(self, "matrix", np.float64)


def trs_matrix(
    translation: npt.ArrayLike = (0.0, 0.0, 0.0),
    rotation_xyzw: npt.ArrayLike = (0.0, 0.0, 0.0, 1.0),
    scale: npt.ArrayLike = (1.0, 1.0, 1.0),
) -> Matrix:
    """(4, 4) float64: translation @ rotation @ scale.

    translation: (3,). rotation_xyzw: (4,) quaternion in glTF's order, real part last, normalized
    here. scale: (3,). Raises GraphError for a zero or not finite quaternion, or other shapes.
    """
    try:
        t, q, s = (np.asarray(v, np.float64) for v in (translation, rotation_xyzw, scale))
    except (TypeError, ValueError) as error:
        raise GraphError(f"trs_matrix needs numbers: {error}") from error
    if t.shape != (3,) or q.shape != (4,) or s.shape != (3,):
        raise GraphError(f"trs_matrix needs (3,), (4,), (3,), got {t.shape}, {q.shape}, {s.shape}")
    length = float(np.linalg.norm(q))
    if not (np.isfinite(length) and length > 0.0):
        raise GraphError(f"trs_matrix: the quaternion {q.tolist()} is no rotation")
    x, y, z, w = q / length
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation * s, t
    return matrix
