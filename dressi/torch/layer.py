"""``compile``: a function from Variables to Variables as an ``nn.Module``.

In: the function, tensors. Out: tensors with a gradient. The function is called once per combination
of types, sizes and batches; the graphs used last are kept.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args
from warnings import warn

import torch

from dressi.ad.graph import Variable, short
from dressi.ad.vtype import INT
from dressi.engine import DressiAD
from dressi.errors import DressiWarning, GraphError
from dressi.torch.function import Compiled, apply, engine
from dressi.torch.inputs import Input, Layout, Leaf, Prepared, as_input, count, kept, prepare
from dressi.torch.share import share_of

Key = tuple[torch.device, tuple[Leaf, ...]]
"""What a graph is compiled for."""


@dataclass
class _Graph:
    """What the function made of one combination of arguments."""

    compiled: Compiled
    device: torch.device
    names: tuple[str, ...] | None
    """Of outputs that came as a mapping."""
    single: bool
    """Whether it returned one Variable."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the outputs, images as NHWC."""
    moved: bool
    """Whether images are NCHW."""
    prepared: tuple[Prepared, ...] | None = None
    """Of the arguments of its last call, where what serves the next one is known of all."""
    tokens: Sequence[object] = ()
    """Of these."""


_Call = tuple[_Graph, list[torch.Tensor], Sequence[object]]
"""What is called, with which tensors, and what stands for their values (``Compiled.forward``)."""


class Layer(torch.nn.Module):
    """A compiled function of Variables as a module. ``compile`` makes one."""

    def __init__(
        self,
        build: Callable[..., Any],
        inputs: Mapping[str, object],
        parameters: Mapping[str, Any],
        constants: Mapping[str, Any],
        layout: Layout,
        n_graphs: int,
        ad: DressiAD | None,
    ) -> None:
        super().__init__()
        self._build = build
        self._names, self._counts = _argument_names(build, inputs)
        for what, given in (("parameters", parameters), ("constants", constants)):
            for name in given:
                if name not in self._names:
                    raise GraphError(f"{what}: {_call_name(build)} takes no {name!r}")
        self._said = {name: as_input(name, inputs.get(name, Input())) for name in self._names}
        for name, value in parameters.items():
            if not isinstance(value, torch.nn.Parameter):
                value = torch.nn.Parameter(torch.as_tensor(value))
            self.register_parameter(name, value)
        for name, value in constants.items():
            self.register_buffer(name, torch.as_tensor(value))
        self._own = {*parameters, *constants}
        self._free = [name for name in self._names if name not in self._own]
        self._layout, self._n_graphs, self._ad = layout, n_graphs, ad
        self._graphs: OrderedDict[Key, _Graph] = OrderedDict()
        self._latest: tuple[Key, _Graph] | None = None
        """The graph of the last call: to see that it is the same is quicker than to look it up."""
        self._evicted: set[Key] = set()
        self._prepared: dict[str, Prepared | None] = {}
        self._warned = False

    @property
    def n_graphs(self) -> int:
        """Graphs that are kept now."""
        return len(self._graphs)

    def forward(self, *args: torch.Tensor, **named: torch.Tensor) -> Any:
        """Return what the function returns, as tensors: one, a tuple, or a dict by name.

        args, named: its arguments in order and by name, without those that the layer holds. Images
        are (H, W, C) or (N, H, W, C), in layout NCHW (C, H, W) or (N, C, H, W); tables (N, C);
        values (C,), of FLOAT (). Outputs have the batch dimension where they have several layers,
        or where an argument has one (of 1), values excepted. Gradients flow to float arguments and
        parameters. Raises GraphError naming the argument for a wrong number, type or shape.
        """
        tensors = self._bound(args, named)
        graph, sent, tokens = self._as_before(tensors) or self._looked_at(
            dict(zip(self._names, tensors, strict=True))
        )
        device, compiled = graph.device, graph.compiled
        found = apply(compiled, *sent, tokens=tokens, shapes=graph.shapes)
        out = [t if t.device == device else t.to(device) for t in found]
        if graph.moved:
            pairs = zip(out, compiled.outputs, strict=True)
            out = [t.movedim(-1, -3) if _is_image(v) else t for t, v in pairs]
        if graph.names is not None:
            return dict(zip(graph.names, out, strict=True))
        return out[0] if graph.single else tuple(out)

    def _as_before(self, tensors: Sequence[Any]) -> _Call | None:
        """The call where all arguments are of the same kinds as in the one before, and integers of
        the same values; else None."""
        graph = None if self._latest is None else self._latest[1]
        if graph is None or graph.prepared is None:
            return None
        sent: list[torch.Tensor] = []
        for tensor, known in zip(tensors, graph.prepared, strict=True):
            ready = known.ready(tensor)
            if ready is None:
                return None
            sent.append(ready)
        return graph, sent, graph.tokens

    def _looked_at(self, tensors: Mapping[str, Any]) -> _Call:
        """The call for any arguments."""
        device = _device_of(tensors)
        leaves: list[Leaf] = []
        sent: list[torch.Tensor] = []
        tokens: list[object] = []
        for name, tensor in tensors.items():
            known = self._prepared.get(name)
            ready = None if known is None else known.ready(tensor)
            if known is not None and ready is not None:
                leaf, rows = known.leaf, known.rows
            else:
                shared = device if self._shares(device) else None
                found = prepare(name, tensor, self._said[name], self._layout, shared)
                known = self._prepared[name] = kept(tensor, found, self._said[name], self._layout)
                leaf, ready, rows = found
                again = None if known is None else known.ready(tensor)
                ready = ready if again is None else again  # what the next call takes, too
            leaves.append(leaf)
            sent.append(ready)
            tokens.append(None if known is None else known.token)
            if name in self._counts:
                sent.append(count(rows))
                tokens.append(None)
        graph = self._graph((device, tuple(leaves)))
        ready_for = tuple(p for p in map(self._prepared.get, tensors) if p is not None)
        graph.prepared = ready_for if len(ready_for) == len(tensors) else None
        graph.tokens = [known.token for known in ready_for]
        return graph, sent, tokens

    def close(self) -> None:
        """Free all graphs; they are built again when they are needed."""
        for graph in self._graphs.values():
            graph.compiled.close()
        self._graphs.clear()
        self._latest = None

    def extra_repr(self) -> str:
        return f"{_call_name(self._build)}({', '.join(self._names)}), layout={self._layout}"

    def __getstate__(self) -> dict[str, Any]:
        """What is on a device stays behind: a copy builds its graphs anew."""
        return {
            **self.__dict__,
            "_graphs": OrderedDict(),
            "_evicted": set(),
            "_prepared": {},
            "_latest": None,
        }

    # -- inside

    def _bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in order, with those that the layer holds."""
        if named or len(args) != len(self._free):
            args = self._in_order(args, named)
        given, held = iter(args), {**self._buffers, **self._parameters}
        # A parametrization puts a property in place of what was registered.
        return [
            (held[n] if n in held else getattr(self, n)) if n in self._own else next(given)
            for n in self._names
        ]

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments that the layer does not hold, as its function has them."""
        free = self._free
        what = _call_name(self._build)
        if len(args) > len(free):
            raise GraphError(f"{what}: {len(args)} tensors for the arguments {', '.join(free)}")
        given = dict(zip(free, args, strict=False))
        for name, value in named.items():
            if name in given or name not in free:
                why = "is given twice" if name in given else f"is none of {', '.join(free)}"
                raise GraphError(f"{what}: argument {name!r} {why}")
            given[name] = value
        missing = [name for name in free if name not in given]
        if missing:
            raise GraphError(f"{what}: no tensor for {', '.join(map(repr, missing))}")
        return [given[name] for name in free]

    def _shares(self, device: torch.device) -> bool:
        """Whether tensors on a device need not go through the host."""
        return device.type != "cpu" and share_of(self._ad or engine(), device) is not None

    def _graph(self, key: Key) -> _Graph:
        if self._latest is not None and self._latest[0] == key:
            return self._latest[1]
        graph = self._graphs.get(key)
        if graph is not None:
            self._graphs.move_to_end(key)
            self._latest = key, graph
            return graph
        if key in self._evicted and not self._warned:
            self._warned = True
            warn(
                f"dressi.torch: {_call_name(self._build)} is called with more than "
                f"{self._n_graphs} combinations of sizes in turn, and each is compiled again: that "
                "takes a second or more\n  hint: compile(..., graphs=N) keeps more of them, "
                "Input(capacity=N) serves tables whose number of rows changes",
                DressiWarning,
                stacklevel=5,
            )
        graph = self._graphs[key] = self._built(key)
        self._latest = key, graph
        while len(self._graphs) > self._n_graphs:
            oldest, dropped = self._graphs.popitem(last=False)
            dropped.compiled.close()
            self._evicted.add(oldest)
        return graph

    def _built(self, key: Key) -> _Graph:
        device, kinds = key
        leaves: list[Variable] = []
        arguments: dict[str, Variable] = {}
        for name, leaf in zip(self._names, kinds, strict=True):
            arguments[name] = leaf.variable(name)
            leaves.append(arguments[name])
            if name in self._counts:
                arguments[f"{name}_count"] = Variable(INT, name=f"{name}_count")
                leaves.append(arguments[f"{name}_count"])
        made = self._build(**arguments)
        names = tuple(made) if isinstance(made, Mapping) else None
        single = isinstance(made, Variable)
        several = made.values() if isinstance(made, Mapping) else made
        outputs = list(several) if isinstance(several, Iterable) else [made]
        if not outputs or not all(isinstance(v, Variable) for v in outputs):
            raise GraphError(
                f"{_call_name(self._build)} must return a Variable, or a sequence or mapping of "
                f"them, got {short(made)}"
            )
        compiled = Compiled(leaves, outputs, self._ad, device)
        batched = any(leaf.batched for leaf in kinds)
        shapes = tuple(_shape(v, batched) for v in outputs)
        return _Graph(compiled, device, names, single, shapes, self._layout == "NCHW")


def compile(
    build: Callable[..., Any],
    *,
    inputs: Mapping[str, object] | None = None,
    parameters: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    layout: Layout = "NHWC",
    graphs: int = 8,
    ad: DressiAD | None = None,
) -> Layer:
    """Return a function of Variables as an ``nn.Module`` of tensors, with gradients.

    build: takes Variables by name, returns a Variable, or a sequence or mapping of them. It is
    called once per combination of types, sizes and batches. inputs: by name of an argument what is
    said of it: an ``Input``, a VType or a form. parameters: arguments that the layer holds as
    ``nn.Parameter``, with their first values; constants: as buffers. layout: of images, ``NHWC`` or
    ``NCHW``. graphs: number of combinations that stay compiled. ad: an engine of yours; default the
    one that all layers share (``dressi.torch.engine``).

    The backward pass is compiled when an argument needs a gradient first. Raises GraphError for
    names that ``build`` does not take.
    """
    if not callable(build):
        raise GraphError(f"compile: needs a function of Variables, got {short(build)}")
    if layout not in get_args(Layout):
        raise GraphError(f"compile: layout must be one of {get_args(Layout)}, got {layout!r}")
    if isinstance(graphs, bool) or not isinstance(graphs, int) or graphs < 1:
        raise GraphError(f"compile: graphs must be an integer of at least 1, got {graphs!r}")
    return Layer(build, inputs or {}, parameters or {}, constants or {}, layout, graphs, ad)


def _call_name(build: Callable[..., Any]) -> str:
    return getattr(build, "__name__", type(build).__name__)


def _argument_names(
    build: Callable[..., Any], inputs: Mapping[str, object]
) -> tuple[tuple[str, ...], set[str]]:
    """Names of the arguments, and those whose number of rows is an argument too."""
    names = []
    for p in inspect.signature(build).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise GraphError(f"compile: {_call_name(build)} must take its arguments by name")
        if p.default is p.empty or p.name in inputs:
            names.append(p.name)
    for name in inputs:
        if name not in names:
            raise GraphError(f"inputs: {_call_name(build)} takes no {name!r}")
    counts = {n for n in names if f"{n}_count" in names and _has_capacity(n, inputs)}
    return tuple(n for n in names if n not in {f"{c}_count" for c in counts}), counts


def _has_capacity(name: str, inputs: Mapping[str, object]) -> bool:
    said = inputs.get(name)
    return isinstance(said, Input) and said.capacity is not None


def _device_of(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    """The device of the float tensors, the CPU where there are none. Raises GraphError where they
    lie on several."""
    found = [(n, t) for n, t in tensors.items() if isinstance(t, torch.Tensor)]
    devices = {t.device: name for name, t in found if t.is_floating_point()}
    if len(devices) > 1:
        where = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise GraphError(f"arguments lie on several devices: {where}")
    return next(iter(devices), torch.device("cpu"))


def _shape(v: Variable, batched: bool) -> tuple[int, ...]:
    """The shape of an output as ``forward`` describes it, images as NHWC."""
    tail = tuple(v.vtype.tail)
    value = v.size == (1, 1)
    batch = (v.layers,) if v.layers > 1 or (batched and not value) else ()
    if value:
        return (*batch, *(() if tail == (1,) else tail))
    if v.is_table:
        return (*batch, v.size[0], *tail)
    return (*batch, v.size[1], v.size[0], *tail)


def _is_image(v: Variable) -> bool:
    """Whether an output has channels that layout NCHW moves."""
    return v.size != (1, 1) and not v.is_table and not v.vtype.is_matrix
