"""Idioms of other array libraries on Variables: each raises a sentence with Dressi's own word.

In: what a NumPy or PyTorch user writes on a Variable. Out: GraphError, or AttributeError where
Python asks for one. Nothing here computes.
"""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from dressi.ad.idiom_words import ARGUMENTS, ATTRIBUTES, OPS, OPTIMIZER_ARGUMENTS
from dressi.errors import GraphError, warn

if TYPE_CHECKING:
    from dressi.ad.graph import Variable

P = ParamSpec("P")
R = TypeVar("R")

_MASKS = {"&": "F.logical_and(a, b)", "|": "F.logical_or(a, b)", "^": "F.logical_xor(a, b)"}


def no_op(name: str, known: Iterable[str], family: str = "F") -> AttributeError:
    """Return the error for an op that F (or a family of it) does not have, naming the one that is
    likely to be meant. known: all ops, as ``linalg.inverse``."""
    text = f"{family} has no op {name!r}"
    ops = list(known)
    same = [op for op in ops if op.rpartition(".")[2] == name]
    if same:
        return AttributeError(f"{text}; it is F.{same[0]}")
    here = OPS.get(name) or OPS.get(name.lower())  # dFdx is GLSL's
    if here:
        return AttributeError(f"{text}; here it is F.{here}")
    by_end = {op.rpartition(".")[2]: op for op in ops}
    close = difflib.get_close_matches(name, by_end, n=2, cutoff=0.8)
    return AttributeError(
        text + (f"; did you mean {' or '.join(f'F.{by_end[c]}' for c in close)}?" if close else "")
    )


def hinted(op: Callable[P, R]) -> Callable[P, R]:
    """Decorator of an op whose arguments have other names elsewhere: GraphError for these, and for
    an axis in the place of ``per_layer``."""
    name, names = op.__name__, list(inspect.signature(op).parameters)

    @wraps(op)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        flag = dict(zip(names, args)).get("per_layer", kwargs.get("per_layer", False))  # noqa: B905
        wrong = next((k for k in kwargs if k in ARGUMENTS), None)
        if wrong is not None:
            text, wanted = f"has no argument {wrong}", wrong
        elif not isinstance(flag, (bool, np.bool_)):
            text, wanted = f"per_layer must be True or False, got {flag!r}", "axis"
        else:
            return op(*args, **kwargs)
        raise GraphError(f"F.{name}: {text}\n  hint: {ARGUMENTS[wanted].format(name)}")

    return call


class Identity:
    """What ``a == b`` of a Variable is: a truth value about Python objects (whether it is the same
    Variable), which dictionaries and ``in`` need, and no mask; ops refuse it."""

    __slots__ = ("is_number", "negated", "text", "value")

    def __init__(self, a: Variable, b: Any, negated: bool) -> None:
        self.value, self.negated = (a is b) != negated, negated
        self.text = f"{a.label()} {'!=' if negated else '=='} "
        self.is_number = isinstance(b, (numbers.Number, np.ndarray, np.generic))
        self.text += b.label() if hasattr(b, "label") else repr(b)[:40]

    def __bool__(self) -> bool:
        if self.is_number:
            warn(f"{self.text}: compares Python objects, always {self.value}; {self.instead}")
        return self.value

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def instead(self) -> str:
        """The op that compares values."""
        return f"F.{'not_equal' if self.negated else 'equal'}(a, b) is the mask"

    def refused(self, where: str) -> GraphError:
        """Return the error for a use as a mask or a number. where: the op, or the operator."""
        return GraphError(
            f"{where}: {self.text} compares Python objects, which is {self.value!r} and no "
            f"mask\n  hint: {self.instead}"
        )


def _refuse_operators(signs: str, names: str) -> None:
    for sign, name in zip(signs.split(), names.split(), strict=True):

        def refuse(self: Identity, *_: Any, sign: str = sign) -> NoReturn:
            raise self.refused(f"operator {sign}")

        setattr(Identity, f"__{name}__", refuse)


_refuse_operators("& | ^ + - * / **", "and or xor add sub mul truediv pow")
_refuse_operators("& | ^ + - * / **", "rand ror rxor radd rsub rmul rtruediv rpow")
_refuse_operators("~ - < <= > >=", "invert neg lt le gt ge")


class Idioms:
    """The part of a Variable that says what Dressi's word is."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return Identity(self, other, False)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Any:
        return Identity(self, other, True)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        raise GraphError(
            f"{_label(self)}: a Variable has no truth value while the graph is being built; use "
            "F.where, and F.logical_and, F.maximum ... for and, max() ..."
        )

    def __getitem__(self, key: Any) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: a Variable has no elements to take\n  hint: x[..., 0] is x.x, "
            "x[..., :2] is x.xy; layers F.take_layer(x, k); pixels F.crop or F.lookup"
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: a Variable has no elements to set\n  hint: ad.send_img(x, array) "
            "sets a leaf; F.where(mask, a, x) and F.with_components give other values"
        )

    def __and__(self, other: object) -> NoReturn:
        raise _no_operator(self, "&")

    def __or__(self, other: object) -> NoReturn:
        raise _no_operator(self, "|")

    def __xor__(self, other: object) -> NoReturn:
        raise _no_operator(self, "^")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: ~ is no operator of Variables\n  hint: of masks it is "
            "F.logical_not(a)"
        )

    def __mod__(self, other: object) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: % is no operator of Variables\n  hint: F.mod(a, b), of integers "
            "F.imod(a, b)"
        )

    def __floordiv__(self, other: object) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: // is no operator of Variables\n  hint: F.floor(a / b), of integers "
            "F.idiv(a, b)"
        )

    __rmod__, __rfloordiv__ = __mod__, __floordiv__

    def __lshift__(self, other: object) -> NoReturn:
        raise GraphError(
            f"{_label(self)}: << and >> are no operators of Variables\n  hint: of integers "
            "F.bits.shift_left(a, n), F.bits.shift_right(a, n)"
        )

    __rshift__ = __lshift__

    def __format__(self, spec: str) -> str:
        if spec:
            raise _no_numbers(self)
        return str(self)

    def __len__(self) -> NoReturn:
        # A TypeError: list(x) goes on to the first element then.
        raise TypeError(
            f"{_label(self)} has no len(); x.size is (width, height), x.layers the stacked images, "
            "x.vtype.n the components"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _no_numbers(self)

    def __float__(self) -> NoReturn:
        raise _no_numbers(self)

    def __int__(self) -> NoReturn:
        raise _no_numbers(self)

    def __round__(self, digits: int = 0) -> NoReturn:
        raise GraphError(f"{_label(self)}: round() needs a number\n  hint: F.round(x)")


def missing(name: str, ops: Iterable[str]) -> AttributeError:
    """Return the error for an attribute that a Variable does not have. ops: of F, as
    ``linalg.inverse``."""
    text = f"a Variable has no attribute {name!r}"
    if name in ATTRIBUTES:
        return AttributeError(f"{text}; {ATTRIBUTES[name]}")
    if 1 <= len(name) <= 4 and all(c in "xyzwrgba" for c in name):
        return AttributeError(f"{text}; F.swizzle(x, {name!r}) has any components in any order")
    known = list(ops)
    if name in known:
        return AttributeError(f"{text}; F.{name}(x) does it")
    return AttributeError(text + "".join(str(no_op(name, known)).partition("; ")[1:]))


class Absent:
    """Descriptor of an attribute that Variables do not have: raises the AttributeError that names
    what there is. (``__getattr__`` would make every other attribute slower.)"""

    __slots__ = ("name", "ops")

    def __init__(self, name: str, ops: Callable[[], Iterable[str]]) -> None:
        self.name, self.ops = name, ops

    def __get__(self, x: object, owner: type) -> NoReturn:
        raise missing(self.name, self.ops())


def attach_absent(owner: type, ops: Callable[[], Iterable[str]]) -> None:
    """Give a class its Absent attributes, which ``dir`` does not list. ops: of F."""
    letters = (p for s in ("xyzw", "rgba") for n in (2, 3, 4) for p in product(s, repeat=n))
    names = {*ATTRIBUTES, *OPS, *(op for op in ops() if "." not in op), *map("".join, letters)}
    absent = {name for name in names if not hasattr(owner, name)}
    for name in absent:
        setattr(owner, name, Absent(name, ops))
    listed: Any = owner
    listed.__dir__ = lambda self: [name for name in object.__dir__(self) if name not in absent]


class OptimizerIdioms:
    """Base of optimizers: what their calls in PyTorch are here."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        given = (*args[:1], *(kwargs[k] for k in ("params", "parameters") if k in kwargs))
        if kwargs.keys() & {"params", "parameters"} or any(map(_are_parameters, given)):
            raise GraphError(
                f"{cls.__name__}: takes no parameters; those are the leaves of the loss with "
                f"requires_grad\n  hint: ad.set_optimizer({cls.__name__}(lr=0.01))"
            )
        for name in kwargs.keys() & OPTIMIZER_ARGUMENTS.keys():
            if not hasattr(cls, name) and name not in cls.__init__.__code__.co_varnames:
                raise GraphError(
                    f"{cls.__name__}: has no argument {name}; {OPTIMIZER_ARGUMENTS[name]}"
                )
        return super().__new__(cls)

    if not TYPE_CHECKING:  # a type checker is to find attributes that do not exist

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__} has no attribute {name!r}"
            if name in ("step", "zero_grad"):
                text += "; ad.exec_step() computes gradients anew and steps, on the device"
            if name in ("state_dict", "load_state_dict"):
                text += f"; its state is on the device: ad.{name}"
            if name in ("param_groups", "add_param_group"):
                text += "; dressi.ParameterGroups has an optimizer for each name"
            raise AttributeError(text)


def _are_parameters(first: Any) -> bool:
    """Whether this is what optimizers of PyTorch are given: Variables, or groups of them. One of
    1x1 may be a learning rate."""
    if hasattr(first, "vtype"):
        return bool(first.requires_grad) and not first.is_uniform_sized
    try:
        listed = list(first) if isinstance(first, Iterable) else []
    except TypeError:
        return False
    return any(hasattr(v, "vtype") or (isinstance(v, dict) and "params" in v) for v in listed)


def _label(x: Any) -> str:
    return str(x.label())


def _no_operator(x: Any, sign: str) -> GraphError:
    return GraphError(
        f"{_label(x)}: {sign} is no operator of Variables\n  hint: of masks it is {_MASKS[sign]}, "
        "of bits it is in F.bits"
    )


def _no_numbers(x: Any) -> GraphError:
    return GraphError(
        f"{_label(x)}: a Variable is a place in a graph and holds no numbers\n  hint: "
        "ad.recv_img(x) reads what an engine has, dressi.evaluate([x], feeds) computes with NumPy"
    )


def no_vtype(who: str, given: str) -> GraphError:
    """Return the error for something else in the place of a type."""
    return GraphError(
        f"{who}: vtype must be a VType, got {given}\n  hint: Variable(VEC3, (width, height)) and "
        "ad.send_img(x, array), or F.leaf(array, VEC3)"
    )


def not_a_leaf(x: Any) -> GraphError:
    """Return the error for ``requires_grad`` of a Variable that is computed."""
    return GraphError(
        f"{_label(x)}: is computed by {x.creator.where}, so it is no parameter\n  hint: set "
        "requires_grad on the leaf that it is computed from; its own gradient is "
        "dressi.ad.build_backward(loss, [it])"
    )


def not_in_graph(where: str, value: Any, shape: tuple[int, ...]) -> GraphError:
    """Return the error for an array of more than 4 numbers in an expression. where: the op."""
    kind = type(value)
    of = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    data = "tensor.detach().cpu().numpy()" if of.startswith("torch") else "array"
    return GraphError(
        f"{where}: constants have 1 to 4 numbers, got {of} of shape {shape}\n  hint: "
        f"F.leaf({data}, vtype) is a leaf that holds it; or a Variable, and ad.send_img(x, {data})"
    )


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return the numbers of an optimizer of Dressi, those of optimizers inside it under longer
    names (of objects, who they are); {} for a function."""
    if isinstance(optimizer, Mapping):
        items: Mapping[str, Any] = optimizer
    elif type(optimizer).__module__.startswith("dressi.ad.optim"):
        items = vars(optimizer)
    else:
        return {}
    found: dict[str, Any] = {}
    for name, value in items.items():
        found[name] = value if isinstance(value, (int, float)) else id(value)
        found |= {f"{name}.{key}": inner for key, inner in settings_of(value).items()}
    return found
