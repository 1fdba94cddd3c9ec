"""Arrays to and from other libraries through DLPack, on the CPU without a copy.

In: any object with ``__dlpack__``, or an array. Out: NumPy arrays, which have it too. What
``recv_img`` and ``VJP`` return are arrays of the host, and what they take is copied to the device
by them, so host memory is where libraries meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError

CPU = 1
"""kDLCPU of DLPack."""


def from_dlpack(obj: Any) -> npt.NDArray[Any]:
    """Return an array of another library (JAX, PyTorch, CuPy's host arrays) for ``send_img``: a
    view of its memory, which may be read-only.

    obj: has ``__dlpack__`` and ``__dlpack_device__``; numbers of any real type, any shape. Raises
    GraphError for other objects, for memory that is not the CPU's, and where the library refuses (a
    tensor that requires a gradient).
    """
    if not hasattr(obj, "__dlpack__") or not hasattr(obj, "__dlpack_device__"):
        raise GraphError(
            f"from_dlpack: needs an object with __dlpack__ and __dlpack_device__, got "
            f"{type(obj).__name__}"
        )
    try:
        kind, _ = obj.__dlpack_device__()
        if int(kind) != CPU:
            raise GraphError(
                f"from_dlpack: the {type(obj).__name__} lies on a device of DLPack's type "
                f"{int(kind)}, not on the CPU (1)\n  hint: copy it to the host first"
            )
        array = np.from_dlpack(obj)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(f"from_dlpack: {type(obj).__name__}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise GraphError(f"from_dlpack: needs real numbers, got {array.dtype}")
    return array


def to_dlpack(x: Any) -> npt.NDArray[Any]:
    """Return an array with ``__dlpack__`` and ``__dlpack_device__`` for the ``from_dlpack`` of
    another library: what ``recv_img``, ``recv_grad`` and ``VJP`` give, as it is.

    x: a NumPy array of float32 or int32. The same array where other libraries may take its memory
    (they may write to it, so it must be writable), else a copy. Raises GraphError for anything
    else.
    """
    kinds = (np.float32, np.int32)
    if not isinstance(x, np.ndarray) or x.dtype.newbyteorder("=") not in kinds:
        what = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise GraphError(
            f"to_dlpack: needs what recv_img gives, an array of float32 or int32, got {what}\n"
            "  hint: a Variable's data is ad.recv_img(variable)"
        )
    native = x.dtype.isnative and x.flags.writeable and x.flags.c_contiguous
    return x if native else np.array(x, x.dtype.newbyteorder("="), order="C")
