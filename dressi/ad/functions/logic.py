"""Logic on masks: what is not 0 is true; results are 1 and 0. No gradients.

All are compositions of comparisons, so they fold into the shader that uses them.
"""

from __future__ import annotations

from typing import Any

from dressi.ad.functions._common import lift, needs_variable
from dressi.ad.functions.arith import maximum
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.select import compare
from dressi.ad.graph import Variable


def _true(x: Variable) -> Variable:
    return compare("ne", x, 0)


def logical_and(a: Any, b: Any) -> Variable:
    """1 where a and b are not 0, else 0, per component.

    a, b: FLOAT, VECn, INT, IVECn with equally many components, or one of them a scalar. Returns
    FLOAT or VECn. No gradient.
    """
    a, b = lift("logical_and", a, b)
    return _true(a) * _true(b)


def logical_or(a: Any, b: Any) -> Variable:
    """1 where a or b is not 0, else 0, per component.

    a, b: FLOAT, VECn, INT, IVECn with equally many components, or one of them a scalar. Returns
    FLOAT or VECn. No gradient.
    """
    a, b = lift("logical_or", a, b)
    return maximum(_true(a), _true(b))


def logical_xor(a: Any, b: Any) -> Variable:
    """1 where exactly one of a and b is not 0, else 0, per component.

    a, b: FLOAT, VECn, INT, IVECn with equally many components, or one of them a scalar. Returns
    FLOAT or VECn. No gradient.
    """
    a, b = lift("logical_xor", a, b)
    return compare("ne", _true(a), _true(b))


def logical_not(x: Any) -> Variable:
    """1 where x is 0, else 0, per component. FLOAT, VECn, INT, IVECn to FLOAT or VECn. No
    gradient."""
    return compare("eq", x, 0)


def any_components(x: Variable) -> Variable:
    """FLOAT: 1 where a component of x is not 0, else 0. FLOAT, VECn, INT, IVECn. No gradient."""
    return compare("gt", sum_components(_true(needs_variable("any_components", x))), 0.0)


def all_components(x: Variable) -> Variable:
    """FLOAT: 1 where no component of x is 0, else 0. FLOAT, VECn, INT, IVECn. No gradient."""
    n = needs_variable("all_components", x).vtype.n
    return compare("eq", sum_components(_true(x)), float(n))
