"""Every op with every type that it takes, in passes and in dispatches, on devices with and without
subgroups and atomics: packing and the text of shaders know them all. What they compute is compared
in tests/engine/test_types_on_device.py."""

from __future__ import annotations

import pytest

from dressi.ad import Variable, build_backward, simplify
from dressi.ad.registry import OPS
from dressi.ad.simplify import own_image
from dressi.packing import Options, check_plan, pack
from dressi.packing.limits import PRESETS
from dressi.testing.cases import differentiable, first_config, instance, projected, typed_cases

WITH_CASES = [name for name, op in OPS.items() if op.cases]

WAYS = (
    ("nvidia", "graphics", False),
    ("nvidia", "compute", False),
    ("nvidia", "compute", True),
    ("minimum", "compute", False),
)


def outputs_of(name: str) -> list[Variable]:
    """What the first case of an op makes with every type, and the gradients."""
    found = []
    for k, case in typed_cases(name, 1):
        made = instance(name, k, case, first_config(case))
        found.append(made.output)
        if case.gradient:
            w = Variable(made.output.vtype, made.output.size, made.output.layers)
            grads = build_backward(projected(made.output, w), differentiable(made.inputs))
            found += grads.values()
    return found


@pytest.mark.parametrize("name", WITH_CASES)
def test_every_type_is_written_every_way(name: str) -> None:
    outputs = outputs_of(name)
    assert outputs
    made = [own_image(v) for v in simplify(outputs)]
    for preset, lowering, deterministic in WAYS:
        options = Options(lowering=lowering, deterministic=deterministic)
        plan = pack(made, [], PRESETS[preset], options).plan
        check_plan(plan, PRESETS[preset])
