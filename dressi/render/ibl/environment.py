"""Image-based lighting by split sum: an environment that shading reads.

In: a map over directions, a Variable that may be optimized. Out: ``Environment``: irradiance,
prefiltered radiance and the BRDF table, all read along directions. Everything from the map to the
filtered stack is linear (``operators``), so a step spends its time on three products with sparse
matrices, and their transposes backward.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import INT, VEC3
from dressi.errors import GraphError
from dressi.kinds import IRRADIANCE, Irradiance
from dressi.render.ibl import operators
from dressi.render.ibl.brdf import brdf_table, read_brdf
from dressi.render.ibl.harmonics import sh_irradiance, sh_project
from dressi.render.ibl.maps import check_map, read_map
from dressi.render.shading.values import inclusive_clamp

LEVELS = 5
SIDE = 16
"""Of the cube that is filtered, unless the environment is coarser: 1536 texels."""


@dataclass(frozen=True)
class Environment:
    """Light from all around. Directions are in the world, from the surface outwards; VEC3 linear.

    env: VEC3, the map itself: background and roughness 0. filtered: VEC3 @ (n, n), a stack of cubes
    (layers=6 (2 n_levels + 1)): irradiance divided by pi, the lobes of roughness k / n_levels for k
    = 1..n_levels, then for the same k their derivatives with respect to the roughness, divided by
    n_levels. coefficients: of ``sh_project``, or None where irradiance is read from the
    stack. table: of ``brdf_table``. Make one with ``build_environment``.
    """

    env: Variable
    filtered: Variable
    coefficients: Variable | None
    table: Variable
    n_levels: int

    def diffuse(self, normal: Variable) -> Variable:
        """VEC3 irradiance of a surface divided by pi, so that Lambert is albedo * diffuse.

        normal: VEC3 @ any size; of unit length where irradiance is "sh". Radiance 1 all around
        gives 1. Gradient to env and normal.
        """
        if self.coefficients is not None:
            return sh_irradiance(self.coefficients, normal)
        return F.texture_cube(self.filtered, normal, index=F.constant(0, INT))

    def specular(self, reflection: Variable, roughness: Variable | float) -> Variable:
        """VEC3 radiance around ``reflection``, weighted with the GGX lobe of the roughness for
        n = v = r (alpha = roughness^2). Radiance 1 all around gives 1.

        reflection: VEC3 @ any size. roughness: FLOAT @ any size, clamped to [0, 1]; between two
        levels the polynomial with their values and slopes, so that the gradient to the roughness is
        that of the lobe. Gradient to env, reflection and roughness (0 at roughness 0, where the
        lobe begins with its fourth power).
        """
        level = inclusive_clamp(roughness, 0.0, 1.0) * float(self.n_levels)
        lower = F.minimum(F.floor(level), float(self.n_levels - 1))
        value_a, slope_a, value_b, slope_b = _hermite_weights(level - lower, lower < 0.5)
        below = F.to_int(lower)

        def read(index: Variable) -> Variable:
            return F.texture_cube(self.filtered, reflection, index=index)

        sharp = read_map(self.env, reflection)
        if self.n_levels == 1:
            before = sharp * value_a
        else:
            before = F.where(
                lower < 0.5,
                sharp * value_a,
                read(below) * value_a + read(below + self.n_levels) * slope_a,
            )
        return before + read(below + 1) * value_b + read(below + (self.n_levels + 1)) * slope_b

    def brdf(self, n_dot_v: Variable, roughness: Variable | float) -> Variable:
        """VEC2 (scale, bias): the share of light reflected is F0 * scale + bias.

        n_dot_v, roughness: FLOAT in [0, 1] @ any size. Gradient to both.
        """
        return read_brdf(self.table, n_dot_v, roughness)

    def background(self, direction: Variable) -> Variable:
        """VEC3 radiance of the map along directions. Gradient to env and direction."""
        return read_map(self.env, direction)


def _hermite_weights(
    t: Variable, is_first: Variable
) -> tuple[Variable, Variable, Variable, Variable]:
    """FLOAT weights of value and slope at 0, value and slope at 1, for t in [0, 1].

    The cubic of Hermite. is_first: the interval that begins with the map itself, of slope 0 there:
    a lobe widens with alpha squared, so what changes begins with t^4 in the place of t^2.
    """
    power = F.where(is_first, t * t * t * t, t * t)
    value_b = power * (F.where(is_first, 5.0, 3.0) - F.where(is_first, 4.0, 2.0) * t)
    slope_b = power * (t - 1.0)
    rest = 1.0 - t
    return 1.0 - value_b, t * rest * rest, value_b, slope_b


def default_side(env: Variable) -> int:
    """Side of the cube that is filtered: the largest power of two that is no finer than env, at
    most 16."""
    native = env.size[0] if env.layers == 6 else max(env.size[1] // 2, 1)
    return int(min(1 << (native.bit_length() - 1), SIDE))


def build_environment(
    env: Variable,
    n_levels: int = LEVELS,
    side: int | None = None,
    irradiance: Irradiance = "map",
) -> Environment:
    """Lighting from a map.

    env: VEC3, cube (n, n) with layers=6 or equirectangular (w, h), linear radiance; a leaf with
    ``requires_grad`` is optimized through the lighting. n_levels: prefiltered levels above
    roughness 0, at roughness k / n_levels, 1 to 10. side: texels per side of the cube that is
    filtered, default that of env but at most 16; 32 shows details half as wide in the levels for
    twice the time. The matrices are made once per process for a side. irradiance: ``map`` (exact
    quadrature, kept as a cube) or ``sh`` (nine spherical harmonics). Gradient to env: exact
    transposes throughout. Raises GraphError for another shape, type or number.
    """
    where = "build_environment"
    if check_map(env).vtype is not VEC3:
        raise GraphError(f"{where}: an environment for lighting is VEC3, got {env.label()}")
    limits = {"n_levels": (n_levels, 10), "side": (default_side(env) if side is None else side, 64)}
    for name, (value, most) in limits.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise GraphError(f"{where}: {name} must be an int from 1 to {most}, got {value!r}")
    if irradiance not in IRRADIANCE:
        raise GraphError(f"{where}: irradiance must be one of {IRRADIANCE}, got {irradiance!r}")
    n = limits["side"][0]
    lobes = (None, *((k + 1) / n_levels for k in range(n_levels)))
    sides = tuple(operators.level_side(n, lobe) for lobe in lobes)
    cube = env
    if env.size != (n, n) or env.layers != 6:
        cube = F.linalg.linear_map(
            operators.resample_matrix(env.size, env.layers, n), env, (n, n), 6
        )
    pyramid = operators.pyramid_matrix(n)
    width = operators.WIDTH
    texels = F.linalg.linear_map(pyramid, cube, (width, pyramid.n_rows // width))
    matrix = operators.lobes_matrix(n, sides, lobes, 1.0 / n_levels)
    table = F.linalg.linear_map(matrix, texels, (width, matrix.n_rows // width))
    sides = (*sides, *sides[1:])  # the derivatives have the sides of their lobes
    filtered = F.linalg.linear_map(
        operators.enlarge_matrix(sides, n), table, (n, n), 6 * len(sides)
    )
    coefficients = sh_project(env) if irradiance == "sh" else None
    return Environment(env, filtered, coefficients, brdf_table(), n_levels)
