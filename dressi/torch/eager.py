"""Eager calls of graphs on tensors: a compiled plan per shapes and options, with gradients.

In: a function that builds a graph from leaves, tensors. Out: tensors, part of torch's graph. Plans
share one engine and are kept by a key, the latest used ones. Tables whose number of rows keeps
changing (a mesh that is remeshed) are padded, so that a plan serves many numbers. A batch for which
there is not enough memory is halved.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import torch

from dressi.ad.graph import Variable
from dressi.ad.vtype import INT, IVEC3, VType, vector
from dressi.errors import OutOfMemoryError
from dressi.torch.function import Compiled, apply

log = logging.getLogger("dressi")

Build = Callable[..., Sequence[Variable]]

KEPT_PLANS = 128
"""Plans that are kept: a script calls a few operations at a few sizes."""

EXACT_ROWS = 2
"""Numbers of rows that get plans of their own, per operation and images; others are padded."""

Rows = tuple[int, ...]

_lock = threading.Lock()
_rows: OrderedDict[Hashable, list[Rows]] = OrderedDict()
_plans: OrderedDict[Hashable, Compiled] = OrderedDict()
_batches: dict[Hashable, Hashable] = {}
"""What ``_halved`` holds where the plan with the same key is not to serve its whole batch again."""
_halved: OrderedDict[Hashable, None] = OrderedDict()
"""Calls whose plans did not fit, by what is known of them but the numbers of rows."""

NOTABLE = 1 / 16
"""Share of the memory in use from which a plan is worth halving: smaller ones make no room."""


def call(
    key: Hashable,
    build: Build,
    images: Sequence[torch.Tensor],
    tables: Sequence[torch.Tensor] = (),
    divisible: bool = True,
) -> list[torch.Tensor]:
    """Return the outputs of a graph at tensors, each (layers, height, width, channels), on the
    device of the first input.

    key: what ``build`` depends on beside the shapes of the inputs. build: leaves of images, then of
    tables -> outputs. images: (layers, height, width, channels). tables: (layers, rows, channels)
    or (rows, channels); rows of zeros at their end must change nothing. float32 of 1 to 4 channels,
    or int32 of 1 or 3. Gradient to the float inputs, from where the graph has one.

    divisible: whether each layer of the outputs follows from the same layer of the inputs, and from
    those of one layer. Where there is no memory for all layers, or this was the largest plan when
    memory ran out, halves of them are computed then, one after the other, and their forward plan
    runs again in the backward pass. Raises OutOfMemoryError where one layer has no room.
    """
    if not _halved:
        known = _known(_full_key(key, images, [*images, *tables]))
        if known is not None:
            return _outputs(known, [*images, *tables])
    stacks = [*images, *(t for t in tables if t.ndim == 3)]
    n = max(map(len, stacks), default=1)
    if not divisible or n < 2 or any(len(t) not in (1, n) for t in stacks):
        return _call(key, build, images, tables)
    shapes = tuple(tuple(t.shape) for t in images), tuple((len(t), t.shape[-1]) for t in stacks)
    if (key, shapes) not in _halved:
        try:
            return _call(key, build, images, tables, (key, shapes))
        except OutOfMemoryError as error:
            log.info("dressi.torch: a batch of %d is halved: %s", n, error)
            with _lock:
                _halve((key, shapes))
    parts: list[list[torch.Tensor]] = []
    for part in (slice(0, n // 2), slice(n // 2, n)):
        some = [t[part] if len(t) == n else t for t in images]
        rows = [t[part] if t.ndim == 3 and len(t) == n else t for t in tables]
        found = call(key, build, some, rows)
        m = part.stop - part.start
        parts.append([t if len(t) == m else t.expand(m, *t.shape[1:]) for t in found])
    return [torch.cat(pair) for pair in zip(*parts, strict=True)]


def _halve(batch: Hashable) -> None:
    _halved[batch] = None
    while len(_halved) > KEPT_PLANS:
        _halved.popitem(last=False)


def _call(
    key: Hashable,
    build: Build,
    images: Sequence[torch.Tensor],
    tables: Sequence[torch.Tensor],
    batch: Hashable = None,
) -> list[torch.Tensor]:
    """``call`` of all layers together. batch: of ``_halved``; None where it cannot be halved."""
    shaped = [*images, *_padded(key, images, tables)]
    full_key = _full_key(key, images, shaped)
    compiled = _known(full_key)
    if compiled is None:
        leaves = [_leaf(t, k < len(images)) for k, t in enumerate(shaped)]
        compiled = Compiled(leaves, list(build(*leaves)), device=shaped[0].device)
        with _lock:
            _plans[full_key], _batches[full_key] = compiled, batch
            while len(_plans) > KEPT_PLANS:
                _batches.pop(_plans.popitem(last=False)[0], None)
        if _drop_plans not in compiled.ad.runtime.on_full:
            compiled.ad.runtime.on_full.append(_drop_plans)
    return _outputs(compiled, shaped)


def _full_key(
    key: Hashable, images: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> Hashable:
    """What a plan depends on. tensors: its inputs, of which the images come first."""
    kinds = tuple([(t.shape, t.dtype) for t in tensors])
    return key, len(images), tensors[0].device, kinds


def _known(full_key: Hashable) -> Compiled | None:
    """The plan that is kept; None also where someone closed the shared engine."""
    with _lock:
        compiled = _plans.get(full_key)
        if compiled is None or compiled.ad.runtime.closed:
            return None
        _plans.move_to_end(full_key)
    return compiled


def _outputs(compiled: Compiled, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a plan gives, on the device of the tensors."""
    device = tensors[0].device
    outputs = apply(compiled, *tensors, shapes=compiled.stacks)
    return [out if out.device == device else out.to(device) for out in outputs]


def _drop_plans() -> None:
    """Let all plans go; those that a backward pass or a call still needs stay until then. Memory
    ran out: plans that do not fit side by side would be compiled again in each step, so the batch
    of the largest one is halved from now on."""
    with _lock:
        sizes = {k: plan.n_bytes() for k, plan in _plans.items() if _batches.get(k) is not None}
        largest = max(sizes, key=lambda k: sizes[k], default=None)
        if largest is not None and sizes[largest] > NOTABLE * _used_bytes(_plans[largest]):
            log.info("dressi.torch: memory ran out, a batch is halved: %s", largest)
            _halve(_batches[largest])
        _plans.clear()
        _batches.clear()


def _used_bytes(plan: Compiled) -> int:
    device = plan.ad.runtime.device
    return 0 if plan.ad.runtime.closed else device.used_bytes()


def n_plans() -> int:
    """Number of plans that are kept."""
    return len(_plans)


def _padded(
    key: Hashable, images: Sequence[torch.Tensor], tables: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """The tables, with rows of zeros where their numbers of rows keep changing."""
    rows = tuple([t.shape[-2] for t in tables])
    shapes = tuple([t.shape for t in images]), tuple([(t.shape[:-2], t.shape[-1]) for t in tables])
    with _lock:
        known = _rows.setdefault((key, shapes), [])
        _rows.move_to_end((key, shapes))
        if len(_rows) > KEPT_PLANS:
            _rows.popitem(last=False)
        if rows not in known and len(known) < EXACT_ROWS:
            known.append(rows)
        if rows in known:
            return tables
    more = [_room(n) - n for n in rows]
    return [torch.nn.functional.pad(t, (0, 0, 0, k)) for t, k in zip(tables, more, strict=True)]


def _room(n: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, ... that is at least n: two per octave."""
    power = 1 << max(0, n - 1).bit_length()
    return power * 3 // 4 if n <= power * 3 // 4 and power > 2 else power


def groups(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The channels (last axis) in groups of up to four, as one Variable holds them."""
    return [tensor] if tensor.shape[-1] <= 4 else list(torch.split(tensor, 4, dim=-1))


def joined(images: list[torch.Tensor]) -> torch.Tensor:
    """One tensor of the channels of all."""
    return images[0] if len(images) == 1 else torch.cat(images, -1)


def _leaf(tensor: torch.Tensor, is_image: bool) -> Variable:
    """A leaf for tensors of this shape: (layers, height, width, channels) of an image, (layers,
    rows, channels) or (rows, channels) of a table."""
    *front, width, n = tensor.shape
    layers, height = front if is_image else (front[0] if front else 1, 1)
    return Variable(_vtype(tensor, n), (width, height), layers)


def _vtype(tensor: torch.Tensor, n: int) -> VType:
    if tensor.dtype == torch.int32:
        return INT if n == 1 else IVEC3
    return vector(n)
