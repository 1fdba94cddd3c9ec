"""Scenes and meshes as plain NumPy data, with glTF's meaning.

scene and its parts (dataclasses), mesh (triangle meshes, their tables and normals), convert (a mesh
to a scene and back), flat (what is drawn, in world space), checks (what a scene must satisfy),
compare, strands (hair) and how they grow, welding (which vertices are one place), problems (holes,
folds, crossings and the genus of a surface; intersections and predicates find what crosses,
exactly), pear (a procedural textured mesh).
"""

from dressi.render.scene.checks import (
    check_camera,
    check_image,
    check_light,
    check_material,
    check_primitive,
    check_scene,
)
from dressi.render.scene.compare import differences
from dressi.render.scene.convert import joined, mesh_of, primitive_of, scene_of, welded
from dressi.render.scene.flat import (
    Instance,
    PlacedLight,
    camera_at,
    cameras,
    instances,
    lights,
    own_aspect,
    world_matrices,
)
from dressi.render.scene.grow import Growth, grow_strands, scatter_roots
from dressi.render.scene.intersections import intersecting_faces
from dressi.render.scene.mesh import (
    Mesh,
    area_normals,
    bounding_box,
    cube_atlas,
    face_normals,
    flipped_faces,
    icosphere,
    subdivide,
    surface_area,
    uniform_laplacian,
    vertex_neighbors,
    vertex_normals,
)
from dressi.render.scene.parts import (
    Image,
    Material,
    MorphTarget,
    Node,
    Primitive,
    PunctualLight,
    SceneCamera,
    SceneMesh,
    TextureRef,
    trs_matrix,
)
from dressi.render.scene.pear import make_pear
from dressi.render.scene.problems import SurfaceProblems, surface_genus, surface_problems
from dressi.render.scene.scene import Scene
from dressi.render.scene.strands import Strands
from dressi.render.scene.welding import first_alike, tolerance_of, weld

__all__ = [
    "Growth",
    "Image",
    "Instance",
    "Material",
    "Mesh",
    "MorphTarget",
    "Node",
    "PlacedLight",
    "Primitive",
    "PunctualLight",
    "Scene",
    "SceneCamera",
    "SceneMesh",
    "Strands",
    "SurfaceProblems",
    "TextureRef",
    "area_normals",
    "bounding_box",
    "camera_at",
    "cameras",
    "check_camera",
    "check_image",
    "check_light",
    "check_material",
    "check_primitive",
    "check_scene",
    "cube_atlas",
    "differences",
    "face_normals",
    "first_alike",
    "flipped_faces",
    "icosphere",
    "grow_strands",
    "instances",
    "intersecting_faces",
    "joined",
    "lights",
    "make_pear",
    "mesh_of",
    "own_aspect",
    "primitive_of",
    "scatter_roots",
    "scene_of",
    "subdivide",
    "surface_area",
    "surface_genus",
    "surface_problems",
    "tolerance_of",
    "trs_matrix",
    "uniform_laplacian",
    "vertex_neighbors",
    "vertex_normals",
    "weld",
    "welded",
    "world_matrices",
]
