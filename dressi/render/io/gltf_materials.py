"""Materials, textures, samplers and images of a glTF document.

In: the document and the buffers. Out: ``Material`` with ``TextureRef``, and the images that they
use: linear, RGB or RGBA (grey is spread, as samplers of viewers do). An image that one material
reads as a colour and another as data becomes two.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from dressi.errors import LoadError
from dressi.render.io.gltf_buffers import Buffers, resolve_uri
from dressi.render.io.gltf_compressed import BASIS, how_to_read, readable
from dressi.render.io.gltf_json import Json
from dressi.render.io.images import decode_images, with_colors
from dressi.render.io.ktx2 import is_ktx2
from dressi.render.scene import Image, Material, TextureRef
from dressi.render.scene.parts import COLOR_MAPS, ColorSpace, MagFilter, MinFilter, SceneWrap

_WRAP: dict[int, SceneWrap] = {33071: "clamp", 33648: "mirror", 10497: "repeat"}
_FILTERS: dict[int, MinFilter] = {
    9728: "nearest",
    9729: "linear",
    9984: "nearest_mipmap_nearest",
    9985: "linear_mipmap_nearest",
    9986: "nearest_mipmap_linear",
    9987: "linear_mipmap_linear",
}
_MAGNIFIERS: dict[int, MagFilter] = {9728: "nearest", 9729: "linear"}
WRAP_CODES: dict[str, int] = {name: code for code, name in _WRAP.items()}
FILTER_CODES: dict[str, int] = {name: code for code, name in _FILTERS.items()}

T = TypeVar("T")


def _stem(uri: str) -> str:
    """The name of an image's file; not of data, and not where our writer made the name up."""
    stem = "" if uri[:5].lower() == "data:" else Path(unquote(uri)).stem
    return "" if re.fullmatch(r".+\.[0-9a-f]{16}", stem) else stem


class Materials:
    """Reads the materials of one document; ``images`` decodes those that they use.

    notes: gets a line for each image whose file is not there.
    """

    def __init__(self, document: Json, buffers: Buffers, notes: list[str]) -> None:
        self.document = document
        self.buffers = buffers
        self.notes = notes
        self._wanted: list[tuple[Json, bytes, ColorSpace]] = []
        self._rows: dict[tuple[int, str], int | None] = {}
        self._images = document.objects("images")
        self._samplers = document.objects("samplers")
        self._textures = document.objects("textures")

    def _source(self, texture: Json) -> int:
        """The row of the images that a texture reads. WebP goes before what stands in for it, Basis
        behind it: that is the picture before it was compressed."""
        webp = texture.extension("EXT_texture_webp")
        if webp is not None and webp.has("source"):
            return webp.row("source", self._images, "images")
        basis = texture.extension(BASIS)
        if basis is not None and basis.has("source") and not texture.has("source"):
            return basis.row("source", self._images, "images")
        if not texture.has("source"):
            names = ", ".join(getattr(texture.get("extensions"), "value", {}))
            why = f"; it needs {names}, which is not supported" if names else ""
            raise texture.fail(f"has no source{why}")
        return texture.row("source", self._images, "images")

    def _bytes(self, source: Json) -> bytes | None:
        """The bytes of an image; None, with a note, where its file is not there."""
        if source.has("uri") == source.has("bufferView"):
            raise source.fail("needs a uri or a bufferView, one of them")
        if not source.has("uri"):
            return self.buffers.view(source)[1]
        try:
            return resolve_uri(source, self.buffers.folders)
        except LoadError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self.notes.append(f"{error}; materials are without it")
            return None

    def _image(self, texture: Json, color_space: ColorSpace) -> int | None:
        index = self._source(texture)
        key = (index, color_space)
        if (index, "missing") in self._rows:
            return None
        if key not in self._rows:
            source = self._images[index]
            data = self._bytes(source)
            if data is None:
                self._rows[index, "missing"] = None
                return None
            if is_ktx2(data) and not readable(BASIS):
                raise source.fail(f"is KTX2 ({BASIS}), which {how_to_read(BASIS)}")
            self._rows[key] = len(self._wanted)
            self._wanted.append((source, data, color_space))
        return self._rows[key]

    def images(self) -> list[Image]:
        """The images that materials read, each decoded once, on all cores. Raises LoadError for the
        first that cannot be."""
        files = [(data, space == "srgb") for _, data, space in self._wanted]
        out = []
        pairs = zip(
            self._wanted, decode_images(files, ("PNG", "JPEG", "WEBP", "KTX2")), strict=True
        )
        for (source, _, space), decoded in pairs:
            if isinstance(decoded, LoadError):
                raise source.fail(str(decoded)) from decoded
            name = source.text("name", _stem(source.value.get("uri", "data:")))
            pixels, depth = with_colors(decoded.pixels), decoded.bit_depth
            out.append(Image(pixels, space, name, depth, source.extras()))
        return out

    def _code(self, owner: Json | None, key: str, codes: dict[int, T], default: T) -> T:
        if owner is None or not owner.has(key):
            return default
        code = owner.integer(key)
        if code not in codes:
            raise owner.fail(f"{code} is none of {', '.join(map(str, codes))}", key)
        return codes[code]

    def _ref(self, info: Json, color_space: ColorSpace) -> TextureRef | None:
        texture = self._textures[info.row("index", self._textures, "textures")]
        row = texture.optional_row("sampler", self._samplers, "samplers")
        sampler = None if row is None else self._samplers[row]
        move = info.extension("KHR_texture_transform")
        uv_set = info.integer("texCoord", 0)
        found: dict[str, Any] = {}
        if move is not None:
            uv_set = move.integer("texCoord", uv_set)
            found["offset"] = move.numbers("offset", 2, (0.0, 0.0))
            found["scale"] = move.numbers("scale", 2, (1.0, 1.0))
            found["rotation_rad"] = move.number("rotation", 0.0)
        image = self._image(texture, color_space)
        if image is None:
            return None
        return TextureRef(
            image,
            uv_set,
            self._code(sampler, "wrapS", _WRAP, "repeat"),
            self._code(sampler, "wrapT", _WRAP, "repeat"),
            self._code(sampler, "magFilter", _MAGNIFIERS, "linear"),
            self._code(sampler, "minFilter", _FILTERS, "linear_mipmap_linear"),
            **found,
        )

    def _factors(self, material: Json, name: str) -> Json:
        """An extension whose numbers are read; maps in it are left out with a note."""
        found = material.extension(name) or Json(material.file, {}, material.where)
        maps = [key for key in found.value if key.endswith("Texture")]
        if maps:
            self.notes.append(f"{found.where}: {', '.join(maps)} left out; the factors are read")
        return found

    def read(self, material: Json) -> Material:
        """One material; a map whose image is not there is left out, and emission with it.

        Raises LoadError for anything of a wrong type or out of range.
        """
        surface = material.get("pbrMetallicRoughness") or Json(material.file, {}, material.where)
        maps: dict[str, TextureRef | None] = {}
        infos: dict[str, Json | None] = {}
        for field, owner, key in (
            ("base_color_map", surface, "baseColorTexture"),
            ("metallic_roughness_map", surface, "metallicRoughnessTexture"),
            ("normal_map", material, "normalTexture"),
            ("occlusion_map", material, "occlusionTexture"),
            ("emissive_map", material, "emissiveTexture"),
        ):
            info = infos[field] = owner.get(key)
            space: ColorSpace = "srgb" if field in COLOR_MAPS else "linear"
            maps[field] = None if info is None else self._ref(info, space)
        normal, occlusion = infos["normal_map"], infos["occlusion_map"]
        strength = material.extension("KHR_materials_emissive_strength")
        base: Any = surface.numbers("baseColorFactor", 4, (1.0, 1.0, 1.0, 1.0))
        emissive: Any = material.numbers("emissiveFactor", 3, (0.0, 0.0, 0.0))
        if infos["emissive_map"] is not None and maps["emissive_map"] is None:
            emissive = (0.0, 0.0, 0.0)  # its factor alone would shine all over
        alpha_mode: Any = material.text("alphaMode", "OPAQUE")
        coat = self._factors(material, "KHR_materials_clearcoat")
        clear = self._factors(material, "KHR_materials_transmission")
        return Material(
            base_color=base,
            metallic=surface.number("metallicFactor", 1.0),
            roughness=surface.number("roughnessFactor", 1.0),
            normal_scale=1.0 if normal is None else normal.number("scale", 1.0),
            occlusion_strength=1.0 if occlusion is None else occlusion.number("strength", 1.0),
            emissive=emissive,
            emissive_strength=1.0 if strength is None else strength.number("emissiveStrength", 1.0),
            alpha_mode=alpha_mode,
            alpha_cutoff=material.number("alphaCutoff", 0.5),
            double_sided=material.flag("doubleSided"),
            unlit=material.extension("KHR_materials_unlit") is not None,
            name=material.text("name", ""),
            extras=material.extras(),
            clearcoat=coat.number("clearcoatFactor", 0.0),
            clearcoat_roughness=coat.number("clearcoatRoughnessFactor", 0.0),
            transmission=clear.number("transmissionFactor", 0.0),
            **maps,
        )
