"""Surface: all that a model of shading reads at a pixel (or a vertex).

In: a peel, tables and a material. Out: ``Surface``. The same class holds vertex tables: models work
component by component, so ``gouraud`` runs them on vertices.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, MAT4, VEC3, VEC4
from dressi.errors import GraphError
from dressi.render.camera.eye import to_eye
from dressi.render.raster import Peel, gather, interpolate
from dressi.render.shading.geometry import flat_normal, smooth_normal
from dressi.render.shading.values import Value, as_variable

WHITE = 1.0


@dataclass(frozen=True, init=False)
class Surface:
    """Values at pixels (or vertices), broadcast against each other.

    albedo: VEC3 linear. position: VEC3, world units. normal: VEC3 unit, world, or 0 where there is
    nothing. to_eye: VEC3 unit, world, towards the camera. metallic, roughness, occlusion (1 = open,
    0 = occluded): FLOAT in [0, 1]. emissive: VEC3 linear. alpha: FLOAT, coverage. Numbers are taken
    too; they become constants. position, normal and to_eye may be left out for models that do not
    read them.

    Raises GraphError for a value of another type.
    """

    albedo: Variable
    position: Variable | None
    normal: Variable | None
    to_eye: Variable | None
    metallic: Variable
    roughness: Variable
    occlusion: Variable
    emissive: Variable
    alpha: Variable

    def __init__(
        self,
        albedo: Value = WHITE,
        position: Value | None = None,
        normal: Value | None = None,
        to_eye: Value | None = None,
        metallic: Value = 0.0,
        roughness: Value = 1.0,
        occlusion: Value = 1.0,
        emissive: Value = 0.0,
        alpha: Value = 1.0,
    ) -> None:
        for name, value, vtype in (
            ("albedo", albedo, VEC3),
            ("position", position, VEC3),
            ("normal", normal, VEC3),
            ("to_eye", to_eye, VEC3),
            ("metallic", metallic, FLOAT),
            ("roughness", roughness, FLOAT),
            ("occlusion", occlusion, FLOAT),
            ("emissive", emissive, VEC3),
            ("alpha", alpha, FLOAT),
        ):
            given = None if value is None else as_variable(f"Surface: {name}", value, vtype)
            object.__setattr__(self, name, given)

    def need(self, model: str, *names: str) -> tuple[Variable, ...]:
        """The named parts, or GraphError that names the model and the part left out."""
        found = []
        for name in names:
            value = getattr(self, name)
            if value is None:
                raise GraphError(f"{model} needs a Surface with {name}")
            found.append(value)
        return tuple(found)


def build_surface(
    peel: Peel,
    vtx_pos: Variable,
    faces: Variable,
    eye: Value,
    vtx_normal: Variable | None = None,
    two_sided: bool = False,
    albedo: Value = WHITE,
    metallic: Value = 0.0,
    roughness: Value = 1.0,
    occlusion: Value = 1.0,
    emissive: Value = 0.0,
    alpha: Value = 1.0,
) -> Surface:
    """The Surface of one peel.

    peel: of HardSoftRas, any number of views; or the layer of ``build_antialias``. vtx_pos: VEC3 @
    (N, 1), world units. faces: IVEC3 @ (F, 1). eye: of each view (layers), world: the matrix of the
    view, MAT4 @ 1x1, or its ``homogeneous_eye``, VEC4, both right for parallel projections too; or
    a point, VEC3. vtx_normal: VEC3 @ (N, 1); interpolated normals, else those of faces. two_sided:
    turn normals towards the eye where the back of a face is seen. The rest: see Surface. Gradient
    to positions, normals, eye, and through the peel's barycentrics.
    """
    position = interpolate(gather(vtx_pos, faces), peel.ids, peel.bary)
    if vtx_normal is None:
        normal = flat_normal(peel, vtx_pos, faces)
    else:
        normal = smooth_normal(peel, vtx_normal, faces)
    if not isinstance(eye, Variable) or eye.vtype not in (VEC4, MAT4):
        eye = as_variable("build_surface: eye", eye, VEC3)
    seen_from = to_eye(eye, position)
    if two_sided:
        normal = towards_eye(normal, flat_normal(peel, vtx_pos, faces), seen_from)
    return Surface(
        albedo, position, normal, seen_from, metallic, roughness, occlusion, emissive, alpha
    )


def towards_eye(normal: Variable, face_normal: Variable, to_eye: Variable) -> Variable:
    """normal, turned over where the back of the face is seen. VEC3 each, world. The face decides,
    not the normal: an interpolated one may tip over near a silhouette. Gradient to normal."""
    return F.where(F.dot(face_normal, to_eye) < 0.0, -normal, normal)
