"""One engine a module, a shader cache of its own: for tests marked `gpu`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("DRESSI_CACHE")
    if before is None:
        os.environ["DRESSI_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["DRESSI_CACHE"]


@pytest.fixture(scope="module")
def ad(vulkan_device_available: bool) -> Iterator:
    """A DressiAD for the tests of one module."""
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    from dressi import DressiAD

    with DressiAD() as engine:
        yield engine
