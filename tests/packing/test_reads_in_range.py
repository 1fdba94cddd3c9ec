"""Physical pixels that carry no logical one read nothing: buffers, images and uniforms may have
ended there. Drivers on CPUs check every read; others need not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.packing import Options, pack, shaders_text
from dressi.packing.limits import LLVMPIPE, DeviceLimits

N = 5
"""Rows of the tables: folded to 4 x 2 pixels."""
RETURN = re.compile(r"^  if \(pos\.x >= pushed\[\d+\]\) return;$", re.M)


def _shaders(y: Variable, limits: DeviceLimits = LLVMPIPE) -> list[str]:
    """The main() of each fragment shader that runs over all of the table."""
    options = Options(lowering="graphics", rematerialize=False)
    text = shaders_text(pack(simplify([materialize(y)]), [], limits, options=options).plan)
    mains = re.findall(r"void main\(\) \{\n(.*?)\n\}\n", text, re.S)
    return [m for m in mains if "gl_FragCoord" in m]


def _reads_buffer() -> Variable:
    value = Variable(FLOAT, (7, 4))
    return F.scatter_add(value, Variable(INT, (7, 4)), (N, 1)) * 2.0


def _reads_elsewhere() -> Variable:
    return F.image.shift(Variable(VEC3, (N, 1)), 1, 0)


def _reads_rows() -> Variable:
    index = F.leaf(np.arange(7, dtype=np.int32)[:, None] % N, INT)
    table = Variable(FLOAT, (N, 1), requires_grad=True)
    from dressi.ad import build_backward

    return build_backward(F.lookup(table, index) * Variable(FLOAT, (7, 1)), [table])[table]


@pytest.mark.parametrize("make", [_reads_buffer, _reads_elsewhere, _reads_rows])
def test_padding_returns_before_it_reads(make) -> None:  # type: ignore[no-untyped-def]
    mains = [m for m in _shaders(make()) if re.search(r"fetch\d+\(", m) and "<< pushed[" in m]
    assert mains
    for main in mains:
        first = RETURN.search(main)
        assert first is not None
        assert first.start() < re.search(r"fetch\d+\(", main).start()  # type: ignore[union-attr]


def test_what_reads_its_own_pixel_does_not_branch() -> None:
    mains = _shaders(Variable(FLOAT, (N, 1)) * Variable(FLOAT, (N, 1)))
    assert mains
    assert not [m for m in mains if "return" in m]
