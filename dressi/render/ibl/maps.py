"""Maps over directions: where their texels look, how much of the sphere each sees, conversions.

In: a cube map (VECn @ (n, n), layers=6) or an equirectangular map (VECn @ (w, h)); orientation as
``F.texture_cube`` and ``F.texture_equirect`` state it. Out: NumPy tables, and reads built with F.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.functions.cubemap import FACES
from dressi.ad.graph import Size, checked_shape
from dressi.ad.vtype import VEC3
from dressi.errors import GraphError
from dressi.kinds import Filter

Array = npt.NDArray[np.float64]


def check_map(env: object) -> Variable:
    """Return env, a cube map or an equirectangular map of FLOAT or VECn, as it is.

    Gradient to env. Raises GraphError when it is neither.
    """
    if not isinstance(env, Variable):
        raise GraphError(f"an environment must be a Variable, got {type(env).__name__}")
    cube = env.layers == 6 and env.size[0] == env.size[1]
    if env.vtype.is_int or env.vtype.is_matrix or not (cube or env.layers == 1):
        raise GraphError(
            "an environment is FLOAT or VECn, a cube map @ (n, n) with layers=6 or an "
            f"equirectangular map @ (w, h) with one layer, got {env.label()}"
        )
    return env


def cube_directions(n: int) -> Array:
    """Unit directions (6, n, n, 3) of the texel centres of a cube map with faces of n x n."""
    (n, _), _ = checked_shape("cube_directions", (n, n))
    c = (2 * np.arange(n) + 1) / n - 1
    s, t = np.meshgrid(c, c)
    local = np.stack([s, t, np.ones_like(s)], -1)
    d = np.einsum("hwi,fij->fhwj", local, FACES)
    return np.asarray(d / np.linalg.norm(d, axis=-1, keepdims=True))


def equirect_directions(size: Size) -> Array:
    """Unit directions (1, h, w, 3) of the texel centres of an equirectangular map @ (w, h)."""
    (w, h), _ = checked_shape("equirect_directions", size)
    longitude = ((np.arange(w) + 0.5) / w - 0.5) * 2 * math.pi
    polar = (np.arange(h) + 0.5)[:, None] / h * math.pi
    x, z = np.sin(polar) * np.sin(longitude), -np.sin(polar) * np.cos(longitude)
    return np.stack([x, np.broadcast_to(np.cos(polar), x.shape), z], -1)[None]


def cube_solid_angles(n: int) -> Array:
    """Solid angles (6, n, n) in steradians of the texels of a cube map; their sum is 4 pi.

    Exact: the solid angle of the rectangle from the middle of a face to (x, y) is
    atan(x y / sqrt(x^2 + y^2 + 1)).
    """
    (n, _), _ = checked_shape("cube_solid_angles", (n, n))
    c = 2 * np.arange(n + 1) / n - 1
    x, y = np.meshgrid(c, c)
    corner = np.arctan2(x * y, np.sqrt(x * x + y * y + 1))
    face = np.diff(np.diff(corner, axis=0), axis=1)
    return np.broadcast_to(face, (6, n, n)).copy()


def equirect_solid_angles(size: Size) -> Array:
    """Solid angles (1, h, w) in steradians of the texels of an equirectangular map; exact, their
    sum is 4 pi."""
    (w, h), _ = checked_shape("equirect_solid_angles", size)
    band = -np.diff(np.cos(np.arange(h + 1) / h * math.pi)) * 2 * math.pi / w
    return np.repeat(band[None, :, None], w, axis=2)


def texel_directions(env: Variable) -> Array:
    """Unit directions (layers, h, w, 3) of the texel centres of a map. Raises GraphError for what
    is no map."""
    cube = check_map(env).layers == 6
    return cube_directions(env.size[0]) if cube else equirect_directions(env.size)


def solid_angles(env: Variable) -> Array:
    """Solid angles (layers, h, w) of the texels of a map, steradians. Raises GraphError for what is
    no map."""
    cube = check_map(env).layers == 6
    return cube_solid_angles(env.size[0]) if cube else equirect_solid_angles(env.size)


def read_map(env: Variable, direction: Variable, filter: Filter = "linear") -> Variable:
    """Read either map along directions.

    env: FLOAT or VECn, cube (layers=6) or equirectangular. direction: VEC3 @ any size. filter:
    linear or nearest. Gradient to both; see F.texture_cube, F.texture_equirect. Raises GraphError.
    """
    read = F.texture_cube if check_map(env).layers == 6 else F.texture_equirect
    return read(env, direction, filter)


def to_cube(env: Variable, n: int, filter: Filter = "linear") -> Variable:
    """Either map (FLOAT or VECn) as a cube map @ (n, n), layers=6, one read at the centre of each
    texel.

    A map that is much finer than n should be made smaller first, or texels between the reads are
    lost. Gradient to env: exact. Raises GraphError.
    """
    return read_map(env, F.leaf(cube_directions(n), VEC3, "cube.directions"), filter)


def to_equirect(env: Variable, size: Size, filter: Filter = "linear") -> Variable:
    """Either map (FLOAT or VECn) as an equirectangular map @ size, one read per texel centre.

    See ``to_cube``. Gradient to env: exact. Raises GraphError.
    """
    return read_map(env, F.leaf(equirect_directions(size), VEC3, "equirect.directions"), filter)
