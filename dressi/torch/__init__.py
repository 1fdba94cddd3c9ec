"""Dressi behind PyTorch: compiled graphs as layers. Needs torch (``pip install '.[torch]'``).

``import dressi`` never imports this package.
"""

from __future__ import annotations

from dressi.torch.function import Compiled, apply, engine

__all__ = ["Compiled", "apply", "engine"]
