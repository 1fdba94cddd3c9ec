"""The engine: steps of a loss and an optimizer on one device (paper, A.6).

In: Variables, data of leaves. Out: ``DressiAD``, and the parts that it is made of, which
``dressi.parallel`` uses as well.
"""

from dressi.engine.engine import DressiAD

__all__ = ["DressiAD"]
