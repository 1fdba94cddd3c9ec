"""Opening, choosing and closing devices; persistent images; what goes wrong says so."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import faults
import numpy as np
import pytest
from hand_plans import (
    CHANNELS,
    FORMATS,
    compute,
    draw,
    frag,
    image,
    pixels,
    plan,
    result,
    stage,
)

from dressi.errors import DeviceError, DeviceLostError, OutOfMemoryError, ValidationError
from dressi.packing.plan import BufferPlan, Plan
from dressi.vk import Device, compile_glsl, list_devices, open_device, record, vendor
from dressi.vk.api import load
from dressi.vk.context import ASK_FIRST_S
from dressi.vk.instance import choose, fitting
from dressi.vk.query import DeviceInfo, unique_names
from dressi.vk.vendor import nvidia_hint

pytestmark = pytest.mark.gpu
COMPUTE = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n"
FILL = plan(stage(draw(frag("y = 1.0;"))))


def info(index: int, name: str, kind: str) -> tuple[None, DeviceInfo]:
    return None, DeviceInfo(index, name, "driver 1", kind, "1.3.0")


DEVICES = [
    info(0, "llvmpipe (LLVM 15)", "cpu"),
    info(1, "Intel UHD", "gpu-integrated"),
    info(2, "NVIDIA H200", "gpu-discrete"),
    info(3, "NVIDIA A10 vGPU", "gpu-virtual"),
]


@pytest.mark.parametrize(
    ("selector", "index"),
    [(None, 2), (0, 0), ("1", 1), ("nvidia", 2), ("LLVMPIPE", 0), ("vgpu", 3), ("200", 2)],
)
def test_selector_is_an_index_a_part_of_a_name_or_the_best(
    selector: str | int | None, index: int
) -> None:
    assert choose(DEVICES, selector)[1].index == index


@pytest.mark.parametrize("selector", ["geforce", 4, "17", -1])
def test_wrong_selector_lists_the_devices(selector: str | int) -> None:
    with pytest.raises(DeviceError) as caught:
        choose(DEVICES, selector)
    text = str(caught.value)
    assert repr(selector) in text
    assert "2: NVIDIA H200 (gpu-discrete, driver 1)" in text
    assert "DRESSI_DEVICE" in text


UUIDS = ["1f00aaaa-0000-4000-8000-00000000000" + d for d in "0123"]
TWINS = [
    (None, DeviceInfo(0, "llvmpipe", "driver 1", "cpu", "1.3.0", "6d657361" + UUIDS[0][8:])),
    (None, DeviceInfo(1, "NVIDIA H200", "driver 1", "gpu-discrete", "1.3.0", UUIDS[1])),
    (None, DeviceInfo(2, "NVIDIA H200 NVL", "driver 1", "gpu-discrete", "1.3.0", UUIDS[2])),
    (None, DeviceInfo(3, "NVIDIA H200", "driver 1", "gpu-discrete", "1.3.0", UUIDS[3])),
]


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("NVIDIA H200", 1),
        ("nvidia h200#0", 1),
        ("NVIDIA H200#1", 3),
        ("H200#1", 2),  # as a part of a name, three fit
        ("h200#2", 3),
        ("nvl", 2),
        ("llvmpipe#0", 0),
        (UUIDS[3], 3),
        (f"GPU-{UUIDS[2].upper()}", 2),
        ("6d657361", 0),
        (3, 3),
    ],
)
def test_equal_devices_are_told_apart(selector: str | int, index: int) -> None:
    assert choose(TWINS, selector)[1].index == index


@pytest.mark.parametrize(
    "selector",
    [
        "NVIDIA H200#2",
        "H200#-1",
        "H200#",
        "#1",
        "H200#x",
        "6d65736",
        "1f00aaaa",
        "GPU-",
        "geforce#0",
    ],
)
def test_what_means_no_device_or_several_lists_them_by_unique_names(selector: str) -> None:
    with pytest.raises(DeviceError) as caught:
        choose(TWINS, selector)
    text = str(caught.value)
    assert f"3: NVIDIA H200#1 (gpu-discrete, driver 1)  {UUIDS[3]}" in text
    assert "2: NVIDIA H200 NVL (" in text and "name#k" in text


@pytest.mark.parametrize(
    ("selector", "indices"),
    [
        ("H200", [1, 2, 3]),
        ("NVIDIA H200", [1, 3]),
        ("H200#1", [2]),
        (3, [3]),
        (None, [1, 2, 3, 0]),
        (UUIDS[1], [1]),
    ],
)
def test_all_that_a_selector_may_mean_come_best_first(
    selector: str | int | None, indices: list[int]
) -> None:
    assert [info.index for _, info in fitting(TWINS, selector)] == indices


def test_unique_names_are_selectors() -> None:
    infos = [i for _, i in TWINS]
    names = unique_names(infos)
    assert names == ["llvmpipe", "NVIDIA H200#0", "NVIDIA H200 NVL", "NVIDIA H200#1"]
    assert [choose(TWINS, name)[1].index for name in names] == [0, 1, 2, 3]


def test_a_device_is_found_by_its_own_uuid(device: Device) -> None:
    listed = list_devices()
    for info in listed:
        assert len(info.uuid) == 36
        first = next(other for other in listed if other.uuid == info.uuid)
        with open_device(info.uuid) as opened:
            assert opened.info == first


def test_two_drivers_may_tell_the_uuid_of_one_device() -> None:
    whole = "c81067a0-50da-ed23-5318-ead55c435794"
    devices = [
        (None, DeviceInfo(k, f"card by {driver}", driver, "gpu-discrete", "1.3.0", whole))
        for k, driver in enumerate(("one", "other"))
    ]
    assert [d[1].index for d in fitting(devices, whole)] == [0]
    assert [d[1].index for d in fitting(devices, whole[:8])] == [0]
    apart = [*devices, (None, replace(devices[0][1], index=2, uuid=whole[:-1] + "5"))]
    assert [d[1].index for d in fitting(apart, whole)] == [0]
    with pytest.raises(DeviceError, match="no Vulkan device fits"):
        fitting(apart, whole[:8])


def test_no_device_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="install"):
        choose([], None)


def test_environment_selects_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRESSI_DEVICE", "no such device")
    with pytest.raises(DeviceError, match="no such device"):
        open_device()


def test_listed_devices_can_be_opened_by_index_and_name(device: Device) -> None:
    for listed in list_devices():
        assert listed.type in ("gpu-discrete", "gpu-integrated", "gpu-virtual", "cpu", "other")
        for selector in (listed.index, listed.name.upper()):
            with open_device(selector) as opened:
                assert opened.info.name == listed.name


def test_limits_are_at_least_what_vulkan_guarantees(device: Device) -> None:
    limits = device.limits
    assert limits.name == device.info.name
    assert limits.image_dim >= 4096
    assert limits.input_attachments >= 4 and limits.color_outputs >= 4
    assert limits.storage_words >= 1 << 25 and limits.uniform_slots >= 1024
    assert limits.group_lanes >= 128
    counts = (limits.input_attachments, limits.samplers, limits.resources, limits.combined_outputs)
    assert max(counts) <= 1 << 20


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (101, 37), (3, 500)])
def test_upload_comes_back_bit_by_bit(device: Device, fmt: str, size: tuple[int, int]) -> None:
    width, height = size
    rng = np.random.default_rng(0)
    kind = np.int32 if fmt.endswith("I") else np.float32
    data = rng.integers(-(1 << 30), 1 << 30, (height, width, CHANNELS[fmt])).astype(kind)
    device.upload(5, fmt, width, height, data)
    assert device.has(5)
    assert (pixels(device.download(5), fmt, width, height) == data).all()
    device.drop(5)


@pytest.mark.parametrize("chunk", [1 << 20, 1000])
def test_several_images_move_together_where_they_fit(
    device: Device, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Sizes that are no multiples of 16 bytes; one submit each way where all fit into a chunk."""
    monkeypatch.setattr(type(device.staging), "CHUNK", chunk)
    rng = np.random.default_rng(0)
    sizes = [("R32F", 3, 1), ("RGBA32F", 5, 7), ("RG32I", 1, 1), ("R32I", 101, 3)]
    images = [
        (k, fmt, w, h, rng.integers(0, 255, w * h * CHANNELS[fmt] * 4, np.uint8).tobytes())
        for k, (fmt, w, h) in enumerate(sizes, 5)
    ]
    for key, fmt, w, h, _ in images:
        device.ensure(key, fmt, w, h)
    submits: list[str] = []
    real = device.context.submit

    def count(info: object, what: str) -> None:
        submits.append(what)
        real(info, what)

    monkeypatch.setattr(device.context, "submit", count)
    device.upload_all(images)
    keys = [image[0] for image in images]
    assert device.download_all(keys) == [image[4] for image in images]
    assert device.download_all(keys[::-1]) == [image[4] for image in images[::-1]]
    assert device.download(keys[1]) == images[1][4]
    assert device.download_all([]) == []
    device.upload_all([])
    assert len(submits) == (4 if chunk > 1000 else 5 + 5 + 5 + 1)  # 1212 bytes are two pieces
    with pytest.raises(DeviceError, match="is R32F 3x1 = 12 bytes"):
        device.upload_all([images[1], (*images[0][:4], b"short")])
    for key in keys:
        device.drop(key)


def test_large_images_move_in_pieces(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(device.staging), "CHUNK", 1000)
    data = np.arange(101 * 37, dtype=np.float32)
    device.upload(5, "R32F", 101, 37, data)
    assert device.download(5) == data.tobytes()
    device.drop(5)


def test_ensure_makes_zeros_and_keeps_what_is_there(device: Device) -> None:
    device.ensure(5, "R32I", 3, 2)
    assert device.download(5) == bytes(24)
    device.upload(5, "R32I", 3, 2, bytes(range(24)))
    device.ensure(5, "R32I", 3, 2)
    assert device.download(5) == bytes(range(24))
    device.drop(5)


def test_upload_of_a_wrong_number_of_bytes_names_both(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"23 bytes .* R32F 3x2 = 24 bytes"):
        device.upload(5, "R32F", 3, 2, bytes(23))
    assert not device.has(5)


def test_unknown_format_names_the_known(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"RGB32F.*RGBA32F"):
        device.ensure(5, "RGB32F", 3, 2)


def test_image_beyond_the_limit_names_it(device: Device) -> None:
    beyond = device.limits.image_dim + 1
    with pytest.raises(DeviceError, match=f"{beyond}x1 .* {beyond - 1} "):
        device.ensure(5, "R32F", beyond, 1)


def test_missing_key_is_named(device: Device) -> None:
    with pytest.raises(DeviceError, match="key 12345"):
        device.download(12345)


def test_executable_refuses_to_run_on_a_replaced_image(device: Device) -> None:
    device.ensure(5, "R32F", 8, 4)
    p = plan(stage(draw(frag("y = 1.0;"))), images=(image(0, key=5),))
    executable = device.compile(p)
    executable.run()
    device.upload(5, "R32F", 2, 2, bytes(16))
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"5 \('img0'\)(.|\n)*compile the plan again"):
            executable.run()
    executable.close()
    with pytest.raises(DeviceError, match=r"2x2.*wants R32F 8x4"):
        device.compile(p)
    device.drop(5)


def test_other_images_may_come_and_go(device: Device) -> None:
    with device.compile(FILL) as executable:
        device.ensure(5, "R32F", 1, 1)
        device.drop(5)
        executable.run()


def test_memory_that_is_not_there_names_image_and_bytes(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.memory, "_heap_sizes", [device.held_bytes() + (1 << 20)] * 16)
    big = plan(images=(image(0, "RGBA32F", 4096, 4096),))
    with pytest.raises(OutOfMemoryError, match="img0") as caught:
        device.compile(big)
    assert caught.value.needed >= 4096 * 4096 * 16 > caught.value.available > 0


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (plan(buffers=(BufferPlan(0, "words", 1 << 31),)), r"'words' has 2147483648 words"),
        (plan(uniform_slots=1 << 22), r"4194304 slots"),
        (plan(stage(draw(frag("", "")), width=1 << 20)), r"1048576x4 pixels"),
        (plan(compute(COMPUTE, (), (1, 1 << 30, 1))), r"1073741824, 1\) work groups"),
    ],
)
def test_what_is_too_large_for_the_device_names_both_numbers(
    device: Device, p: Plan, text: str
) -> None:
    with pytest.raises(DeviceError, match=f"{text}(.|\n)* allows "):
        device.compile(p)


def test_device_works_in_another_thread() -> None:
    def work() -> float:
        with open_device() as device, device.compile(FILL) as executable:
            executable.run()
            return float(result(executable).mean())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 1


@pytest.mark.signals
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_interrupt_is_raised_when_the_device_is_done(device: Device) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    executable = device.compile(FILL)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            for _ in range(100):
                executable.run(1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    executable.run()
    assert (result(executable) == 1).all()
    executable.close()


def test_thousands_of_images_take_few_allocations(device: Device) -> None:
    before = device.live_handles()["VkDeviceMemory"]
    with device.compile(plan(images=tuple(image(i) for i in range(2000)))):
        assert device.live_handles()["VkDeviceMemory"] - before <= 2


def test_closed_things_say_so() -> None:
    device = open_device()
    executable = device.compile(FILL)
    executable.close()
    executable.close()
    with pytest.raises(DeviceError, match="closed"):
        executable.run()
    device.close()
    device.close()
    for call in (lambda: device.ensure(1, "R32F", 1, 1), lambda: device.compile(FILL)):
        with pytest.raises(DeviceError, match="closed"):
            call()


def test_close_destroys_executables_and_images() -> None:
    with open_device() as device:
        device.upload(1, "R32F", 1, 1, bytes(4))
        depth = stage(draw(frag("y = 1.0;"), depth=True))
        executable = device.compile(plan(depth))
        executable.run_timed()
        assert device.live_handles()["VkImage"] == 3
    assert not any(device.live_handles().values())
    executable.close()


def test_forgotten_device_is_closed_by_the_collector() -> None:
    device = open_device()
    device.compile(FILL).run()
    context = device.context
    del device
    gc.collect()
    assert context.closed and not any(context.counts.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_gets_an_error_at_once(device: Device) -> None:
    device.ensure(5, "R32F", 8, 4)
    executable = device.compile(FILL)
    calls = (
        executable.run,
        executable.close,
        lambda: executable.write_uniforms(b""),
        lambda: executable.download(0),
        lambda: device.upload(5, "R32F", 8, 4, bytes(128)),
        lambda: device.download(5),
        lambda: device.drop(5),
        lambda: device.compile(FILL),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of fork beside the driver's threads
        child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except DeviceError as error:
                refused += "forked child" in str(error)
        device.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    executable.run()
    executable.close()
    device.drop(5)


# Loaders, drivers and layers that are missing


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


REPORT = """
import dressi.vk
from dressi.errors import DeviceError
try:
    dressi.vk.open_device()
except DeviceError as error:
    print(error)
"""


def test_import_works_without_the_binding_and_opening_names_the_package() -> None:
    text = python(f"import sys\nsys.modules['vulkan'] = None\n{REPORT}")
    assert "pip install vulkan" in text


def test_missing_loader_says_what_to_install() -> None:
    block = """
import sys
class NoLoader:
    def find_spec(self, name, path=None, target=None):
        if name == "vulkan":
            raise OSError("Cannot find Vulkan SDK version")
sys.meta_path.insert(0, NoLoader())
"""
    text = python(block + REPORT)
    assert "no Vulkan loader" in text
    assert "libvulkan1 mesa-vulkan-drivers" in text
    if not nvidia_hint():
        assert "LunarG" in text and "brew install molten-vk" in text


def test_missing_driver_says_what_to_install() -> None:
    nowhere = {"VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json"}
    assert "mesa-vulkan-drivers" in python(REPORT, **nowhere)


@pytest.mark.parametrize("there", ["icd", "icd unreadable", "node", "named", "nothing"])
def test_an_nvidia_driver_that_cannot_be_loaded_says_what_it_needs(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the loader answers where libGLX_nvidia.so.0 finds no libGLX: a machine with libvulkan1
    alone, and the driver mounted into it."""
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    monkeypatch.setenv("VK_DRIVER_FILES", "/elsewhere/nvidia.json:/elsewhere/lvp.json")
    icd = tmp_path / "usr/share/vulkan/icd.d/nvidia_icd.json"
    icd.parent.mkdir(parents=True)
    (icd.parent / "lvp_icd.json").write_text("{}")
    if there == "node":
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidiactl").touch()
    elif there == "named":
        icd = tmp_path / "nvidia_layers.json"
        monkeypatch.setenv("VK_ICD_FILENAMES", str(icd))
    if there != "nothing" and there != "node":
        good = '{"ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4"}}'
        icd.write_text("{" if there == "icd unreadable" else good)
    lib = faults.install(monkeypatch)
    lib.fail["vkCreateInstance"] = -9
    with pytest.raises(DeviceError, match="vkCreateInstance failed") as caught:
        open_device(validate=False)
    text = str(caught.value)
    assert "VK_ERROR_INCOMPATIBLE_DRIVER" in text and "mesa-vulkan-drivers" in text
    assert ("libegl1 libglx0 libgl1" in text) == (there != "nothing")
    assert (str(icd) in text) == (there in ("icd", "icd unreadable", "named"))
    assert ("(libGLX_nvidia.so.0)" in text) == (there in ("icd", "named"))
    assert ("NVIDIA_DRIVER_CAPABILITIES" in text) == (there == "node")


def test_missing_layer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load(), "enumerate", lambda *_, **__: [])
    with pytest.raises(DeviceError, match="vulkan-validationlayers"):
        open_device(validate=True)


@pytest.mark.parametrize(
    "limit", ["maxPerStageDescriptorInputAttachments", "maxFragmentOutputAttachments"]
)
def test_limit_of_zero_is_named(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    lib = faults.install(monkeypatch)
    lib.after["vkGetPhysicalDeviceProperties"] = lambda _, p: setattr(p.limits, limit, 0)
    with pytest.raises(DeviceError, match="= 0"):
        open_device()


# Vulkan calls that fail

CALLS_OF_OPEN = ("vkCreateInstance", "vkEnumeratePhysicalDevices", "vkCreateDevice")
CALLS_OF_WORK = (
    "vkCreateCommandPool",
    "vkCreateFence",
    "vkAllocateCommandBuffers",
    "vkCreatePipelineCache",
    "vkGetPipelineCacheData",
    "vkCreateImage",
    "vkCreateImageView",
    "vkAllocateMemory",
    "vkBindImageMemory",
    "vkCreateBuffer",
    "vkBindBufferMemory",
    "vkMapMemory",
    "vkCreateRenderPass",
    "vkCreateFramebuffer",
    "vkCreateShaderModule",
    "vkCreateDescriptorSetLayout",
    "vkCreatePipelineLayout",
    "vkCreateGraphicsPipelines",
    "vkCreateComputePipelines",
    "vkCreateSampler",
    "vkCreateDescriptorPool",
    "vkAllocateDescriptorSets",
    "vkCreateQueryPool",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
    "vkQueueSubmit",
    "vkWaitForFences",
    "vkResetFences",
    "vkGetQueryPoolResults",
)
ERRORS = {-1: OutOfMemoryError, -2: OutOfMemoryError, -3: DeviceError, -4: DeviceLostError}


def everything(opened: list[Device]) -> None:
    """A bit of each feature; the device is noted in ``opened`` as soon as it is there."""
    from test_run import all_features_plan

    device = open_device(validate=False)
    opened.append(device)
    device.upload(1, "R32F", 8, 4, bytes(128))
    executable = device.compile(all_features_plan())
    executable.run()
    executable.download(0)
    executable.download_buffer(0)
    executable.run_timed()


def test_a_fence_that_is_asked_need_not_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = faults.install(monkeypatch)
    with open_device(validate=False) as device:
        assert device.context.ask_first_s == (0.0 if device.info.type == "cpu" else ASK_FIRST_S)
        executable = device.compile(FILL)
        for seconds, asked, waited in ((0.0, False, True), (60.0, True, False)):
            device.context.ask_first_s = seconds
            lib.called.clear()
            executable.run()
            assert ("vkGetFenceStatus" in lib.called) == asked
            assert ("vkWaitForFences" in lib.called) == waited
        device.context.ask_first_s = 1e-3  # not ready in time: then it is waited for
        lib.fail["vkGetFenceStatus"] = 1
        executable.run()
        assert lib.called["vkGetFenceStatus"] > 1 and lib.called["vkWaitForFences"] == 1
        device.context.ask_first_s = 60.0
        lib.fail["vkGetFenceStatus"] = -4
        with pytest.raises(DeviceLostError, match="vkGetFenceStatus"):
            executable.run()


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("call", [*CALLS_OF_OPEN, *CALLS_OF_WORK])
def test_failing_call_is_a_typed_error_and_nothing_leaks(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    lib = faults.install(monkeypatch)
    faults.fail(monkeypatch, lib, call, code)
    opened: list[Device] = []
    expected = DeviceError if call in CALLS_OF_OPEN[:2] else ERRORS[code]
    with pytest.raises(expected, match=f"{call}|VkPhysicalDevice"):
        everything(opened)
    lib.fail.clear()
    for device in opened:
        if code == -4:
            with pytest.raises(DeviceLostError, match="open a new device"):
                device.ensure(2, "R32F", 1, 1)
        device.close()
        assert not any(device.live_handles().values())
    created = {n: lib.called[n] for n in lib.called if n.startswith("vkCreate")}
    for name, count in created.items():
        if name == call or name.endswith("Pipelines"):
            continue
        destroyed = lib.called.get(name.replace("Create", "Destroy"), 0)
        assert destroyed == count, name


# Validation


def validating() -> Device:
    try:
        return open_device(validate=True)
    except DeviceError as error:
        pytest.skip(str(error))


def test_planted_fault_is_a_validation_error() -> None:
    """An integer output on a float attachment."""
    with validating() as device:
        with pytest.raises(ValidationError, match=r"1 message(.|\n)*error|warning"):
            device.compile(plan(stage(draw(frag("y = 1;", "int")))))
        device.check_validation()
        with device.compile(FILL) as executable:
            executable.run()


def test_missing_barrier_is_a_validation_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synchronization validation is on: the same image copied to twice with nothing in between."""
    with validating() as device:
        for name in ("barrier", "dispatch_barrier"):
            monkeypatch.setattr(record, name, lambda *_, **__: None)
        updates = ((0, 2), (1, 2))
        with pytest.raises(ValidationError, match="WRITE_AFTER_WRITE"):
            device.compile(plan(images=(image(0), image(1), image(2)), updates=updates))


def test_compile_glsl_needs_no_device() -> None:
    assert compile_glsl([("frag", frag("y = 1.0;"))])[0][:4] == b"\x03\x02\x23\x07"
