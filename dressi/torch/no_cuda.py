"""Scripts written for CUDA on a machine without: what they ask to be on a GPU stays on the CPU.

In: nothing. Out: changed modules of this process: ``nvdiffrast.torch`` is
``dressi.torch.nvdiffrast``; ``device="cuda"``, ``.cuda()``, ``torch.cuda.synchronize`` and the like
work without a GPU. A script sees its tensors on ``cuda:0``; torch and Dressi see the truth.
"""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import dressi.torch.nvdiffrast as implementation

NVDIFFRAST_VERSION = "0.4.0"
"""Of the documentation that the interface follows, for scripts that ask."""


def alias_nvdiffrast() -> None:
    """Let ``import nvdiffrast.torch`` give ``dressi.torch.nvdiffrast``."""
    package = types.ModuleType("nvdiffrast", "Stands for nvdiffrast: see dressi.torch.nvdiffrast.")
    package.__path__ = []
    package.__spec__ = ModuleSpec("nvdiffrast", None, is_package=True)  # for find_spec
    package.__version__ = NVDIFFRAST_VERSION  # type: ignore[attr-defined]
    package.torch = implementation  # type: ignore[attr-defined]
    sys.modules["nvdiffrast"] = package
    sys.modules["nvdiffrast.torch"] = implementation


_modes: list[_OnCpu] = []


def map_cuda_to_cpu() -> None:
    """Map every CUDA device to the CPU, in this thread and those that it starts. For processes that
    run one script: it changes torch. A second call does nothing."""
    if _modes:
        return
    cuda: Any = torch.cuda
    for name, value in _CONSTANTS.items():
        setattr(cuda, name, _constant(value))
    for place in (cuda, cuda.random):
        for name, f in _RANDOM.items():
            setattr(place, name, f)
    cuda.get_device_properties = lambda device=None: _properties()
    cuda.Event, cuda.Stream = _Event, _Stream
    cuda.stream = lambda stream=None: _Stream()
    cuda.current_stream = cuda.default_stream = lambda device=None: _Stream()
    cuda.device = _Device
    for kind in ("Float", "Double", "Half", "Int", "Long", "Short", "Byte", "Bool"):
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
        if hasattr(torch.sparse, f"{kind}Tensor"):
            setattr(cuda.sparse, f"{kind}Tensor", getattr(torch.sparse, f"{kind}Tensor"))
    for part, names in (
        (cuda.nvtx, ("range_push", "range_pop", "mark")),
        (cuda.profiler, ("init", "start", "stop")),
        (torch.backends.cuda, ("preferred_linalg_library", "preferred_blas_library")),
    ):
        for name in names:
            setattr(part, name, _constant(None))
    torch.version.cuda = torch.version.cuda or CUDA_VERSION
    torch.Generator = _constructor(torch.Generator)  # type: ignore[assignment, misc]
    for name in ("set_default_device", "set_default_tensor_type", "load", "autocast"):
        setattr(torch, name, _mapped(getattr(torch, name)))
    torch.load = _loading(torch.load)
    torch.compile = _as_it_is
    autograd: Any = torch.autograd
    autograd._engine_run_backward = _with_mode(autograd._engine_run_backward)
    torch.Tensor.record_stream = _constant(None)  # type: ignore[method-assign]
    jit: Any = torch.jit
    jit.load, jit.script = _loading(jit.load), _scripting(jit.script)
    module: Any = torch.nn.Module
    module.to = _module_to(module.to)
    # The package has a function of that name.
    parallel: Any = sys.modules["torch.nn.parallel.data_parallel"]
    parallel._get_available_device_type = _constant(None)  # DataParallel is its module then
    for storage in (torch.UntypedStorage, torch.TypedStorage):
        storage.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    threading.Thread.run = _with_mode(threading.Thread.run)  # type: ignore[method-assign]
    if torch.distributed.is_available():
        _map_processes()
    _modes.append(_OnCpu())
    _modes[0].__enter__()


def _seed(seed: int) -> None:
    # Not torch.manual_seed, which calls this.
    torch.default_generator.manual_seed(int(seed))


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


_RANDOM: dict[str, Callable[..., Any]] = {
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "seed": torch.seed,
    "seed_all": torch.seed,
    "initial_seed": torch.initial_seed,
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    "get_rng_state_all": _constant([]),
    "set_rng_state_all": _constant(None),
}
"""Functions of ``torch.cuda`` and ``torch.cuda.random``."""

CUDA_VERSION = "12.4"
"""What scripts that ask are told: nothing depends on it."""


_CONSTANTS: dict[str, Any] = {
    "is_available": True,
    "is_initialized": True,
    "init": None,
    "device_count": 1,
    "current_device": 0,
    "set_device": None,
    "synchronize": None,
    "empty_cache": None,
    "ipc_collect": None,
    "get_device_name": "CPU (no CUDA)",
    "get_device_capability": (8, 0),
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "reset_peak_memory_stats": None,
    "reset_accumulated_memory_stats": None,
    "reset_max_memory_allocated": None,
    "reset_max_memory_cached": None,
    "memory_cached": 0,
    "max_memory_cached": 0,
    "memory_stats": {},
    "memory_summary": "",
    "can_device_access_peer": False,
    "utilization": 0,
    "is_bf16_supported": True,
    "mem_get_info": (1 << 32, 1 << 32),
    "memory_snapshot": [],
    "set_per_process_memory_fraction": None,
    "is_current_stream_capturing": False,
    "set_stream": None,
    "cudart": None,
}
"""What functions of ``torch.cuda`` return."""


def _properties() -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="CPU (no CUDA)", total_memory=1 << 32, major=8, minor=0, multi_processor_count=1
    )


def _on_cpu(value: Any) -> Any:
    """``cpu`` for a CUDA device, or the CPU's type for the name of a CUDA tensor type."""
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return "cpu"
        return value.replace("torch.cuda.", "torch.") if value.startswith("torch.cuda.") else value
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


def _mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with CUDA devices among its arguments mapped."""

    def mapped(*args: Any, **kwargs: Any) -> Any:
        return f(*map(_on_cpu, args), **{k: _on_cpu(v) for k, v in kwargs.items()})

    mapped.__name__, mapped.__doc__ = f.__name__, f.__doc__
    return mapped


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """torch.load, which puts on the CPU what was saved from a GPU, or is to be put on one."""

    def loading(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {"cuda": "cpu", **{k: _on_cpu(v) for k, v in map_location.items()}}
        return load(f, "cpu" if map_location is None else map_location, *args, **kwargs)

    return loading


def _module_to(to: Callable[..., Any]) -> Callable[..., Any]:
    """nn.Module.to, which takes the number of a GPU too."""

    def module_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cpu", *args[1:])
        return to(self, *args, **_on_cpu_by_name(kwargs))

    return module_to


def _as_it_is(model: Any = None, **_: Any) -> Any:
    """torch.compile, and its decorator: what it would compile for a GPU runs as it is."""
    return _as_it_is if model is None else model


def _with_mode(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it calls of Python's mapped too: a thread has no mode at first, and
    within a call that a mode maps, as ``Tensor.backward``, the mode is off."""

    def with_mode(*args: Any, **kwargs: Any) -> Any:
        with _OnCpu():
            return f(*args, **kwargs)

    return with_mode


def _map_processes() -> None:
    """Let processes talk by gloo where they ask for NCCL, also behind DistributedDataParallel."""
    distributed: Any = torch.distributed
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, _by_gloo(getattr(distributed, name)))
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    init = parallel.__init__

    def init_on_cpu(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        args = (None, None, *args[2:])[: len(args)]  # device_ids, output_device
        init(self, module, *args, **{**kwargs, "device_ids": None, "output_device": None})

    parallel.__init__ = init_on_cpu


def _by_gloo(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with gloo for NCCL among its arguments."""

    def by_gloo(*args: Any, **kwargs: Any) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if k != "device_id"}  # of a GPU
        kwargs = {k: _gloo(v) if k == "backend" else v for k, v in kwargs.items()}
        return f(*map(_gloo, args), **kwargs)

    return by_gloo


def _gloo(value: Any) -> Any:
    return "gloo" if isinstance(value, str) and "nccl" in value else value


def _scripting(script: Callable[..., Any]) -> Callable[..., Any]:
    """torch.jit.script, which leaves functions as they are: what is compiled asks for devices where
    nothing maps them."""

    def scripting(obj: Any, *args: Any, **kwargs: Any) -> Any:
        # With _rcb the compiler asks, for what a module calls.
        plain = isinstance(obj, types.FunctionType) and "_rcb" not in kwargs
        return obj if plain else script(obj, *args, **kwargs)

    return scripting


def _on_cpu_by_name(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments by name, with CUDA devices mapped, the numbers of some too, and no pinned memory,
    which is there for a GPU alone."""
    mapped = {k: _on_cpu(v) for k, v in (kwargs or {}).items() if k != "pin_memory"}
    if type(mapped.get("device")) is int:
        mapped["device"] = "cpu"
    return mapped


def _constructor(kind: type) -> type:
    """A class whose calls make a ``kind`` on the CPU, and whose instances are those of ``kind``."""

    class OnCpu(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return kind(*map(_on_cpu, args), **{k: _on_cpu(v) for k, v in kwargs.items()})

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

    return OnCpu(kind.__name__, (), {"__doc__": kind.__doc__})


class _OnCpu(TorchFunctionMode):
    """Maps CUDA devices among the arguments of every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "cuda" and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if func is torch.device:  # a name, which is mapped where it is used
            if args and type(args[0]) is int:
                args = ("cuda", *args)
            return func(*args, **(kwargs or {}))
        if func in _WHERE and _asked_by_script(sys._getframe(1)):
            return _WHERE[func]
        kwargs = _on_cpu_by_name(kwargs)
        if name == "pin_memory":
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            found = func(args[0])
            is_asked = _asked_by_script(sys._getframe(1))
            return found.replace("torch.", "torch.cuda.", 1) if is_asked else found
        if name == "to" and len(args) > 1 and type(args[1]) is int:  # .to(0): a GPU
            args = (args[0], "cpu", *args[2:])
        return func(*map(_on_cpu, args), **kwargs)


_WHERE: dict[Any, Any] = {
    torch.Tensor.device.__get__: torch.device("cuda", 0),
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.get_device: 0,
}
"""What a script is told of where a tensor is."""


def _asked_by_script(frame: types.FrameType | None) -> bool:
    """Whether the frame belongs to neither torch nor Dressi, modes of torch aside."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in ("torch.overrides", "torch.utils._device"):
            return module.partition(".")[0] not in ("torch", "dressi")
        frame = frame.f_back
    return True


class _Event:
    """A point in time. torch.cuda.Event."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3

    def synchronize(self) -> None:
        """Do nothing: what was called is done."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: what was called is done."""

    def query(self) -> bool:
        return True


class _Stream:
    """A queue that is always empty. torch.cuda.Stream, and the context of ``torch.cuda.stream``."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Do nothing: what was called is done."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: what was called is done."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: what was called is done."""

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event()
        event.record()
        return event

    def query(self) -> bool:
        return True


class _Device(_Stream):
    """The only device there is. torch.cuda.device."""

    idx = 0
