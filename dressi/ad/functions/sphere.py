"""Maps over directions: reads of cube maps and equirectangular maps, and their backwards.

In: a map and directions. Out: values. Rows of the registry come in threes: the read, the exact
scatter to the texels read, and the gradient to the direction; what differs between the maps, which
texels a direction reads, is in ``cubemap`` and ``equirect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dressi.ad.functions import cubemap, equirect
from dressi.ad.functions._common import needs_variable, sized
from dressi.ad.functions.image import expand, take_layer
from dressi.ad.functions.layers import concat, stack
from dressi.ad.functions.texture_taps import Taps, read, scattered, slopes
from dressi.ad.functions.window import crop
from dressi.ad.functions.written_out import dot_glsl
from dressi.ad.graph import Function, Size, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, OPS, SAME, Case, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import GraphError
from dressi.kinds import FILTERS, Filter


class Geometry(Protocol):
    """What a map module has: see ``cubemap``."""

    def place_glsl(self, size: Size, linear: bool) -> str: ...
    def slope_glsl(self, size: Size) -> str: ...
    def taps(self, d: np.ndarray, size: Size, linear: bool) -> Taps: ...


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    return xs[0].vtype, *broadcast(xs[1:])


def _is_linear(f: Function) -> bool:
    return bool(f.attr("filter") == "linear")


def _fetched(vtype: str) -> str:
    """GLSL that declares t0 to t3, the four texels."""
    offsets = ("0, 0", "1, 0", "0, 1", "1, 1")
    values = [f"t{k} = {{fetch0}}(i + ivec2({o}), l)" for k, o in enumerate(offsets)]
    return f"{vtype} {', '.join(values)};\n    "


@dataclass(frozen=True)
class _Map:
    """The rows of a kind of map: the read, its scatter and its gradient to the direction.

    Inputs: map (in the scatter gy), direction; where the map is a stack of several the number of
    one; in the gradient gy.
    """

    name: str
    geometry: Geometry

    def block(self, f: Function, text: str) -> str:
        """A block of GLSL in which the place of the direction is known."""
        place = self.geometry.place_glsl(f.attr("size"), _is_linear(f))
        if len(f.inputs) > 2 and f.inputs[2].vtype is INT:
            place += f"    l += 6 * clamp({{x2}}, 0, {f.attr('layers') // 6 - 1});\n"
        return f"{{\n    {place}    {text}\n  }}"

    def taps(self, f: Function, d: np.ndarray, xs: Sequence[np.ndarray]) -> Any:
        """xs: the numbers of the maps, or nothing."""
        first: Any = 0
        if xs:
            first = 6 * np.clip(xs[0][..., 0], 0, f.attr("layers") // 6 - 1).astype(np.int64)
        found = self.geometry.taps(d, f.attr("size"), _is_linear(f))
        return [(first + layer, *rest) for layer, *rest in found]

    def read_glsl(self, f: Function) -> str:
        if not _is_linear(f):
            return "{y} = {T}(0);\n  " + self.block(f, "{y} = {fetch0}(i, l);")
        mixed = "{y} = wy.x * (wx.x * t0 + wx.y * t1) + wy.y * (wx.x * t2 + wx.y * t3);"
        return "{y} = {T}(0);\n  " + self.block(f, _fetched("{T}") + mixed)

    def read_ref(self, f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
        return read(self.taps(f, xs[1], xs[2:]), xs[0])

    def read_backward(self, f: Function, gy: Variable, i: int) -> Variable | None:
        image, direction, *index = f.inputs
        attrs = dict(f.attrs)
        if i == 0:
            places = [expand(v, gy.size, gy.layers) for v in (direction, *index)]
            return apply(OPS[f"{self.name}_scatter"], (gy, *places), **attrs)
        if i == 1:
            return apply(OPS[f"{self.name}_grad"], (image, direction, *index, gy), **attrs)
        return None

    def scatter_glsl(self, f: Function) -> str:
        w, h = f.attr("size")
        text = f"int j = (l * {h} + i.y) * {w} + i.x;\n    "
        parts = [("0", "wx.x * wy.x"), ("1", "wx.y * wy.x"), (f"{w}", "wx.x * wy.y")]
        parts.append((f"{w + 1}", "wx.y * wy.y"))
        if _is_linear(f):
            text += " ".join(f"{{add}}(j + {at}, ({k}) * {{x0}});" for at, k in parts)
        else:
            text += "{add}(j, {x0});"
        return "if ({x0} != {T}(0)) " + self.block(f, text)

    def scatter_ref(self, f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
        d = np.broadcast_to(xs[1], (*xs[0].shape[:3], 3))
        return scattered(self.taps(f, d, xs[2:]), xs[0], f)

    def gradient_glsl(self, f: Function) -> str:
        if not _is_linear(f):
            return "{y} = vec3(0.0);"
        gy = f"x{len(f.inputs) - 1}"

        def slope(difference: str) -> str:
            return dot_glsl(f"{{{gy}}}", f"({difference})", f.inputs[-1].vtype.n)

        # Differences first: two equal texels cancel exactly, which counts at a pole, where the
        # slope of the longitude is large.
        text = (
            _fetched("{T0}")
            + f"vec2 s = vec2(wy.x * {slope('t1 - t0')} + wy.y * {slope('t3 - t2')}, "
            f"wx.x * {slope('t2 - t0')} + wx.y * {slope('t3 - t1')});\n    "
            + self.geometry.slope_glsl(f.attr("size"))
        )
        zero = f"{f.inputs[-1].vtype.glsl}(0)"
        return f"{{y}} = vec3(0.0);\n  if ({{{gy}}} != {zero}) {self.block(f, text)}"

    def gradient_ref(self, f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
        image, d, *index, gy = xs
        d = np.broadcast_to(d, (f.output.layers, *f.output.size[::-1], 3))
        return slopes(self.taps(f, d, index), image, gy)

    def rows(self, cases: tuple[Case, ...]) -> Op:
        """The read, with all three in the registry. cases: of the read."""
        tested = f"the backward of {self.name}; tested through its gradient"
        read = register(
            Op(
                self.name,
                _infer,
                reads=(ANY, SAME),
                linear_in=(0,),
                backward=self.read_backward,
                reference=self.read_ref,
                cases=cases,
            ),
            Kernel(self.read_glsl),
        )
        register(
            Op(
                f"{self.name}_scatter",
                lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
                linear_in=(0,),
                reference=self.scatter_ref,
                scatter="add",
                domain=0,
                no_cases=tested,
            ),
            Kernel(self.scatter_glsl),
        )
        register(
            Op(
                f"{self.name}_grad",
                lambda xs, a: (VEC3, *broadcast(xs[1:])),
                reads=(ANY, SAME, SAME),
                linear_in=(0, -1),
                reference=self.gradient_ref,
                no_cases=tested,
            ),
            Kernel(self.gradient_glsl),
        )
        return read


def _six(c: Variable) -> Variable:
    """For the generated tests: a cube from an image that holds its faces below one another."""
    n = c.size[0]
    return stack([crop(take_layer(c, 0), 0, n * k, n, n) for k in range(6)])


CUBE = _Map("texture_cube", cubemap).rows(
    tuple(
        sized(
            lambda c, d, mode=mode: texture_cube(_six(c), d, mode),
            ((vtype, -1, 1), (VEC3, -2, 2)),
            (n, 6 * n),
            (9, 7),
        )
        for n, mode, vtype in ((4, "linear", VEC3), (1, "linear", FLOAT), (3, "nearest", VEC3))
    )
    + (
        sized(
            lambda c, d, i: texture_cube(concat([_six(c), _six(c * 0.5)]), d, index=i),
            ((VEC3, -1, 1), (VEC3, -2, 2), (INT, -1, 2)),
            (3, 18),
            (9, 7),
            (9, 7),
        ),
    ),
)

EQUIRECT = _Map("texture_equirect", equirect).rows(
    tuple(
        sized(
            lambda e, d, mode=mode: texture_equirect(take_layer(e, 0), d, mode),
            ((vtype, -1, 1), (VEC3, -2, 2)),
            size,
            (9, 7),
            transcendental=True,
        )
        for size, mode, vtype in (
            ((8, 5), "linear", VEC3),
            ((3, 1), "linear", FLOAT),
            ((6, 4), "nearest", VEC3),
        )
    ),
)


def _checked(
    name: str, image: Variable, direction: Variable, filter: str, layers: int, needed: str
) -> None:
    """Raises GraphError for what the map reads cannot take."""
    needs_variable(name, image)
    needs_variable(name, direction)
    if filter not in FILTERS:
        raise GraphError(f"F.{name}: filter must be one of {FILTERS}, got {filter!r}")
    if image.vtype.is_int or image.vtype.is_matrix or image.layers != layers:
        raise GraphError(
            f"F.{name}: the map must be FLOAT or VECn with layers={needed}, got {image.label()}"
        )
    if direction.vtype is not VEC3:
        raise GraphError(f"F.{name}: directions must be VEC3, got {direction.label()}")


def texture_cube(
    cube: Variable, direction: Variable, filter: Filter = "linear", index: Variable | None = None
) -> Variable:
    """Read a cube map along directions, without seams.

    cube: FLOAT or VECn @ (n, n), layers=6: the faces +X, -X, +Y, -Y, +Z, -Z, seen from the centre
    and turned as in Vulkan and glTF. direction: VEC3 @ any size, any layers (all read the one
    cube), of any length; one that is zero, infinite or no number reads as +Z. filter: linear (a tap
    beyond a face is the texel of the neighbouring face; where three faces meet, their three texels
    share its weight: continuous everywhere) or nearest. index: INT, the number of a cube at each
    pixel, where cube is a stack of k of them (layers=6 k, F.concat); clamped to 0..k-1. Gradient to
    cube: exact sum (atomic scatter-add). Gradient to direction: from the four taps, across the
    direction only (the length changes nothing); 0 for nearest and where it reads as +Z only for
    want of a direction. Raises GraphError for another shape, type or filter.
    """
    many = index is not None
    layers = max(6, cube.layers // 6 * 6) if many and isinstance(cube, Variable) else 6
    _checked("texture_cube", cube, direction, filter, layers, "6 k" if many else "6")
    if cube.size[0] != cube.size[1]:
        raise GraphError(f"F.texture_cube: faces are square, got {cube.label()}")
    places = [direction]
    if index is not None:
        if needs_variable("texture_cube", index).vtype is not INT:
            raise GraphError(f"F.texture_cube: index must be INT, got {index.label()}")
        places.append(index)
    image = cubemap.padded(cube)
    return apply(CUBE, (image, *places), filter=filter, size=image.size, layers=image.layers)


def texture_equirect(env: Variable, direction: Variable, filter: Filter = "linear") -> Variable:
    """Read an equirectangular map along directions, without a seam.

    env: FLOAT or VECn @ (w, h). Row 0 is +Y, up; the centre of the image looks down -Z, the right
    half holds +X: u = 0.5 + atan2(x, -z) / (2 pi), v = acos(y) / pi. direction: VEC3 @ any size,
    any layers, of any length; one that is zero, infinite or no number reads as +Z. filter: linear
    (around the seam; at a pole exactly the mean of the row beside it, and linear between the two:
    continuous everywhere) or nearest. Gradient to env: exact sum (atomic scatter-add). Gradient to
    direction: from the four taps, across the direction only, bounded around the poles; 0 at a pole
    itself, for nearest and where it reads as +Z only for want of a direction. Raises GraphError for
    another shape, type or filter.
    """
    _checked("texture_equirect", env, direction, filter, 1, "1")
    image = equirect.padded(env)
    return apply(EQUIRECT, (image, direction), filter=filter, size=image.size, layers=1)
