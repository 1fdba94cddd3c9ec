"""What tests of Dressi, and of programs that use it, need beside the library itself.

``NullDevice``: a device without Vulkan, for ``DressiAD(NullDevice())``.
"""

from dressi.testing.null_device import NullDevice

__all__ = ["NullDevice"]
