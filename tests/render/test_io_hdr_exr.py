"""Images beyond 8 bits: HDR, EXR, 16-bit PNG, JPEG; each says what its numbers mean."""

from __future__ import annotations

import numpy as np
import OpenEXR
import pytest

from dressi.errors import GraphError, LoadError
from dressi.render.io import linear_to_srgb, read_image, write_image

RNG = np.random.default_rng(5)
HEAD = b"#?RADIANCE\n# a comment\nFORMAT=32-bit_rle_rgbe\n\n"
ONE, HALF = bytes([128, 64, 32, 129]), bytes([128, 128, 128, 128])  # (1, .5, .25) and grey 0.5


def hdr(tmp_path, body, size=b"-Y 1 +X 2\n", head=HEAD):
    path = tmp_path / "a.hdr"
    path.write_bytes(head + size + body)
    return read_image(path)


def test_flat_hdr_pixels_have_known_values(tmp_path):
    got = hdr(tmp_path, ONE + HALF)
    assert got.dtype == np.float32 and got.tolist() == [[[1, 0.5, 0.25], [0.5, 0.5, 0.5]]]
    assert hdr(tmp_path, ONE + bytes([9, 9, 9, 0]))[0, 1].tolist() == [0, 0, 0]


def test_old_runs_repeat_the_pixel_before_them(tmp_path):
    got = hdr(tmp_path, ONE + bytes([1, 1, 1, 3]) + HALF, b"-Y 1 +X 5\n")
    assert got[0, :, 0].tolist() == [1, 1, 1, 1, 0.5]
    many = hdr(tmp_path, ONE + bytes([1, 1, 1, 3]) + bytes([1, 1, 1, 1]), b"-Y 1 +X 260\n")
    assert (many[0] == [1, 0.5, 0.25]).all(), "the second of two runs counts 256 times"


def test_new_runs_and_dumps_by_plane(tmp_path):
    row = (
        b"\2\2\0\x08" + b"\x88\x80" + b"\x08" + bytes(range(0, 160, 20)) + b"\x88\x20" + b"\x88\x81"
    )
    got = hdr(tmp_path, row, b"-Y 1 +X 8\n")
    assert got[0, :, 0].tolist() == [1.0] * 8 and got[0, :, 2].tolist() == [0.25] * 8
    assert np.allclose(got[0, :, 1], np.arange(0, 160, 20) / 128)


def test_rows_and_columns_may_run_backwards(tmp_path):
    pixels = bytes([128, 0, 0, 129] + [64, 0, 0, 129] + [32, 0, 0, 129] + [16, 0, 0, 129])
    plain = hdr(tmp_path, pixels, b"-Y 2 +X 2\n")[..., 0]
    assert plain.tolist() == [[1, 0.5], [0.25, 0.125]]
    assert np.array_equal(hdr(tmp_path, pixels, b"+Y 2 +X 2\n")[..., 0], plain[::-1])
    assert np.array_equal(hdr(tmp_path, pixels, b"-Y 2 -X 2\n")[..., 0], plain[:, ::-1])


def test_exposure_is_divided_out(tmp_path):
    head = HEAD[:-1] + b"EXPOSURE=2\nEXPOSURE=4\n\n"
    assert hdr(tmp_path, ONE + HALF, head=head)[0, 0].tolist() == [0.125, 0.0625, 0.03125]


@pytest.mark.parametrize("shape", [(3, 5, 3), (4, 300, 3), (1, 1, 3), (6, 129, 1)])
def test_written_hdr_is_right_to_its_mantissa(tmp_path, shape):
    image = (10.0 ** RNG.uniform(-6, 6, shape)).astype(np.float32)
    image[0, 0] = 0.0
    write_image(tmp_path / "a.hdr", image)
    got = read_image(tmp_path / "a.hdr")
    most = image.max(axis=2, keepdims=True)
    assert got.shape == (*shape[:2], 3) and (np.abs(got - image) <= most * 2.0**-8).all()
    assert not got[0, 0].any()


def test_hdr_mantissas_that_round_up_take_the_next_exponent(tmp_path):
    image = np.full((1, 8, 3), 255.9 / 256, np.float32)
    write_image(tmp_path / "a.hdr", image)
    assert np.allclose(read_image(tmp_path / "a.hdr"), 1.0, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_exr_keeps_every_bit(tmp_path, channels):
    image = RNG.normal(scale=1e3, size=(5, 7, channels)).astype(np.float32)
    write_image(tmp_path / "a.exr", image)
    got = read_image(tmp_path / "a.exr")
    assert got.dtype == np.float32 and np.array_equal(got, image)
    names = set(OpenEXR.File(str(tmp_path / "a.exr"), separate_channels=True).channels())
    assert names == set({1: "Y", 2: "YA", 3: "RGB", 4: "RGBA"}[channels])


def exr(tmp_path, channels, **header):
    kind = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    OpenEXR.File(kind | header, channels).write(str(tmp_path / "b.exr"))
    return read_image(tmp_path / "b.exr")


def test_exr_of_halves_and_of_one_channel_of_any_name(tmp_path):
    depth = RNG.uniform(size=(3, 4)).astype(np.float16)
    got = exr(tmp_path, {"Z": depth})
    assert got.shape == (3, 4, 1) and np.array_equal(got[..., 0], depth.astype(np.float32))


def test_exr_data_stand_where_they_belong_in_the_display_window(tmp_path):
    pixels = RNG.uniform(size=(2, 3)).astype(np.float32)
    window = (np.array([0, 0], np.int32), np.array([4, 4], np.int32))
    held = (np.array([1, 2], np.int32), np.array([3, 3], np.int32))
    got = exr(tmp_path, {"Y": pixels}, displayWindow=window, dataWindow=held)
    assert got.shape == (5, 5, 1) and np.array_equal(got[2:4, 1:4, 0], pixels)
    assert got.sum() == pytest.approx(pixels.sum())


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        ({"R": np.ones((2, 2), np.float32), "N.x": np.ones((2, 2), np.float32)}, "channels N.x, R"),
        ({"Y": np.full((2, 2), np.nan, np.float32)}, r"pixel \(x 0, y 0\) is nan"),
        ({"Y": np.ones((2, 2), np.uint32)}, "not float"),
    ],
)
def test_exr_that_is_no_picture_is_refused(tmp_path, channels, words):
    with pytest.raises(LoadError, match=words) as caught:
        exr(tmp_path, channels)
    assert "b.exr" in str(caught.value) and caught.value.where == "image data"


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("srgb", [True, False])
def test_16_bit_png_is_right_to_half_a_step(tmp_path, channels, srgb):
    image = RNG.uniform(size=(6, 5, channels))
    write_image(tmp_path / "a.png", image, srgb, 16)
    got = read_image(tmp_path / "a.png", srgb)
    step = linear_to_srgb(got) - linear_to_srgb(image) if srgb else got - image
    if channels % 2 == 0:
        step[..., -1] = got[..., -1] - image[..., -1]
    assert np.abs(step).max() < 0.5 / 65535 + 1e-6


def test_jpeg_is_close_on_a_smooth_picture(tmp_path):
    ramp = np.linspace(0, 1, 64)
    image = np.stack([ramp[None] * ramp[:, None]] * 3, axis=-1)
    for name, picture in (("a.jpg", image), ("b.jpeg", image[..., :1])):
        write_image(tmp_path / name, picture)
        got = read_image(tmp_path / name)
        assert got.shape == picture.shape
        assert np.abs(linear_to_srgb(got) - linear_to_srgb(picture)).max() < 4 / 255


@pytest.mark.parametrize(
    ("name", "image", "words"),
    [
        ("a.bmp", np.ones((2, 2)), r"a\.bmp"),
        ("a.jpg", np.ones((2, 2, 4)), "1 or 3"),
        ("a.hdr", np.ones((2, 2, 2)), "1 or 3"),
        ("a.exr", np.ones((2, 2, 5)), "1 to 4"),
        ("a.exr", [[np.inf]], "infinite"),
        ("a.exr", [[1e300]], "float32"),
        ("a.hdr", [[3e38]], "2.127"),
        ("a.hdr", [[np.nan]], "NaN"),
    ],
)
def test_images_that_a_format_cannot_hold_leave_no_file(tmp_path, name, image, words):
    with pytest.raises(GraphError, match=words):
        write_image(tmp_path / name, image)
    assert not list(tmp_path.iterdir())


def test_bit_depths_are_8_or_16(tmp_path):
    with pytest.raises(GraphError, match="bit_depth is 12"):
        write_image(tmp_path / "a.png", np.ones((2, 2)), bit_depth=12)


def test_a_compressed_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "a.exr"
    write_image(path, np.zeros((2, 2)))
    data = bytearray(path.read_bytes())
    at = data.index(b"dataWindow\0box2i\0") + len(b"dataWindow\0box2i\0") + 4
    data[at + 8 : at + 16] = np.array([10**6, 10**6], "<i4").tobytes()
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"a\.exr"):
        read_image(path)
