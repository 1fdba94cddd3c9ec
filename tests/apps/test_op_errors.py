"""The errors in the table of ops (docs/op_errors.json) are those of the device that they name.

``python scripts/make_op_table.py --measure`` writes them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dressi import DressiAD
from dressi.ad.registry import OPS
from dressi.apps.doctor import examine_ops

STORED = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "op_errors.json").read_text(encoding="utf-8")
)
FACTOR, FLOOR = 4.0, 1e-6
"""Another version of the driver may round differently: by how much. Below the floor, any error is
one of rounding."""
NAMES = [name for name in STORED["ops"] if name in OPS and OPS[name].cases]


def over(measured: float | None, stored: float | None) -> bool:
    """Whether an error is larger than what is stored allows."""
    if measured is None:
        return stored is not None
    return stored is None or not measured <= max(FACTOR * stored, FLOOR)


def test_every_op_with_cases_has_errors_and_no_other() -> None:
    """After an op was added: python scripts/make_op_table.py --measure, on lavapipe."""
    assert set(STORED["ops"]) == {name for name, op in OPS.items() if op.cases}


def test_what_is_too_large_is_told() -> None:
    assert not over(3.9e-5, 1e-5) and over(4.1e-5, 1e-5)
    assert not over(9e-7, 0.0) and over(2e-6, 0.0)
    assert over(float("nan"), 1e-5) and over(1e-5, None) and over(None, 1e-5)
    assert not over(None, None)


@pytest.mark.gpu
def test_errors_of_the_table_are_those_of_the_device() -> None:
    """On the device that they were measured on; every fourth op."""
    with DressiAD() as ad:
        if ad.device_info.name.split()[0] != STORED["device"].split()[0]:
            pytest.skip(f"measured on {STORED['device']}, this is {ad.device_info.name}")
    wrong = []
    for found in examine_ops(None, NAMES[::4]):
        forward, gradient = STORED["ops"][found.check.removeprefix("F.")]
        if over(found.forward, forward) or over(found.gradient, gradient):
            wrong.append(f"{found.check}: {found.forward} / {found.gradient}")
    assert wrong == []
