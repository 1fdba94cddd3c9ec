"""Puts tests/helpers on the path (pytest's import mode `importlib` leaves it off)."""

from __future__ import annotations

import sys
from pathlib import Path

HELPERS = str(Path(__file__).resolve().parent.parent / "helpers")
if HELPERS not in sys.path:
    sys.path.insert(0, HELPERS)
