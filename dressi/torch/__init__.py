"""Dressi behind PyTorch: compiled graphs as layers. Needs torch (``pip install '.[torch]'``).

``import dressi`` never imports this package.
"""

from __future__ import annotations

from dressi.torch.function import Compiled, apply, engine
from dressi.torch.inputs import Input
from dressi.torch.layer import Layer, compile

__all__ = ["Compiled", "Input", "Layer", "apply", "compile", "engine"]
