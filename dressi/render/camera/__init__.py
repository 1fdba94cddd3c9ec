"""Cameras as 4x4 matrices: making, converting, moving and distorting them.

camera (look_at, projections, rings), convert (OpenCV, OpenGL, Blender), pytorch3d, pose (matrices
from Variables), distortion (on the host) and lens (in the graph), eye (where a matrix is seen
from), far (places far from the origin).
"""

from dressi.render.camera.camera import (
    Camera,
    from_opencv,
    look_at,
    orthographic,
    perspective,
    project,
    ring,
)
from dressi.render.camera.convert import (
    Calibration,
    depth_range,
    from_blender,
    from_opengl,
    rigid,
    to_blender,
    to_opencv,
    to_opengl,
)
from dressi.render.camera.distortion import (
    NO_DISTORTION,
    Distortion,
    distort_image,
    distort_points,
    undistort_image,
    undistort_points,
)
from dressi.render.camera.eye import (
    directions_to_eye,
    eye_of,
    eye_position,
    homogeneous_eye,
    pixel_rays,
    ray_directions,
    to_eye,
)
from dressi.render.camera.far import far_origin, recentred, relative, translation
from dressi.render.camera.lens import Lens, build_lens_uv, through_lens
from dressi.render.camera.pose import (
    axis_angle_matrix,
    build_projection,
    build_view,
    quaternion_matrix,
    rotation_6d_matrix,
)
from dressi.render.camera.pytorch3d import (
    PyTorch3DCamera,
    from_pytorch3d,
    from_pytorch3d_fov,
    to_pytorch3d,
    to_pytorch3d_fov,
)

__all__ = [
    "NO_DISTORTION",
    "Calibration",
    "Camera",
    "Distortion",
    "Lens",
    "PyTorch3DCamera",
    "axis_angle_matrix",
    "build_lens_uv",
    "build_projection",
    "build_view",
    "depth_range",
    "directions_to_eye",
    "distort_image",
    "distort_points",
    "eye_of",
    "eye_position",
    "far_origin",
    "from_blender",
    "from_opencv",
    "from_opengl",
    "from_pytorch3d",
    "from_pytorch3d_fov",
    "homogeneous_eye",
    "look_at",
    "orthographic",
    "perspective",
    "pixel_rays",
    "project",
    "quaternion_matrix",
    "ray_directions",
    "recentred",
    "relative",
    "rigid",
    "ring",
    "rotation_6d_matrix",
    "through_lens",
    "to_blender",
    "to_eye",
    "to_opencv",
    "to_opengl",
    "to_pytorch3d",
    "to_pytorch3d_fov",
    "translation",
    "undistort_image",
    "undistort_points",
]
