"""Views split over several devices: data parallelism with plain Vulkan.

In: a function that builds the loss of some of the views. Out: ``DataParallel``, which steps one
replica of the graph per device, adds their gradients up and keeps the parameters equal everywhere.
"""

from dressi.parallel.data_parallel import DataParallel
from dressi.parallel.shares import Share, split_views

__all__ = ["DataParallel", "Share", "split_views"]
