"""Data of leaves, on the host and on the device.

In: arrays from the user, leaves' own data, derived leaves. Out: persistent images of a device,
uniform words. Belongs to one engine: two engines may share a leaf, each with its own data.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from dressi.ad.evaluate import as_array
from dressi.ad.graph import Variable, leaves
from dressi.ad.index_uses import check_sent
from dressi.ad.precision import say_far, say_levels
from dressi.ad.verify import check_indices, is_indexed_by
from dressi.engine.derived import DerivedData
from dressi.engine.device import Device
from dressi.engine.share import Share
from dressi.engine.uploads import MOST_BYTES, Uploads
from dressi.errors import GraphError
from dressi.packing import DeviceLimits, Packed, image_key
from dressi.packing.arrays import copy_pixels, from_planes, to_planes, to_words
from dressi.packing.layout import layout


@dataclass(frozen=True, eq=False)
class _Resident:
    """A leaf in images of the device. The leaf itself belongs to the user."""

    leaf: weakref.ref[Variable]
    keys: tuple[int, ...]
    """Of its images."""
    n_bytes: int


class LeafStore:
    """Where the leaves of one engine keep their data: as long as the leaves are there.

    Leaves are held weakly. What belonged to one that the user, the loss and every compiled plan
    have dropped is freed by the next ``release``.
    """

    def __init__(self, device: Device, limits: DeviceLimits) -> None:
        self.device = device
        self.limits = limits
        """Those of the device, or stricter ones: they say how images lie in memory."""
        self.version = 0
        """Grows with every send."""
        self.n_placed = 0
        """Grows with every leaf that gets images."""
        self._host: dict[int, np.ndarray] = {}  # float32 or int32; of images int32 only
        self._images_only: set[int] = set()  # what was sent lies on the device alone
        self._known: dict[int, weakref.ref[Variable]] = {}
        self.dead: deque[int] = deque()  # for ``release``; filled in any thread, as garbage goes
        self._resident: dict[int, _Resident] = {}
        self.n_bytes = 0
        """Bytes of all images of leaves."""
        self._sources: dict[int, set[int]] = {}  # of each derived leaf in use: what it follows
        self._derived: dict[int, np.ndarray] = {}  # what was uploaded last of each derived leaf
        self._derivations = DerivedData()
        self._changed: set[int] = set()
        self._written: dict[int, int] = {}  # count of writes after the last one to each leaf
        self.n_written = 0  # what ``newest`` gives of the leaf that was written last
        self.uploads = Uploads(device, limits)
        """What was sent with ``wait``."""

    def __len__(self) -> int:
        """Number of leaves that something is known about."""
        return len(self._known)

    def host_bytes(self) -> int:
        """Bytes of what is kept on the host."""
        kept = (*self._host.values(), *self._derived.values())
        return sum(a.nbytes for a in kept) + self._derivations.n_bytes()

    @property
    def resident(self) -> set[int]:
        """uids of the leaves that lie in images of the device."""
        return set(self._resident)

    def on_device(self, variables: Iterable[Variable]) -> bool:
        """Whether one of the leaves at least lies in images of the device."""
        return any(v.uid in self._resident for v in variables)

    def send(
        self, v: Variable, value: Any, checked: Sequence[Variable] = (), wait: bool = False
    ) -> None:
        """Check and keep the data of a leaf; on the device at once. checked: graphs whose static
        indices are checked against it. wait: what lies in images already may wait in ``uploads``,
        which the caller submits. Raises GraphError for bad data, which leaves everything as it
        was."""
        if not isinstance(v, Variable):
            raise GraphError(f"send_img: needs a Variable, got {type(v).__name__}")
        if v.creator is not None:
            raise GraphError(
                f"send_img: {v.label()} is computed by {v.creator.where}; only leaves hold data"
            )
        array = as_array(value, v, double=False)
        lies = v.uid in self._resident
        if not lies:
            try:
                layout(v.size, v.layers, self.limits)
            except GraphError as error:
                raise GraphError(f"send_img: {v.label()}: {error.reason}") from None
        check_sent(v, array)
        if v.vtype.is_int and is_indexed_by(checked, v):
            check_indices(checked, {**self.index_feeds(checked), v: array}, v)
        if v.uid not in self._host:  # once per leaf: fits send positions again and again
            say_far(v, array)
        self._accept(v, array, wait)

    def resend(self, v: Variable, value: Any, seen: bool = True) -> bool:
        """``send`` with ``wait`` of what nearly all steps send: float32 of the full shape (layers,
        H, W, *tail) for a leaf that was sent so before. False, with nothing done, for anything
        else, so also for bad data. seen: whether a person may have made the numbers; what looks
        like bytes is warned of then."""
        usual = self.uploads.takes(v, value)
        if usual:
            if seen:
                say_levels(v, value)
            self._accept(v, value, True)
        return usual

    def overwrite(self, v: Variable, value: Any) -> bool:
        """``resend`` of a leaf that nothing on the host reads nor follows, and that no plan reads
        whose results are kept: no note of it is made."""
        usual = v.uid in self._known and self.uploads.takes(v, value)
        if usual:
            if self._host.pop(v.uid, None) is not None:  # a table's: old now
                self._images_only.add(v.uid)
            self._upload(v, value, True)
        return usual

    def _accept(self, v: Variable, array: np.ndarray, wait: bool) -> None:
        """Keep checked data of a leaf, and what follows from them."""
        if v.uid in self._resident or v.size != (1, 1):
            self._upload(v, array, wait)
        self._keep(v, array)
        self.version += 1
        self._note([v.uid])
        for uid, sources in self._sources.items():
            if v.uid in sources:
                resident = self._resident.get(uid)
                other = None if resident is None else resident.leaf()
                data = None if other is None else self._derivations.of(other, self.host)
                known = self._derived.get(uid)
                if data is not None and known is not None:
                    if data is known or np.array_equal(data, known):
                        continue  # vertices that move keep their neighbours
                self._note([uid])
                if other is not None and data is not None:
                    self._upload(other, data, wait)

    def _keep(self, v: Variable, array: np.ndarray) -> None:
        """What is needed on the host beside the images: numbers for uniforms, indices to be
        checked, tables that derived leaves follow."""
        if v.uid not in self._known:
            self._know(v)
        if v.vtype.is_int or v.size[1] == 1:
            self._host[v.uid] = array.astype(np.int32 if v.vtype.is_int else np.float32)
        else:
            self._images_only.add(v.uid)

    def _know(self, v: Variable) -> None:
        if v.uid not in self._known:
            dead, uid = self.dead, v.uid
            self._known[uid] = weakref.ref(v, lambda _: dead.append(uid))

    def release(self) -> None:
        """Free what belonged to leaves that are gone."""
        while self.dead:
            uid = self.dead.popleft()
            self._known.pop(uid, None)
            self._host.pop(uid, None)
            self._changed.discard(uid)
            self._written.pop(uid, None)
            self._drop(uid)

    def _note(self, uids: Iterable[int]) -> None:
        self.n_written += 1
        for uid in uids:
            self._changed.add(uid)
            self._written[uid] = self.n_written

    def newest(self, uids: Iterable[int]) -> int:
        """A number that is another one after each write to one of these leaves by the host, or by
        a plan that says so (``mark_changed``)."""
        return max(map(self._written.get, uids, repeat(0)), default=0)

    @property
    def changed(self) -> Set[int]:
        """What ``take_changed`` would give; to look at only."""
        return self._changed

    def take_changed(self) -> frozenset[int]:
        """uids of the leaves whose data changed since the last call (derived ones too)."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def host(self, v: Variable) -> np.ndarray:
        """Data of a leaf as last sent (or its own). A float image that was sent has no copy on the
        host: read from the device. Raises GraphError when there is none."""
        if v.uid in self._host:
            return self._host[v.uid]
        if v.uid in self._images_only:
            return from_planes(self.read_planes([v]), v, self.limits)
        if v.derived is not None:
            self._know(v)
            return self._derivations.of(v, self.host)
        if v.data is not None:
            return v.data
        raise GraphError(
            f"the leaf {v.label()} made at {v.line} has no data\n"
            "  hint: call send_img before the step"
        )

    def at_hand(self, v: Variable) -> np.ndarray | None:
        """Data of a leaf as last sent, where they need not be read from the device; else None."""
        if v.uid in self._images_only or v.derived is not None:
            return None
        own = self._host.get(v.uid)
        return v.data if own is None else own

    def index_feeds(self, outputs: Iterable[Variable]) -> dict[Variable, np.ndarray]:
        """Data of all integer leaves that have some."""
        return {
            v: self.host(v)
            for v in leaves(outputs)
            if v.vtype.is_int and v.derived is None and (v.uid in self._host or v.data is not None)
        }

    def drop(self, v: Variable) -> None:
        """Free the images of a leaf that nothing will read again."""
        self._drop(v.uid)

    def _drop(self, uid: int) -> None:
        self._sources.pop(uid, None)
        self._derived.pop(uid, None)
        self._derivations.drop(uid)
        self._images_only.discard(uid)
        self.uploads.drop(uid)
        resident = self._resident.pop(uid, None)
        if resident is not None:
            self.n_bytes -= resident.n_bytes
            for key in resident.keys:
                self.device.drop(key)

    # What several devices exchange

    def make_resident(self, v: Variable) -> None:
        """A leaf of zeros in images of the device, also where it is 1x1."""
        if v.uid not in self._resident:
            shape = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
            self._upload(v, np.zeros(shape, np.int32 if v.vtype.is_int else np.float32))

    def share(self, v: Variable, share: Share, value: Any, noted: bool = True) -> None:
        """``send`` of an array of another library, with ``wait``, unchecked. Leaves derived from it
        stay until something else that they follow is sent. noted: False as in ``overwrite``."""
        if v.uid not in self._resident:
            self.make_resident(v)
        self.uploads.shared(v, value, lambda: self.images([v]), share, noted)
        if noted:
            self._know(v)
            self._host.pop(v.uid, None)
            self._images_only.add(v.uid)
            self.version += 1
            self._note([v.uid])

    def read_planes(self, variables: Iterable[Variable]) -> list[bytes]:
        """The physical images of leaves that are on the device, plane by plane."""
        return self.device.download_all([key for key, *_ in self._images(variables)])

    def write_planes(self, variables: Sequence[Variable], planes: Sequence[Any]) -> None:
        """Replace the physical images of leaves that are on the device. planes: bytes-like, as
        ``read_planes`` of a device gives them where images lie the same way."""
        images = self._images(variables)
        self.device.upload_all([(*i, p) for i, p in zip(images, planes, strict=True)])
        self.mark_changed(variables)

    def images(self, variables: Iterable[Variable]) -> list[Any]:
        """The same images, for a ``Transfer``."""
        return [self.device.image(key) for key, *_ in self._images(variables)]

    def _images(self, variables: Iterable[Variable]) -> list[tuple[int, str, int, int]]:
        """(key, format, width, height) of each plane."""
        return [
            (image_key(v, k), v.vtype.format, *layout(v.size, v.layers, self.limits).physical)
            for v in variables
            for k in range(v.vtype.n_planes)
        ]

    def mark_changed(self, variables: Iterable[Variable]) -> None:
        """Leaves that another plan than the one that asks ``take_changed`` has written."""
        self._note([v.uid for v in variables])

    def _upload(self, v: Variable, array: np.ndarray, wait: bool = False) -> None:
        resident = self._resident.get(v.uid)
        if wait and resident is not None and resident.n_bytes <= MOST_BYTES:
            self.uploads.put(v, array, lambda: self.images([v]))
            if v.derived is not None:
                self._derived[v.uid] = array
            return
        planes = to_planes(array, v, self.limits)
        try:
            images = zip(self._images([v]), planes, strict=True)
            self.device.upload_all([(*image, plane) for image, plane in images])
        except BaseException:
            if v.uid not in self._resident:  # nothing is left of a leaf that does not fit
                for plane in range(v.vtype.n_planes):
                    self.device.drop(image_key(v, plane))
            raise
        if v.uid not in self._resident:
            self._know(v)
            keys = tuple(image_key(v, plane) for plane in range(v.vtype.n_planes))
            size = sum(len(plane) for plane in planes)
            self._resident[v.uid] = _Resident(self._known[v.uid], keys, size)
            self.n_placed += 1
            self.n_bytes += size
        self._follow(v)
        if v.derived is not None:
            self._derived[v.uid] = array

    def _follow(self, v: Variable) -> None:
        self._know(v)
        if v.derived is not None and v.uid not in self._sources:
            # Once, not at every send: a fit sends its learning rate in each iteration.
            self._sources[v.uid] = {leaf.uid for leaf in leaves([v])}

    def ensure(self, packed: Packed) -> None:
        """Upload every leaf that a plan reads and that is not on the device yet. Raises
        OutOfMemoryError before anything is made when plan and leaves do not fit."""
        missing = [(v, self.host(v)) for v in packed.leaves if v.uid not in self._resident]
        self.device.check_room(packed.plan)
        for v, data in missing:
            self._upload(v, data)
        for v in packed.uniforms:
            self.host(v)
            self._follow(v)

    def save(self, packed: Packed) -> dict[int, tuple[str, int, int, bytes]]:
        """Pixels of the leaves that a plan writes, by key, for ``restore``."""
        plan = packed.plan
        written = {target for _, target in plan.updates}
        written |= {i for stage in plan.stages for s in stage.substages for i in s.written}
        images = [plan.images[i] for i in sorted(written)]
        kept = {i.key: (i.format, i.width, i.height) for i in images if i.key is not None}
        pixels = self.device.download_all(list(kept))
        return {key: (*image, p) for (key, image), p in zip(kept.items(), pixels, strict=True)}

    def restore(self, kept: dict[int, tuple[str, int, int, bytes]]) -> None:
        """Put back what ``save`` gave."""
        self.device.upload_all([(key, *image) for key, image in kept.items()])

    def uniform_words(self, packed: Packed) -> bytes:
        """The uniform block of a plan."""
        return b"".join(to_words(self.host(v), v) for v in packed.uniforms)

    def receive(self, v: Variable) -> np.ndarray:
        """Current data of a leaf, (layers, H, W, *tail); from the device where steps may change
        it."""
        if v.uid not in self._resident:
            return self.host(v)
        return from_planes(self.read_planes([v]), v, self.limits)


def present(a: np.ndarray, v: Variable, room: np.ndarray | None = None) -> np.ndarray:
    """(layers, H, W, *tail) -> the shape that users see. room: where it goes, an array of that
    shape, default a new one: a copy that users may write to."""
    out: np.ndarray = (
        np.empty(a.shape, np.int32 if v.vtype.is_int else np.float32) if room is None else room
    )
    copy_pixels(out, a)
    if v.is_table:
        out = out[:, 0]
    return out if v.layers > 1 else out[0]
