"""Image-based lighting: maps over directions, irradiance, prefiltered levels, the split sum.

In: an environment, a Variable that may be optimized. Out: light for shading. Written with F ops;
everything that is linear in the environment has its exact transpose as backward.
"""

from dressi.render.ibl.maps import (
    check_map,
    cube_directions,
    cube_solid_angles,
    equirect_directions,
    equirect_solid_angles,
    read_map,
    solid_angles,
    texel_directions,
    to_cube,
    to_equirect,
)

__all__ = [
    "check_map",
    "cube_directions",
    "cube_solid_angles",
    "equirect_directions",
    "equirect_solid_angles",
    "read_map",
    "solid_angles",
    "texel_directions",
    "to_cube",
    "to_equirect",
]
