"""A lens in the graph: bend a rendered picture as the lens bent the photo.

In: a picture of an ideal camera, intrinsics, coefficients (the model of ``dressi.render
.distortion``). Out: the picture through the lens, differentiable to the picture, the intrinsics and
the coefficients. Written with F ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.errors import GraphError

Number = Variable | float

STEPS = 8
"""Newton steps of the inverse: from the distorted point they double the digits each, and lenses
that bend a corner by a quarter of its radius need 5 for float32."""


@dataclass(frozen=True)
class Lens:
    """Intrinsics and coefficients: FLOAT @ 1x1 (layers = views) or numbers.

    fx, fy, cx, cy, skew: pixels, cx and cy from the top left corner of the picture (OpenCV's plus
    0.5). coefficients: up to eight in OpenCV's order, k1, k2, p1, p2, k3, k4, k5, k6. Raises
    GraphError for more, and for Variables of other types.
    """

    fx: Number
    fy: Number
    cx: Number
    cy: Number
    skew: Number = 0.0
    coefficients: Sequence[Number] = ()

    def __post_init__(self) -> None:
        if len(self.coefficients) > 8:
            raise GraphError(
                "Lens: at most 8 coefficients (k1 k2 p1 p2 k3 k4 k5 k6), "
                f"got {len(self.coefficients)}"
            )
        for value in (self.fx, self.fy, self.cx, self.cy, self.skew, *self.coefficients):
            if isinstance(value, Variable) and (value.vtype, value.size) != (FLOAT, (1, 1)):
                raise GraphError(
                    f"Lens: parameters must be numbers or FLOAT @ 1x1, got {value.label()}"
                )

    def to_plane(self, pixels: Variable) -> Variable:
        """VEC2 on the plane z = 1 of VEC2 pixels. Gradient to pixels and intrinsics."""
        y = (pixels.y - self.cy) / self.fy
        return F.vec2((pixels.x - self.cx - y * self.skew) / self.fx, y)

    def to_pixels(self, xy: Variable) -> Variable:
        """VEC2 pixels of VEC2 on the plane z = 1. Gradient to xy and intrinsics."""
        return F.vec2(xy.x * self.fx + xy.y * self.skew + self.cx, xy.y * self.fy + self.cy)

    def distort(self, xy: Variable) -> Variable:
        """VEC2 on the plane z = 1 through the lens. Gradient to xy and the coefficients."""
        return self._model(xy)[0]

    def _model(self, xy: Variable) -> tuple[Variable, tuple[Variable, Variable, Variable]]:
        """The distorted point, and the entries xx, xy = yx, yy of the Jacobian."""
        given = [*self.coefficients, *([0.0] * (8 - len(self.coefficients)))]
        k1, k2, p1, p2, k3, k4, k5, k6 = given
        x, y = xy.x, xy.y
        s = F.dot(xy, xy)
        top = ((s * k3 + k2) * s + k1) * s + 1.0
        d_top = (s * (k3 * 3.0) + k2 * 2.0) * s + k1
        inverse_bottom = 1.0 / (((s * k6 + k5) * s + k4) * s + 1.0)
        g = top * inverse_bottom
        d_bottom = (s * (k6 * 3.0) + k5 * 2.0) * s + k4
        dg = (d_top - g * d_bottom) * inverse_bottom * 2.0
        out = F.vec2(
            x * g + x * y * (p1 * 2.0) + (s + x * x * 2.0) * p2,
            y * g + (s + y * y * 2.0) * p1 + x * y * (p2 * 2.0),
        )
        return out, (
            g + x * x * dg + y * (p1 * 2.0) + x * (p2 * 6.0),
            x * y * dg + x * (p1 * 2.0) + y * (p2 * 2.0),
            g + y * y * dg + y * (p1 * 6.0) + x * (p2 * 2.0),
        )

    def undistort(self, xy: Variable, steps: int = STEPS) -> Variable:
        """VEC2 on the plane z = 1 without the lens: the inverse of ``distort`` by Newton's method.

        steps: at least 1. Only the last step is differentiated: at the solution it has the gradient
        of the implicit function, -J^-1 (d distort), whatever the steps before did. Points that the
        lens cannot show (``Distortion.max_radius``) have no answer; theirs stays finite. Gradient
        to xy and the coefficients.
        """
        if steps < 1:
            raise GraphError(f"Lens.undistort: steps must be >= 1, got {steps}")
        found = F.stop_gradient(xy)
        for _ in range(steps - 1):
            found = F.stop_gradient(self._newton(found, xy))
        return self._newton(found, xy)

    def _newton(self, at: Variable, target: Variable) -> Variable:
        value, jacobian = self._model(at)
        xx, xy, yy = (F.stop_gradient(j) for j in jacobian)
        miss = value - target
        det = xx * yy - xy * xy
        # Beyond the fold of the model steps would grow without end; within it det is about 1.
        scale = F.where(det > 0.05, F.safe_div(1.0, det), 0.0)
        return at - F.vec2(yy * miss.x - xy * miss.y, xx * miss.y - xy * miss.x) * scale


def build_lens_uv(
    lens: Lens,
    size: tuple[int, int],
    ideal: Lens | None = None,
    ideal_size: tuple[int, int] | None = None,
    layers: int = 1,
    steps: int = STEPS,
) -> Variable:
    """VEC2 uv @ size: where an ideal picture shows what the lens shows at each pixel.

    lens: of the photo. size: (width, height) of the photo. ideal: intrinsics of the ideal picture
    (its coefficients are not looked at), default the lens's; ideal_size: its size, default the
    photo's. layers: views. Gradient to all parameters. Raises GraphError.
    """
    other = lens if ideal is None else ideal
    width, height = size if ideal_size is None else ideal_size
    pixels = F.pixel_coord(size, layers)
    xy = lens.undistort(lens.to_plane(pixels), steps)
    return other.to_pixels(xy) * (1.0 / width, 1.0 / height)


def through_lens(
    picture: Variable, lens: Lens, size: tuple[int, int] | None = None, ideal: Lens | None = None
) -> Variable:
    """A rendered picture as the lens would show it, for comparison with a photo.

    picture: FLOAT or VECn @ (width, height), layers = views, of an ideal camera. lens: of the
    photo. size: of the photo, default the picture's. ideal: intrinsics of the picture, default the
    lens's. A lens with barrel distortion shows more than an ideal camera of its K: render a larger
    picture (more pixels on every side, cx and cy shifted by as many) and give its intrinsics as
    ``ideal``, or the border is repeated. Bilinear (F.texture, exact). Gradient to the picture, the
    intrinsics and the coefficients. Raises GraphError.
    """
    out = picture.size if size is None else size
    uv = build_lens_uv(lens, out, ideal, picture.size, picture.layers)
    return F.texture(picture, uv, wrap="clamp")
