"""Views split over several devices: data parallelism with plain Vulkan.

In: a function that builds the loss of some of the views. Out: ``DataParallel``, which steps one
replica of the graph per device, adds their gradients up and keeps the parameters equal everywhere;
``HostParallel`` does so over several processes or machines.
"""

from dressi.parallel.data_parallel import DataParallel
from dressi.parallel.hosts import HostParallel, Hosts
from dressi.parallel.shares import Share, split_views

__all__ = ["DataParallel", "HostParallel", "Hosts", "Share", "split_views"]
