"""Images of one file are decoded at once, in threads, as one by one."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from dressi.errors import LoadError
from dressi.render.io.images import FEW, decode_image, decode_images


def png(k: int) -> bytes:
    rng = np.random.default_rng(k)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (4 + k, 5, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("n", [0, 1, FEW - 1, FEW, 23])
def test_all_are_decoded_in_their_order_as_alone(n: int) -> None:
    files = [(png(k), k % 2 == 0) for k in range(n)]
    before = list(warnings.filters)
    found = decode_images(files)
    assert list(warnings.filters) == before
    assert len(found) == n
    for decoded, (data, srgb) in zip(found, files, strict=True):
        assert not isinstance(decoded, LoadError)
        np.testing.assert_array_equal(decoded.pixels, decode_image(data, srgb).pixels)


def test_what_is_no_image_is_an_error_in_its_place() -> None:
    files = [(png(k), True) for k in range(9)]
    files[3], files[7] = (b"no image", True), (png(7)[:40], False)
    found = decode_images(files, ("PNG",))
    assert [k for k, f in enumerate(found) if isinstance(f, LoadError)] == [3, 7]
    assert "neither of PNG" in str(found[3])


def test_too_many_pixels_are_refused_in_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    found = decode_images([(png(k), True) for k in range(8)])
    assert [isinstance(f, LoadError) for f in found] == [5 * (4 + k) > 40 for k in range(8)]
