"""The number of this process, without a call of the system, which takes microseconds: a step of a
layer asks six times.

Out: ``pid``, to be read as ``process.pid``: a forked child has another one.
"""

from __future__ import annotations

import os

pid = os.getpid()


def _forked() -> None:
    global pid
    pid = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
