"""gradcheck: compares the gradient of a graph with the derivative of its values, and a device's.

In: a loss and data. Out: a ``GradCheck``, which prints itself. The gradient of the graph (reverse
mode, evaluated in float64 with NumPy) is compared with central differences at two step sizes, at
random entries of each leaf. Where the two steps or the two sides disagree, the loss has a kink or a
jump, or curves too much for the step: such entries are named and left out.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressi.ad.autodiff import build_backward, parameters
from dressi.ad.differences import FLOAT32, Entry, entries_to_check, rounding_noise, slopes_at
from dressi.ad.evaluate import as_array, evaluate
from dressi.ad.functions import add_n, leaf, sum, sum_components
from dressi.ad.functions.linalg import matrix_comp_mul
from dressi.ad.graph import Variable, leaves, short
from dressi.errors import GraphError


@dataclass(frozen=True)
class LeafCheck:
    """The result at one leaf.

    ``error``: the largest |gradient - slope| beyond the noise of rounding, relative to the larger
    of both or to 1/1000 of the leaf's largest gradient; at ``worst``. ``kinks``: entries that were
    left out. ``undecided``: entries whose slope rounding hides to the tolerance. ``device_error``:
    relative L2 difference of the device's whole gradient from float64, 0 where rounding to float32
    explains it; None without an engine. ``has_gradient``: whether the loss reaches the leaf through
    differentiable ops.
    """

    label: str
    compared: tuple[Entry, ...]
    kinks: tuple[Entry, ...]
    error: float
    worst: Entry | None
    has_gradient: bool
    device_error: float | None = None
    undecided: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class GradCheck:
    """Result of ``gradcheck``; ``print`` shows it. ``ok``: whether every leaf is within tolerance.
    A leaf with no compared entry, or with an undecided one, is not."""

    leaves: tuple[LeafCheck, ...]
    tolerance: float
    device_tolerance: float

    def leaf_ok(self, check: LeafCheck) -> bool:
        """Whether one leaf is within tolerance."""
        device = check.device_error
        return (
            bool(check.compared)
            and not check.undecided
            and check.error <= self.tolerance
            and (device is None or device <= self.device_tolerance)
        )

    @property
    def ok(self) -> bool:
        """Whether every leaf is within tolerance."""
        return all(self.leaf_ok(check) for check in self.leaves)

    def text(self) -> str:
        """A few lines per leaf: its error, where it is worst, and the entries left out."""
        lines = [
            f"gradcheck: {'ok' if self.ok else 'NOT OK'} (tolerance {self.tolerance:g}"
            + (
                f", device {self.device_tolerance:g})"
                if any(c.device_error is not None for c in self.leaves)
                else ")"
            )
        ]
        for c in self.leaves:
            wrong = c.error > self.tolerance or (c.device_error or 0.0) > self.device_tolerance
            mark = (
                "ok" if self.leaf_ok(c) else "UNDECIDED" if c.undecided and not wrong else "NOT OK"
            )
            line = f"  {c.label}: {mark}, error {c.error:.1e} over {len(c.compared)} entries"
            if c.device_error is not None:
                line += f", device {c.device_error:.1e}"
            lines.append(line)
            if not c.has_gradient:
                lines.append("    no gradient reaches it: dressi.explain says why")
            if c.worst is not None and not c.error <= self.tolerance:
                lines.append(
                    f"    worst at {c.worst.index}: gradient {c.worst.gradient:.6g}, "
                    f"central differences {c.worst.slope:.6g}"
                )
            if c.undecided:
                lines.append(
                    f"    {len(c.undecided)} entries undecided: rounding hides what is below "
                    f"{max(e.noise for e in c.undecided):.1e}; try a larger eps, or a loss without "
                    "large numbers that cancel"
                )
            elif not c.compared:
                lines.append("    nothing was compared: try other data or a smaller eps")
            if c.kinks:
                named = ", ".join(str(e.index) for e in c.kinks[:4])
                more = f" and {len(c.kinks) - 4} more" if len(c.kinks) > 4 else ""
                lines.append(f"    left out, a kink or a jump within the step: {named}{more}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _leaf_check(
    x: Variable,
    parts: Sequence[Variable],
    gradient: np.ndarray,
    data: dict[Variable, np.ndarray],
    settings: tuple[float, int, float],
    rng: np.random.Generator,
) -> LeafCheck:
    """The comparison at one leaf with central differences. settings: eps, number of entries,
    tolerance."""
    eps, count, tolerance = settings
    chosen = entries_to_check(gradient, count, rng)
    smooth, kinks = slopes_at(parts, x, gradient, data, eps, chosen, rng)
    floor = 1e-3 * float(np.abs(gradient).max(initial=0.0))
    compared = [e for e in smooth if _is_decided(e, floor, tolerance)]
    undecided = [e for e in smooth if not _is_decided(e, floor, tolerance)]
    if not gradient.any():  # both sides of a gradient of 0 are nothing but noise
        compared += [e for e in undecided if abs(e.slope) <= e.noise]
        undecided = [e for e in undecided if abs(e.slope) > e.noise]
    errors = [_relative(e, floor) for e in compared]
    worst = int(np.argmax(errors)) if errors else None
    return LeafCheck(
        x.label(),
        tuple(compared),
        tuple(kinks),
        0.0 if worst is None else errors[worst],
        None if worst is None else compared[worst],
        True,
        None,
        tuple(undecided),
    )


def gradcheck(
    loss: Variable | Sequence[Variable],
    wrt: Sequence[Variable] | None = None,
    feeds: Mapping[Variable, Any] | None = None,
    engine: Any = None,
    eps: float = 1e-4,
    n_entries: int = 16,
    tolerance: float = 1e-4,
    device_tolerance: float = 1e-2,
    seed: int = 0,
) -> GradCheck:
    """Compare the gradient of a graph with central differences of its values, in float64.

    loss: FLOAT, VECn or MATn @ any size: the sum of its pixels is differentiated, as the engine
    does; a list: each output is weighted with random numbers first. wrt: the leaves to check;
    default all with ``requires_grad``. feeds: leaf -> array, for leaves that hold no data. engine:
    a ``DressiAD``: data in ``feeds`` are sent to it, data of other leaves are read from it, and its
    gradients are compared too. eps: the larger of the two steps, times |x| where that is above 1.
    n_entries: entries per leaf, half of them where the gradient is not 0. tolerance: of a leaf's
    error; device_tolerance: of the device's error. seed: of the choice of entries. Returns the
    comparison of every leaf. Raises GraphError for integers, missing data, and wrong arguments.
    """
    if not (isinstance(eps, (int, float)) and 0 < eps < 1):
        raise GraphError(f"gradcheck: eps must be in (0, 1), got {short(eps)}")
    try:
        count = operator.index(n_entries)
    except TypeError:
        count = 0
    if count < 1:
        raise GraphError(
            f"gradcheck: n_entries must be an integer of at least 1, got {short(n_entries)}"
        )
    rng = np.random.default_rng(seed)
    parts = _parts(loss, rng)
    total = add_n([sum(sum_components(p)) for p in parts])
    targets = _targets(total, wrt)
    grads = build_backward(total, targets)
    # Gradients may read leaves that the loss does not: counters of stochastic ones.
    data = data_of("gradcheck", [total, *grads.values()], feeds, engine)
    checks = []
    for x in targets:
        data.setdefault(x, np.zeros((x.layers, x.size[1], x.size[0], *x.vtype.tail)))
        gradient = np.zeros(data[x].shape)
        if x in grads:
            gradient = evaluate([grads[x]], data)[0]
        device = None
        if engine is not None and x in grads:
            got = as_array_of(engine.recv_img(grads[x]), x)
            (noise,) = rounding_noise([grads[x]], data, FLOAT32, rng)
            device = _device_error(got, gradient, noise, device_tolerance)
        check = _leaf_check(x, parts, gradient, data, (eps, count, tolerance), rng)
        checks.append(replace(check, has_gradient=x in grads, device_error=device))
    return GradCheck(tuple(checks), float(tolerance), float(device_tolerance))


def as_array_of(values: Any, like: Variable) -> np.ndarray:
    """An array received from an engine as (layers, H, W, *tail) float64; NaN and infinity stay."""
    shape = (like.layers, like.size[1], like.size[0], *like.vtype.tail)
    return np.asarray(values, np.float64).reshape(shape)


def data_of(
    name: str, outputs: Sequence[Variable], feeds: Mapping[Variable, Any] | None, engine: Any
) -> dict[Variable, np.ndarray]:
    """Data of every leaf that the outputs need: from feeds, the engine, or the leaf itself.

    Rounded to float32, as a device holds it. name: the caller's name for messages. Data in feeds
    are sent to the engine. Raises GraphError naming the leaves without data.
    """
    given = dict(feeds or {})
    for v in given:
        if not isinstance(v, Variable):
            raise GraphError(f"{name}: feeds are arrays by Variable, got {v!r}")
    out: dict[Variable, np.ndarray] = {}
    missing = []
    for v in leaves(outputs):
        if v.derived is not None:
            continue
        if v in given:
            array = as_array(given[v], v)
            if engine is not None:
                engine.send_img(v, array)
        elif engine is not None:
            array = as_array(engine.recv_img(v), v)
        elif v.data is not None:
            array = as_array(v.data, v)
        else:
            missing.append(v.label())
            continue
        out[v] = array if v.vtype.is_int else array.astype(np.float32).astype(np.float64)
    if missing:
        raise GraphError(f"{name}: no data in feeds for {', '.join(missing)}")
    return out


def _parts(loss: Any, rng: np.random.Generator) -> list[Variable]:
    """The images whose sum is differentiated: the loss, or several outputs, weighted."""
    where = "gradcheck"
    several = isinstance(loss, (list, tuple))
    outputs = list(loss) if several else [loss]
    if not outputs:
        raise GraphError(f"{where}: no outputs to check")
    parts = []
    for y in outputs:
        if not isinstance(y, Variable):
            raise GraphError(f"{where}: needs a Variable or a list of them, got {short(loss)}")
        if y.vtype.is_int:
            raise GraphError(f"{where}: {y.label()} made at {y.line} is an integer: no gradient")
        if several:
            shape = (y.layers, y.size[1], y.size[0], *y.vtype.tail)
            w = leaf(rng.uniform(-1, 1, shape), y.vtype, "weights")
            y = matrix_comp_mul(y, w) if y.vtype.is_matrix else y * w
        parts.append(y)
    return parts


def _targets(total: Variable, wrt: Any) -> list[Variable]:
    """The leaves to check. Raises GraphError where there are none, or something else."""
    where = "gradcheck"
    if wrt is None:
        targets = parameters(total)
        if not targets:
            raise GraphError(
                f"{where}: no leaf of the loss has requires_grad\n"
                "  hint: name leaves with wrt=[...]"
            )
        return targets
    if not isinstance(wrt, (list, tuple)) or not wrt:
        raise GraphError(f"{where}: wrt must be a list of leaves, got {short(wrt)}")
    for x in wrt:
        if not isinstance(x, Variable) or x.creator is not None:
            raise GraphError(f"{where}: wrt must be a list of leaves, got {short(x)}")
        if x.vtype.is_int:
            raise GraphError(f"{where}: {x.label()} is an integer: no gradient")
    return list(wrt)


def _relative(e: Entry, floor: float) -> float:
    """The error at an entry beyond its noise, relative to the larger side or to ``floor``."""
    off = abs(e.gradient - e.slope) - e.noise
    if not np.isfinite(off):
        return float("inf")
    scale = max(abs(e.gradient), abs(e.slope), floor)
    return off / scale if off > 0 else 0.0


def _is_decided(e: Entry, floor: float, tolerance: float) -> bool:
    """Whether the noise at an entry could not hide an error beyond the tolerance, or does not."""
    scale = max(abs(e.gradient), abs(e.slope), floor)
    return e.noise <= tolerance * scale or _relative(e, floor) > tolerance


def _device_error(
    got: np.ndarray, gradient: np.ndarray, noise: np.ndarray, tolerance: float
) -> float:
    """Relative L2 difference of a device's gradient from float64; 0 where float32 can do no better.
    noise: by how much rounding to float32 changes the gradient."""
    off, size = float(np.linalg.norm(got - gradient)), float(np.linalg.norm(gradient))
    if tolerance * size < off <= 4.0 * float(np.linalg.norm(noise)):
        return 0.0
    if size == 0:
        return 0.0 if off == 0 else float("inf")
    return off / size  # NaN and infinity stay
