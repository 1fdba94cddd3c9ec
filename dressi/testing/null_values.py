"""A packed graph evaluated in NumPy, from the data of its images to the data of its images.

In: ``Packed``, pixels of persistent images, the uniform block. Out: pixels that a run of the plan
leaves in the images that somebody may read afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Variable, leaves, topological
from dressi.ad.rewrite import Replacements, rewrite
from dressi.packing import Packed, Plan
from dressi.packing.arrays import from_buffer, from_planes, to_planes
from dressi.packing.bindings import buffers_written

Place = tuple[str, int]
"""``"image"`` or ``"buffer"``, and the position in the plan."""


class Values:
    """What a plan computes. It holds a copy of the graph: the user's may go away meanwhile."""

    def __init__(self, packed: Packed) -> None:
        task, plan = packed.task, packed.plan
        assert task is not None
        self._limits = task.limits
        self._uniforms = [(_same(v), v.vtype.n_planes * v.layers) for v in packed.uniforms]
        graph = {f.output.uid: f.output for f in topological(task.wanted)}
        stored = {uid: _places(packed, uid) for uid in graph}
        written = written_places(plan)
        given = [v for v in leaves(task.wanted) if v.uid in {x.uid for x in packed.leaves}]
        given += [v for uid, v in graph.items() if stored[uid] and not stored[uid] <= written]
        new = Replacements()
        new.update({v.uid: x for v, (x, _) in zip(packed.uniforms, self._uniforms, strict=True)})
        new.update({v.uid: _same(v) for v in given})
        self._inputs = [(new(v), sorted(_places(packed, v.uid))) for v in given]
        final = {v.uid for v in task.wanted}
        final |= {uid for uid in graph if any(_keyed(plan, place) for place in stored[uid])}
        outputs = [v for uid, v in graph.items() if uid in final and uid not in new]
        outputs = [v for v in outputs if stored[v.uid] and stored[v.uid] <= written]
        copies = rewrite(outputs, lambda f, new: None, new)
        places = [sorted(stored[v.uid]) for v in outputs]
        self._outputs = list(zip(copies, places, strict=True))

    def run(self, read: Callable[[Place], bytes], uniforms: bytes) -> list[tuple[Place, bytes]]:
        """What a run writes. read: data of a place."""
        feeds = {}
        for v, places in self._inputs:
            data = [read(place) for place in places]
            if places[0][0] == "buffer":
                feeds[v] = from_buffer(data[0], v)
            else:
                feeds[v] = from_planes(data, v, self._limits)
        at = 0
        for v, n_slots in self._uniforms:
            feeds[v] = from_words(uniforms[16 * at : 16 * (at + n_slots)], v)
            at += n_slots
        values = evaluate([v for v, _ in self._outputs], feeds)
        found: list[tuple[Place, bytes]] = []
        for (v, places), array in zip(self._outputs, values, strict=True):
            if places[0][0] == "buffer":
                found.append((places[0], to_buffer(array, v)))
            else:
                planes = to_planes(array.astype(np.float32), v, self._limits)
                found += zip(places, planes, strict=True)
        return found


def written_places(plan: Plan) -> set[Place]:
    """Images and buffers that the stages of a plan write."""
    substages = [s for stage in plan.stages for s in stage.substages]
    images: set[Place] = {("image", i) for s in substages for i in s.written}
    return images | {("buffer", i) for s in substages for i in buffers_written(plan, s)}


def _places(packed: Packed, uid: int) -> set[Place]:
    if uid in packed.buffers:
        return {("buffer", packed.buffers[uid])}
    return {("image", i) for i in packed.images.get(uid, ())}


def _keyed(plan: Plan, place: Place) -> bool:
    kind, index = place
    found = plan.images[index] if kind == "image" else plan.buffers[index]
    return found.key is not None


def _same(v: Variable) -> Variable:
    return Variable(v.vtype, v.size, v.layers, name=v.name)


def from_words(words: bytes, v: Variable) -> np.ndarray:
    """Data of a 1x1 leaf from its slots of the uniform block: the inverse of ``to_words``."""
    t = v.vtype
    dtype: type = np.int32 if t.is_int else np.float32
    slots: np.ndarray = np.frombuffer(words, dtype).reshape(v.layers, t.n_planes, 4)[:, :, : t.n]
    a = np.swapaxes(slots, -1, -2) if t.is_matrix else slots
    return a.reshape(v.layers, 1, 1, *t.tail)


def to_buffer(array: np.ndarray, v: Variable) -> bytes:
    """Words of a buffer: the inverse of ``from_buffer``."""
    a: Sequence[float] | np.ndarray = np.swapaxes(array, -1, -2) if v.vtype.is_matrix else array
    return np.ascontiguousarray(a, np.float32).tobytes()
