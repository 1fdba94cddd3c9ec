"""Types of graph values. In: nothing. Out: ``VType`` (components, planes, formats, GLSL name).

Paper: ``VType`` in A.4. A VEC3 travels in a four-channel image (RGB32F is no colour attachment on
real GPUs); a MATn is n column planes, each an image of VECn, so a matrix can cross a substage
border as attachments too. Integers stay in integer images: ids in float images break above 2^24.
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property


class VType(Enum):
    """Type of every pixel of a Variable."""

    FLOAT = "float"
    VEC2 = "vec2"
    VEC3 = "vec3"
    VEC4 = "vec4"
    MAT2 = "mat2"
    MAT3 = "mat3"
    MAT4 = "mat4"
    INT = "int"
    IVEC2 = "ivec2"
    IVEC3 = "ivec3"
    IVEC4 = "ivec4"

    @cached_property
    def glsl(self) -> str:
        """Name in GLSL."""
        return self.value

    @cached_property
    def is_int(self) -> bool:
        """Whether components are 32-bit integers."""
        return self.value.startswith("i")

    @cached_property
    def is_matrix(self) -> bool:
        """Whether it is a square matrix."""
        return self.value.startswith("mat")

    @cached_property
    def n(self) -> int:
        """Components of a scalar or vector; rows (= columns) of a matrix."""
        return 1 if self in (VType.FLOAT, VType.INT) else int(self.value[-1])

    @cached_property
    def n_planes(self) -> int:
        """Images that hold one value: n columns for a matrix, else 1."""
        return self.n if self.is_matrix else 1

    @cached_property
    def n_words(self) -> int:
        """32-bit words of one value without padding."""
        return self.n * self.n if self.is_matrix else self.n

    @cached_property
    def plane(self) -> VType:
        """Type of one plane: the column of a matrix, else the type itself."""
        return vector(self.n) if self.is_matrix else self

    @cached_property
    def format(self) -> str:
        """Image format of one plane."""
        channels = {1: "R32", 2: "RG32", 3: "RGBA32", 4: "RGBA32"}[self.n]
        return channels + ("I" if self.is_int else "F")

    @cached_property
    def channels(self) -> int:
        """Channels of one plane's image (VEC3 is padded to 4)."""
        return 4 if self.n == 3 else self.n

    @cached_property
    def tail(self) -> tuple[int, ...]:
        """Trailing shape of arrays: (n,) or (n, n)."""
        return (self.n, self.n) if self.is_matrix else (self.n,)


def vector(n: int, integer: bool = False) -> VType:
    """The scalar (n = 1) or vector type with n components."""
    if integer:
        return (VType.INT, VType.IVEC2, VType.IVEC3, VType.IVEC4)[n - 1]
    return (VType.FLOAT, VType.VEC2, VType.VEC3, VType.VEC4)[n - 1]


def matrix(n: int) -> VType:
    """The n x n matrix type, n in 2..4."""
    return (VType.MAT2, VType.MAT3, VType.MAT4)[n - 2]


FLOAT, VEC2, VEC3, VEC4 = VType.FLOAT, VType.VEC2, VType.VEC3, VType.VEC4
MAT2, MAT3, MAT4 = VType.MAT2, VType.MAT3, VType.MAT4
INT, IVEC2, IVEC3, IVEC4 = VType.INT, VType.IVEC2, VType.IVEC3, VType.IVEC4
