"""The Vulkan instance: loader, validation layers, list of devices and the choice of one.

In: whether to validate; a selector. Out: ``Instance`` and the physical device.
"""

from __future__ import annotations

from typing import Any

from dressi.errors import DeviceError
from dressi.vk.api import Api, Arena, CData, install_hint, load, result_name
from dressi.vk.query import DeviceInfo, read_info, unique_names

_LAYER = "VK_LAYER_KHRONOS_validation"
_BEST_FIRST = ("gpu-discrete", "gpu-integrated", "gpu-virtual", "other", "cpu")

UUID_DIGITS = 8
"""Of the beginning of a UUID, at least, to be one: fewer could be meant as part of a name."""

KNOWN_FALSE_POSITIVES: dict[str, str] = {}
"""Message id to the reason why it is not an error. Empty: nothing is ignored."""


class Instance:
    """A VkInstance. ``messages`` collects what the validation layers say; empty without them."""

    def __init__(self, validate: bool) -> None:
        self.api: Api = load()
        self.messages: list[str] = []
        self.set_name: Any = None
        self._messenger: CData = None
        self._closed = False
        self._callback: CData = None
        api, arena = self.api, Arena(self.api)
        offered = _extension_names(api, None)
        enabled = {
            "VK_KHR_get_physical_device_properties2",
            "VK_KHR_portability_enumeration",
        } & offered
        layers: list[str] = []
        chain = api.null
        if validate:
            self._require_layer()
            layers = [_LAYER]
            from_layer = _extension_names(api, _LAYER)
            enabled |= {"VK_EXT_debug_utils", "VK_EXT_validation_features"} & (offered | from_layer)
            sync = api.c.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
            chain = arena.struct(
                "VkValidationFeaturesEXT",
                enabledValidationFeatureCount=1,
                pEnabledValidationFeatures=arena.array("VkValidationFeatureEnableEXT", [sync]),
            )
        portable = "VK_KHR_portability_enumeration" in enabled
        names = sorted(enabled)
        info = arena.struct(
            "VkInstanceCreateInfo",
            pNext=chain,
            flags=api.c.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if portable else 0,
            pApplicationInfo=arena.struct(
                "VkApplicationInfo", pApplicationName=b"dressi", apiVersion=_api_version(api)
            ),
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=arena.texts(layers),
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=arena.texts(names),
        )
        out = api.ffi.new("VkInstance *")
        result = api.lib.vkCreateInstance(info, api.null, out)
        if result < 0:
            raise DeviceError(
                f"vkCreateInstance failed: {result_name(api, result)} (no driver that can be "
                f"loaded)\n  {install_hint()}"
            )
        self.handle = out[0]
        with api.lock:  # engines may be made in several threads
            api.n_instances += 1
            second = api.n_instances == 2
        if second:
            _keep_driver_loaded(api)
        if validate:
            try:
                self._listen()
            except BaseException:
                self.close()
                raise

    def _require_layer(self) -> None:
        api = self.api
        found = api.enumerate(
            api.lib.vkEnumerateInstanceLayerProperties,
            "VkLayerProperties",
            call="vkEnumerateInstanceLayerProperties",
            read=lambda p: api.ffi.string(p.layerName).decode(),
        )
        if _LAYER not in found:
            raise DeviceError(
                f"DRESSI_VALIDATE asks for {_LAYER}, which is not installed\n"
                "  hint: apt-get install vulkan-validationlayers, or install the LunarG Vulkan SDK"
            )

    def _listen(self) -> None:
        """Registers the callback that fills ``messages``, and finds the function that names
        objects."""
        api, c, arena = self.api, self.api.c, Arena(self.api)
        create = api.instance_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
        if create is None:
            raise DeviceError("VK_EXT_debug_utils, which carries validation messages, is missing")
        messages = self.messages

        def on_message(severity: int, _types: int, data: CData, _user: CData) -> int:
            ident = ""
            if data.pMessageIdName != api.null:
                ident = api.ffi.string(data.pMessageIdName).decode(errors="replace")
            if ident not in KNOWN_FALSE_POSITIVES:
                text = api.ffi.string(data.pMessage).decode(errors="replace")
                level = "error" if severity & error else "warning"
                messages.append(f"{level} {ident}: {text}")
            return 0

        error = c.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
        # The callback object must outlive the messenger: the layer keeps only its address.
        self._callback = api.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", on_message)
        info = arena.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=error | c.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
            # Not the performance type: it advises against the general layout, which is our choice.
            messageType=c.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
            | c.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
            pfnUserCallback=self._callback,
        )
        out = api.ffi.new("VkDebugUtilsMessengerEXT *")
        result = create(self.handle, info, api.null, out)
        if result < 0:
            raise DeviceError(f"vkCreateDebugUtilsMessengerEXT failed: {result_name(api, result)}")
        self._messenger = out[0]
        self.set_name = api.instance_function(self.handle, "vkSetDebugUtilsObjectNameEXT")

    def devices(self) -> list[tuple[CData, DeviceInfo]]:
        """All physical devices with their descriptions, in the loader's order."""
        api = self.api
        found = api.enumerate(
            api.lib.vkEnumeratePhysicalDevices,
            "VkPhysicalDevice",
            self.handle,
            call="vkEnumeratePhysicalDevices",
            read=lambda handle: handle,
        )
        return [(p, read_info(api, self.handle, p, i)) for i, p in enumerate(found)]

    def live(self) -> int:
        """1 while the instance exists, then 0."""
        return 0 if self._closed else 1

    def close(self) -> None:
        """Destroys messenger and instance. Idempotent."""
        if self._closed:
            return
        self._closed = True
        api = self.api
        if self._messenger is not None:
            destroy = api.instance_function(self.handle, "vkDestroyDebugUtilsMessengerEXT")
            destroy(self.handle, self._messenger, api.null)
        api.lib.vkDestroyInstance(self.handle, api.null)


Found = list[tuple[CData, DeviceInfo]]


def choose(devices: Found, selector: str | int | None) -> tuple[CData, DeviceInfo]:
    """The device that a selector means: an index, a name or part of one (any case), ``name#k``, a
    UUID or at least 8 digits of its beginning, or None for the best.

    Of several that fit a name the best is meant, then the first by index; ``name#k`` is the k-th
    of them by index, from 0. Raises DeviceError that lists the devices there are, or says what to
    install when there is none.
    """
    return fitting(devices, selector)[0]


def fitting(devices: Found, selector: str | int | None) -> Found:
    """All devices that a selector may mean, the best first; at least one. Raises as ``choose``."""
    if not devices:
        raise DeviceError(f"no Vulkan device: the loader finds no driver\n  {install_hint()}")
    found = sorted(devices, key=lambda d: _BEST_FIRST.index(d[1].type))
    if selector is not None:
        text = str(selector).strip().lower()
        by_index = [d for d in devices if str(d[1].index) == text]
        if by_index or isinstance(selector, int):
            found = by_index
        else:  # a text like '3090' that is no index may still be part of a name
            found = _named(found, text) or _numbered(devices, text) or _by_uuid(devices, text)
    if not found:
        names = unique_names([info for _, info in devices])
        there = "\n".join(
            f"  {i.index}: {name} ({i.type}, {i.driver}){f'  {i.uuid}' if i.uuid else ''}"
            for name, (_, i) in zip(names, devices, strict=True)
        )
        raise DeviceError(
            f"no Vulkan device fits {selector!r}; there are:\n{there}\n"
            "  hint: give an index, part of a name, name#k or a UUID (DRESSI_DEVICE or open_device)"
        )
    return found


def _named(devices: Found, text: str) -> Found:
    """Those of just this name ('nvidia h100' is not 'nvidia h100 nvl'), else with it as a part."""
    exact = [d for d in devices if d[1].name.lower() == text]
    return exact or [d for d in devices if text in d[1].name.lower()]


def _numbered(devices: Found, text: str) -> Found:
    name, _, number = text.rpartition("#")
    if not name or not (number.isascii() and number.isdigit()):
        return []
    return _named(devices, name.strip())[int(number) :][:1]


def _by_uuid(devices: Found, text: str) -> Found:
    """Only where the digits leave no choice. Of the drivers that know the same device, which tell
    the same UUID, the first."""
    digits = text.removeprefix("gpu-")
    found = [d for d in devices if d[1].uuid.startswith(digits)]
    one = len({d[1].uuid for d in found}) == 1
    return found[:1] if len(digits) >= UUID_DIGITS and one else []


def _keep_driver_loaded(api: Api) -> None:
    """One more instance that is never destroyed. Without any, the loader unloads the driver and
    loads it again for the next engine; NVIDIA's fails after some sixty times (each load takes
    static thread-local storage for good). Not for the first engine: most programs have only one."""
    info = Arena(api).struct("VkInstanceCreateInfo")
    out = api.ffi.new("VkInstance *")
    api.lib.vkCreateInstance(info, api.null, out)  # without it all goes on as before


def _api_version(api: Api) -> int:
    """Vulkan 1.1 where the loader knows it; nothing newer is used."""
    if api.lib.vkGetInstanceProcAddr(api.null, b"vkEnumerateInstanceVersion") == api.null:
        return 1 << 22
    return 1 << 22 | 1 << 12


def _extension_names(api: Api, layer: str | None) -> set[str]:
    arena = Arena(api)
    name = api.null if layer is None else arena.text(layer.encode())
    return set(
        api.enumerate(
            api.lib.vkEnumerateInstanceExtensionProperties,
            "VkExtensionProperties",
            name,
            call="vkEnumerateInstanceExtensionProperties",
            read=lambda e: api.ffi.string(e.extensionName).decode(),
        )
    )
