"""Options and fixtures that all tests share.

--no-vulkan       the binding `vulkan` cannot be imported; tests marked `gpu` are deselected
--require-vulkan  no Vulkan device is an error, not a reason to skip (CI)
--gc-stress       the garbage collector runs all the time, and C memory is overwritten when Python
                  frees it: finds what Vulkan (or we) still read
--rewrite-pictures  tests/golden_pictures are drawn anew; look at each before it is committed
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HELPERS = str(ROOT / "tests" / "helpers")  # which import mode `importlib` leaves off the path
if HELPERS not in sys.path:
    sys.path.insert(0, HELPERS)


class _NoVulkan(MetaPathFinder):
    """Stands for a machine where the Vulkan binding is not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == "vulkan":
            raise ImportError("no module named 'vulkan' (blocked by --no-vulkan)", name=fullname)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dressi")
    group.addoption("--no-vulkan", action="store_true", help="make `import vulkan` fail")
    group.addoption("--require-vulkan", action="store_true", help="fail where no device is found")
    group.addoption(
        "--gc-stress", action="store_true", help="gc.set_threshold(1), freed C memory overwritten"
    )
    group.addoption(
        "--rewrite-pictures", action="store_true", help="store what golden pictures are today"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and whoever waits for
    # the one that a test sends would wait for ever.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--no-vulkan"):
        assert "vulkan" not in sys.modules, "imported before it could be blocked"
        sys.meta_path.insert(0, _NoVulkan())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--no-vulkan"):
        gpu = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if item not in gpu]


@pytest.fixture(scope="session")
def vulkan_device_available(pytestconfig: pytest.Config) -> bool:
    """Whether the loader finds at least one device. Asks the binding, not the code under test."""
    if pytestconfig.getoption("--no-vulkan"):
        return False
    try:
        import vulkan as vk
    except (ImportError, OSError):  # the binding raises OSError where there is no loader
        return False
    try:
        instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(), None)
    except vk.VkError:
        return False
    try:
        return len(vk.vkEnumeratePhysicalDevices(instance)) > 0
    except vk.VkError:
        return False
    finally:
        vk.vkDestroyInstance(instance, None)


@pytest.fixture(autouse=True)
def _needs_device(request: pytest.FixtureRequest) -> None:
    """Tests marked `gpu`: without a device skipped, with --require-vulkan failed."""
    if request.node.get_closest_marker("gpu") is None:
        return
    if not request.getfixturevalue("vulkan_device_available"):
        if request.config.getoption("--require-vulkan"):
            pytest.fail("no Vulkan device, and --require-vulkan is given")
        pytest.skip("no Vulkan device on this machine")


@pytest.fixture(autouse=True)
def _gc_stress(request: pytest.FixtureRequest) -> Iterator[None]:
    """--gc-stress: a collection after every other allocation, for the length of a test, and poison
    in freed memory from the first on."""
    if not request.config.getoption("--gc-stress"):
        yield
        return
    before = gc.get_threshold()
    gc.set_threshold(1)
    if request.node.get_closest_marker("gpu") is not None:
        _poison_freed_memory(request.node.get_closest_marker("signals") is None)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _poison_freed_memory(on: bool) -> None:
    """A handler that raises while cffi frees memory would raise into nothing: not with signals."""
    from poison import Poisoned

    from dressi.vk.api import load

    api = load()
    if isinstance(api.ffi, Poisoned) != on:
        api.ffi = Poisoned(api.ffi) if on else api.ffi.real


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The data folder beside the checkout. Optional: tests that read it are skipped without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no data folder beside the checkout")
    return folder
