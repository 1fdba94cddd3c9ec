"""Ctrl-C that waits until a step is complete.

In: SIGINT. Out: ``DeferredInterrupt``, which notes it and handles it at the end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """While it is open, Ctrl-C only sets ``came``; at the end it does what it always does (raise
    KeyboardInterrupt, or what a handler of the user's does). Outside of the main thread, where no
    signal comes, and where SIGINT is not handled by Python, nothing changes."""

    def __init__(self) -> None:
        self.came = False
        """Whether what is going on should end soon."""
        self._before: Any = None
        self._frame: FrameType | None = None

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self.came, self._frame = True, frame

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # neither ignored nor left to the system nor to other code
                self._before = before
                try:
                    signal.signal(signal.SIGINT, self._note)
                except ValueError:  # the main thread of an interpreter that is not the main one
                    self._before = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self.came:
            self._before(signal.SIGINT, self._frame)
