"""Pictures of builders, shading and textures stay as they are, to 1/255, on Mesa's CPU driver.

``pytest tests/golden_pictures --rewrite-pictures`` draws the stored ones anew: look at each before
it is committed. Where one differs, out/golden_pictures holds what was drawn and the difference,
times 16.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from dressi import DressiAD
from dressi.render.io.images import write_png

HERE = Path(__file__).resolve().parent
LEFT = HERE.parents[1] / "out" / "golden_pictures"
DEVICE = "llvmpipe"
TOLERANCE = 1
"""Of 255."""


def _pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_pictures", HERE / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PICTURES = _pictures().PICTURES


@pytest.fixture(scope="module")
def ad(vulkan_device_available: bool) -> Iterator[DressiAD]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiAD() as engine:
        if DEVICE not in engine.device_info.name:
            pytest.skip(f"drawn on {DEVICE}, this is {engine.device_info.name}")
        yield engine


def levels(path: Path) -> np.ndarray:
    """The pixels of a file, (H, W, 3), 0 to 255."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(np.int16)


def compare(name: str, drawn: np.ndarray, stored: Path, left: Path) -> int:
    """Return the largest difference of a picture from the stored one, in levels; leave the picture
    and the difference behind where it is above the tolerance."""
    left.mkdir(parents=True, exist_ok=True)
    path, apart = left / f"{name}.png", left / f"{name}.difference.png"
    write_png(path, drawn)
    off = np.abs(levels(path) - levels(stored))
    largest = int(off.max())
    if largest <= TOLERANCE:
        path.unlink()
        apart.unlink(missing_ok=True)
    else:
        Image.fromarray(np.minimum(off * 16, 255).astype(np.uint8)).save(apart)
    return largest


@pytest.mark.gpu
@pytest.mark.parametrize("name", PICTURES)
def test_picture(ad: DressiAD, name: str, pytestconfig: pytest.Config) -> None:
    drawn, stored = ad.recv_img(PICTURES[name]()), HERE / f"{name}.png"
    if pytestconfig.getoption("--rewrite-pictures"):
        write_png(stored, drawn)
    off = compare(name, drawn, stored, LEFT)
    assert off <= TOLERANCE, f"off by {off} of 255; see {LEFT.relative_to(HERE.parents[1])}"


def test_every_stored_picture_is_drawn() -> None:
    assert {path.stem for path in HERE.glob("*.png")} == set(PICTURES)


def test_a_difference_is_left_behind(tmp_path: Path) -> None:
    stored, picture = tmp_path / "a.png", np.full((4, 4, 3), 0.5)
    write_png(stored, picture)
    assert compare("same", picture, stored, tmp_path / "left") == 0
    assert list((tmp_path / "left").iterdir()) == []
    picture[1, 2] = 0.6
    assert compare("other", picture, stored, tmp_path / "left") > TOLERANCE
    off = levels(tmp_path / "left" / "other.difference.png")
    assert off[1, 2].min() > 0 and np.count_nonzero(off) == 3
