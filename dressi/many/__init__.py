"""Many independent fits: a function and a list of settings, on one process, many, or many machines.

``map_fits`` runs one task per item on workers of Dask (the extra ``dressi[many]``), keeps results
in a folder that survives whatever stops it, and gives the same results in any order.
"""

from dressi.many.run import Progress, Run, map_fits
from dressi.many.store import Result, Store
from dressi.many.tasks import Fingerprint, Task
from dressi.many.warm import Context, Warm

__all__ = [
    "Context",
    "Fingerprint",
    "Progress",
    "Result",
    "Run",
    "Store",
    "Task",
    "Warm",
    "map_fits",
]
