"""Images: every Pillow mode and 16-bit PNG come out linear; writing is atomic."""

from __future__ import annotations

import io
import os
import stat
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dressi.errors import DressiWarning, GraphError, LoadError
from dressi.render.io import (
    atomic_write,
    contact_sheet,
    linear_to_srgb,
    load_mesh,
    read_image,
    save_mesh,
    srgb_to_linear,
    write_image,
    write_png,
)
from dressi.render.scene import Image as SceneImage
from dressi.render.scene import icosphere, scene_of

RNG = np.random.default_rng(7)
RGB = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
HALF = 0.21404114  # sRGB 0.5 in linear light


def png_16(pixels, filters):
    """A 16-bit PNG of (H, W, C) uint16; row y uses filter ``filters[y % n]``."""
    height, width, channels = pixels.shape
    step = 2 * channels
    rows = pixels.astype(">u2").view(np.uint8).reshape(height, width * step).astype(int)
    packed, above = b"", np.zeros(width * step, int)
    for y, row in enumerate(rows):
        kind = filters[y % len(filters)]
        left = np.concatenate([np.zeros(step, int), row[:-step]])
        corner = np.concatenate([np.zeros(step, int), above[:-step]])
        guess = left + above - corner
        near = np.stack([abs(guess - left), abs(guess - above), abs(guess - corner)])
        paeth = np.choose(near.argmin(axis=0), [left, above, corner])
        base = [0 * left, left, above, (left + above) // 2, paeth][kind]
        packed += bytes([kind]) + ((row - base) & 255).astype(np.uint8).tobytes()
        above = row

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    color_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    body = zlib.compress(packed)
    parts = chunk(b"IDAT", body[:9]) + chunk(b"IDAT", body[9:])  # split, as large files are
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + parts + chunk(b"IEND", b"")


def test_srgb_curves_are_inverse_and_known():
    x = np.linspace(0, 1, 1001)
    assert np.allclose(srgb_to_linear(linear_to_srgb(x)), x, atol=1e-6)
    assert srgb_to_linear(0.5) == pytest.approx(HALF, abs=1e-6)
    assert srgb_to_linear(0.04) == pytest.approx(0.04 / 12.92)
    assert linear_to_srgb([0.0, 1.0]).tolist() == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "1", "CMYK"])
def test_eight_bit_modes_come_out_linear(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    gray = np.full((4, 6), 128, np.uint8)
    alpha = np.full((4, 6), 64, np.uint8)
    image = {
        "L": lambda: Image.fromarray(gray),
        "LA": lambda: Image.fromarray(np.stack([gray, alpha], -1)),
        "RGB": lambda: Image.fromarray(np.stack([gray] * 3, -1)),
        "RGBA": lambda: Image.fromarray(np.stack([gray] * 3 + [alpha], -1)),
        "P": lambda: Image.fromarray(np.stack([gray] * 3, -1)).quantize(4),
        "1": lambda: Image.fromarray(gray).point(lambda v: 255).convert("1"),
        "CMYK": lambda: Image.fromarray(np.stack([gray] * 3, -1)).convert("CMYK"),
    }[mode]()
    image.save(path)
    got = read_image(path)
    n_channels = {"L": 1, "1": 1, "LA": 2, "RGBA": 4}.get(mode, 3)
    assert got.shape == (4, 6, n_channels) and got.dtype == np.float32
    want = 1.0 if mode == "1" else float(srgb_to_linear(128 / 255))
    assert np.allclose(got[..., 0], want, atol=5e-3 if mode == "CMYK" else 1e-6)
    if n_channels % 2 == 0:
        assert np.allclose(got[..., -1], 64 / 255)  # alpha is not decoded
    raw = read_image(path, srgb=False)
    assert np.allclose(raw[..., 0], 1.0 if mode == "1" else 128 / 255, atol=5e-3)


def test_palette_with_transparency_becomes_rgba(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), mode=None).convert("P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(tmp_path / "p.png", transparency=1)
    got = read_image(tmp_path / "p.png")
    assert got[0].tolist() == [[1, 0, 0, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("filters", [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)])
def test_sixteen_bit_png_keeps_all_its_bits(tmp_path, channels, filters):
    pixels = RNG.integers(0, 65536, (9, 6, channels), dtype=np.uint16)
    (tmp_path / "a.png").write_bytes(png_16(pixels, filters))
    got = read_image(tmp_path / "a.png", srgb=False)
    assert np.array_equal(np.rint(got * 65535.0).astype(int), pixels)
    with Image.open(tmp_path / "a.png") as image:  # an independent decoder, high bytes only
        high = np.asarray(image) >> (8 if channels == 1 else 0)
    assert np.array_equal(
        high.reshape(pixels.shape[0], pixels.shape[1], -1)[..., 0], pixels[..., 0] >> 8
    )


def test_sixteen_bit_tiff_is_not_saturated(tmp_path):
    pixels = np.array([[0, 300, 40000, 65535]], dtype=np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    got = read_image(tmp_path / "a.tif", srgb=False)
    assert np.allclose(got[0, :, 0], pixels[0] / 65535.0, atol=1e-6)


def broken_files():
    stream = io.BytesIO()
    Image.fromarray(RGB).save(stream, format="PNG")
    eight, deep = stream.getvalue(), png_16(RGB.astype(np.uint16) * 257, (4,))
    flipped = bytearray(deep)
    flipped[45] ^= 1
    interlaced = bytearray(deep)
    interlaced[28] = 1
    return {
        "empty": b"",
        "text": b"not an image",
        "cut8": eight[: len(eight) // 2],
        "cut16": deep[:-30],
        "head16": deep[:40],
        "checksum16": bytes(flipped),
        "interlaced16": bytes(interlaced),
    }


@pytest.mark.parametrize("kind", list(broken_files()))
def test_broken_images_raise_load_error_naming_the_file(tmp_path, kind):
    path = tmp_path / f"{kind}.png"
    path.write_bytes(broken_files()[kind])
    with pytest.raises(LoadError, match=rf"{kind}\.png") as caught:
        read_image(path)
    assert caught.value.file == str(path) and caught.value.where == "image data"


def test_missing_image_raises_load_error(tmp_path):
    with pytest.raises(LoadError, match=r"nothing\.png: cannot be read"):
        read_image(tmp_path / "nothing.png")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_written_png_reads_back_to_half_a_step(tmp_path, channels):
    image = RNG.uniform(size=(6, 5, channels)).astype(np.float32)
    for srgb in (True, False):
        write_png(tmp_path / "a.png", image, srgb=srgb)
        got = read_image(tmp_path / "a.png", srgb=srgb)
        assert got.shape == image.shape
        step = linear_to_srgb(got) - linear_to_srgb(image) if srgb else got - image
        if channels % 2 == 0:
            step[..., -1] = got[..., -1] - image[..., -1]
        assert np.abs(step).max() < 0.5 / 255 + 1e-6


def test_png_clips_and_takes_masks(tmp_path):
    write_png(tmp_path / "m.png", np.array([[True, False]]))
    assert read_image(tmp_path / "m.png")[0, :, 0].tolist() == [1.0, 0.0]
    write_png(tmp_path / "m.png", [[-3.0, 9.0, np.inf]])
    assert read_image(tmp_path / "m.png")[0, :, 0].tolist() == [0.0, 1.0, 1.0]


def test_png_refuses_nan_and_odd_shapes(tmp_path):
    with pytest.raises(GraphError, match="x 1, y 0"):
        write_png(tmp_path / "a.png", [[0.0, np.nan]])
    for shape in ((3,), (2, 2, 5), (0, 2, 3)):
        with pytest.raises(GraphError, match="write_png needs"):
            write_png(tmp_path / "a.png", np.zeros(shape))
    assert not list(tmp_path.iterdir())


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    atomic_write(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


LEVELS = np.array([[[0, 1, 127], [128, 200, 255]]], np.uint8)


@pytest.mark.parametrize("srgb", [True, False])
@pytest.mark.parametrize("kind", ["u1", "<u2", ">u2"])
def test_levels_of_8_and_16_bits_are_written_as_they_are(tmp_path, srgb, kind):
    levels = LEVELS.astype(kind) * (1 if kind == "u1" else 257)
    write_image(tmp_path / "a.png", levels, srgb)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), LEVELS)
    write_image(tmp_path / "b.png", levels, srgb, bit_depth=16)
    wide = read_image(tmp_path / "b.png", srgb=False) * 65535.0
    assert np.allclose(wide, LEVELS * 257.0, atol=0.01)
    write_image(tmp_path / "a.exr", levels, srgb)
    want = LEVELS / 255.0
    if srgb:  # IEC 61966-2-1
        want = np.where(want <= 0.04045, want / 12.92, ((want + 0.055) / 1.055) ** 2.4)
    assert np.allclose(read_image(tmp_path / "a.exr"), want, atol=1e-6)
    flat = np.full((8, 8), 200, np.uint8).astype(kind) * (1 if kind == "u1" else 257)
    write_image(tmp_path / "a.jpg", flat, srgb)
    assert np.abs(np.asarray(Image.open(tmp_path / "a.jpg")).astype(int) - 200).max() <= 1


def test_alpha_among_levels_stays(tmp_path):
    levels = np.array([[[200, 51]]], np.uint8)
    write_image(tmp_path / "a.exr", levels)
    gray = ((200 / 255 + 0.055) / 1.055) ** 2.4
    assert np.allclose(read_image(tmp_path / "a.exr"), [[[gray, 0.2]]], atol=1e-6)


def test_bool_is_0_and_1_and_floats_of_any_size_are_linear(tmp_path):
    write_image(tmp_path / "a.png", np.array([[True, False]]))
    assert np.asarray(Image.open(tmp_path / "a.png")).tolist() == [[255, 0]]
    for kind in (np.float16, np.float32, np.float64):
        write_image(tmp_path / "a.png", np.full((1, 2), 0.5, kind))
        assert np.asarray(Image.open(tmp_path / "a.png")).tolist() == [[188, 188]], "sRGB of 0.5"


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint32, complex])
@pytest.mark.parametrize("ending", [".png", ".jpg", ".hdr", ".exr"])
def test_types_that_do_not_say_what_is_white_are_refused(tmp_path, kind, ending):
    with pytest.raises(GraphError, match=f"what is white in {np.dtype(kind)}"):
        write_image(tmp_path / f"a{ending}", np.ones((2, 2, 3), kind))
    with pytest.raises(GraphError, match="what is white"):
        write_png(tmp_path / "a.png", np.ones((2, 2), kind))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_integer_pixels_of_scenes_are_refused(kind):
    with pytest.raises(GraphError, match=r"linear floats.*\n.*srgb_to_linear"):
        SceneImage(np.ones((2, 2, 3), kind))
    with pytest.raises(GraphError, match="linear floats"):
        scene_of(icosphere(1), np.ones((2, 2, 3), kind))
    with pytest.raises(GraphError, match="linear floats"):
        contact_sheet({"a": [np.ones((2, 2, 3), kind)]})


def test_saving_keeps_links_and_modes_and_honours_the_umask(tmp_path):
    (tmp_path / "real").mkdir()
    real, link, loop = tmp_path / "real" / "a.png", tmp_path / "link.png", tmp_path / "b.png"
    link.symlink_to(real)
    loop.symlink_to("link.png")
    for path in (link, loop):  # the first one makes the file that the link leads to
        write_png(path, np.ones((1, 1)))
        assert link.is_symlink() and loop.is_symlink() and not real.is_symlink()
        assert read_image(real).item() == 1.0
    for mode in (0o600, 0o664, 0o444, 0o755):
        real.chmod(mode)
        write_png(loop, np.zeros((1, 1)))
        assert stat.S_IMODE(real.stat().st_mode) == mode
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        old = os.umask(mask)
        try:
            atomic_write(tmp_path / f"new{mask}", b"x")
        finally:
            os.umask(old)
        assert stat.S_IMODE((tmp_path / f"new{mask}").stat().st_mode) == mode
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp")]


def test_names_as_long_as_they_can_be_and_devices(tmp_path):
    write_png(tmp_path / ("x" * 251 + ".png"), np.ones((1, 1)))
    assert [len(p.name) for p in tmp_path.iterdir()] == [255]
    atomic_write(os.devnull, b"x")
    assert not os.path.isfile(os.devnull), "a device stays one"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        atomic_write(tmp_path / "folder", b"x")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("ending", [".glb", ".gltf", ".obj", ".ply", ".stl"])
def test_every_mesh_format_keeps_links_and_modes(tmp_path, ending):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / f"a{ending}", tmp_path / f"a{ending}"
    real.touch(0o640)
    real.chmod(0o640)
    link.symlink_to(real)
    save_mesh(link, icosphere(1))
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    assert len(load_mesh(real).faces) == len(load_mesh(link).faces) == 80


def test_levels_as_floats_are_not_clipped_without_a_word(tmp_path: Path) -> None:
    levels = np.arange(192.0).reshape(8, 8, 3)[::-1] // 2 * 2
    with pytest.warns(DressiWarning, match="up to 190 are clipped"):
        write_png(tmp_path / "a.png", levels)
    write_png(tmp_path / "a.png", levels.astype(np.uint8))
    write_png(tmp_path / "a.png", levels / 10)  # brighter than white


def test_a_missing_folder_is_named_not_the_file_beside_the_target(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such folder: .*gone"):
        write_png(tmp_path / "gone" / "a.png", np.zeros((2, 2, 3)))
