"""The words that arguments of public functions take, as Literals: one place for each of them.

An editor completes them and a type checker finds a typo; at run time the function that is called
checks them against the tuple of the same words. Those of scenes are in ``dressi.render.scene``.
"""

from typing import Literal, get_args

Filter = Literal["linear", "nearest"]
"""How a texture is read between texels, and how an image is resized."""
FILTERS: tuple[Filter, ...] = get_args(Filter)

MipFilter = Literal[
    "trilinear", "linear-mipmap-nearest", "nearest-mipmap-linear", "nearest-mipmap-nearest"
]
"""How a mip chain is read between texels and between levels."""

Wrap = Literal["repeat", "clamp", "mirror", "border"]
"""Which texel stands for one outside of a texture; ``border``: a given value."""
WRAPS: tuple[Wrap, ...] = get_args(Wrap)

Wraps = tuple[Wrap, Wrap]
"""Wraps along u and v."""

Border = Literal["zero", "clamp", "mirror", "repeat"]
"""Which pixel stands for one outside of an image, for ops that read neighbours."""
BORDERS: tuple[Border, ...] = get_args(Border)

ConvBorder = Literal["zero", "repeat"]
"""Which pixel stands for one outside of the input of a convolution layer."""
CONV_BORDERS: tuple[ConvBorder, ...] = get_args(ConvBorder)

TextureBackward = Literal["exact", "inverse_uv"]
"""How the gradient of a texture read reaches the texels."""
BACKWARDS: tuple[TextureBackward, ...] = get_args(TextureBackward)

Scatter = Literal["exact", "deterministic", "stochastic"]
"""How the gradient of a dynamic lookup is added up."""
SCATTERS: tuple[Scatter, ...] = get_args(Scatter)

Footprint = Literal["mean", "axes", "ellipse"]
"""What of a pixel's footprint in a texture decides the level of detail."""
FOOTPRINTS: tuple[Footprint, ...] = get_args(Footprint)

ImageGradient = Literal["central", "sobel"]
"""Differences that stand for a derivative of an image."""
IMAGE_GRADIENTS: tuple[ImageGradient, ...] = get_args(ImageGradient)

Comparison = Literal["lt", "lte", "gt", "gte", "eq", "ne"]
"""Comparisons of two values."""

Cull = Literal["back", "front"]
"""Orientation of triangles that are not drawn."""
CULLS: tuple[Cull, ...] = get_args(Cull)

Access = Literal["same", "any"]
"""Where a custom op reads an input: at its own pixel, or at others too."""
ACCESSES: tuple[Access, ...] = get_args(Access)

Lowering = Literal["auto", "graphics", "compute"]
"""What runs pixels that are not rasterized."""
LOWERINGS: tuple[Lowering, ...] = get_args(Lowering)

Peeling = Literal["auto", "depth", "kbuffer"]
"""How the layers of a rasterization are found where compute shaders rasterize."""
PEELINGS: tuple[Peeling, ...] = get_args(Peeling)

Reduction = Literal["mean", "sum"]
"""How a loss over views is put together from the losses of the views."""
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)

Mode = Literal["hardsoftras", "antialias"]
"""Which rasterizer a renderer draws with."""
MODES: tuple[Mode, ...] = get_args(Mode)

Loss = Literal["l1", "l2", "huber", "silhouette", "silhouette_l1"]
"""Losses of a renderer: three of colours, two of coverage."""

Regularizer = Literal["laplacian", "normal_consistency", "edge_length", "tv"]
"""Regularizers of a renderer: three of vertices, one of maps."""
REGULARIZERS: tuple[Regularizer, ...] = get_args(Regularizer)

OptimizerName = Literal["adam", "adam_uniform", "sgd"]
"""Optimizers that a renderer knows by name."""

Curve = Literal["none", "clamp", "reinhard", "aces"]
"""Tone curves."""
CURVES: tuple[Curve, ...] = get_args(Curve)

Encoding = Literal["none", "srgb", "gamma"]
"""Encodings of a finished picture."""
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)

Normals = Literal["auto", "file", "computed"]
"""Which normals a renderer shades with."""
NORMALS: tuple[Normals, ...] = get_args(Normals)

Irradiance = Literal["map", "sh"]
"""How the diffuse light of an environment is stored."""
IRRADIANCE: tuple[Irradiance, ...] = get_args(Irradiance)

Unit = Literal["px", "world"]
"""Unit of the radius of points and lines."""
UNITS: tuple[Unit, ...] = get_args(Unit)

Rims = Literal["all", "contour", "front"]
"""Which faces get a soft rim."""
RIMS: tuple[Rims, ...] = get_args(Rims)

Smith = Literal["correlated", "separable"]
"""Forms of Smith's masking and shadowing term."""
SMITHS: tuple[Smith, ...] = get_args(Smith)
