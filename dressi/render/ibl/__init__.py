"""Image-based lighting: maps over directions, irradiance, prefiltered levels, the split sum.

In: an environment, a Variable that may be optimized. Out: light for shading. Written with F ops;
everything that is linear in the environment has its exact transpose as backward.
"""

from dressi.render.ibl.brdf import brdf_integral, brdf_table, read_brdf
from dressi.render.ibl.environment import Environment, build_environment
from dressi.render.ibl.harmonics import sh_basis, sh_irradiance, sh_project
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
    "Environment",
    "brdf_integral",
    "brdf_table",
    "build_environment",
    "check_map",
    "cube_directions",
    "cube_solid_angles",
    "equirect_directions",
    "equirect_solid_angles",
    "read_brdf",
    "read_map",
    "sh_basis",
    "sh_irradiance",
    "sh_project",
    "solid_angles",
    "texel_directions",
    "to_cube",
    "to_equirect",
]
