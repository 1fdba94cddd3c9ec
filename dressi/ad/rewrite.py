"""Graph to graph: one walk that puts something else in the place of some Functions.

In: outputs and a rule. Out: the outputs of a new graph. Functions are immutable: what depends on a
replaced Function is applied again to the new inputs, and the rest is shared with the old graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dressi.ad.graph import Function, Variable, topological
from dressi.ad.registry import apply
from dressi.errors import origin


class Replacements(dict[int, Variable]):
    """By uid of a Variable: the Variable that replaces it. Calling it with a Variable returns the
    replacement, or the Variable itself where there is none."""

    def __call__(self, v: Variable) -> Variable:
        return self.get(v.uid, v)


Rule = Callable[[Function, Replacements], Variable | None]
"""(Function, replacements of everything before it) -> what replaces its output; None: the Function
applied to the replacements of its inputs."""


class Copies(Replacements):
    """Copies of Variables, made on demand and depth first, each once.

    rule: (Variable, these copies) -> its copy; None: its Function applied to the copies of its
    inputs.
    """

    def __init__(self, rule: Callable[[Variable, Copies], Variable | None]) -> None:
        super().__init__()
        self._rule = rule

    def __call__(self, v: Variable) -> Variable:
        if v.uid not in self:
            copy = self._rule(v, self)
            if copy is None:
                assert v.creator is not None
                copy = reapplied(v.creator, [self(x) for x in v.creator.inputs])
            self[v.uid] = copy
        return self[v.uid]


def rewrite(
    outputs: Sequence[Variable], rule: Rule, new: Replacements | None = None
) -> list[Variable]:
    """Outputs of the graph in which ``rule`` has replaced the output of each Function.

    The rule is called in the order in which the Functions were created. What it returns is final; a
    rule that builds Functions to be rewritten in turn calls ``rewrite`` on them with the ``new``
    that it was given.
    """
    new = Replacements() if new is None else new
    for f in topological(outputs, new):
        y = f.output
        if y.uid in new:
            continue
        with origin(f.line):
            replacement = rule(f, new)
            if replacement is None:
                replacement = named(reapplied(f, [new(x) for x in f.inputs]), y)
        new[y.uid] = replacement
        new.setdefault(replacement.uid, replacement)
    return [new(v) for v in outputs]


def reapplied(f: Function, inputs: Sequence[Variable], **changed: Any) -> Variable:
    """The output of f's op on these inputs, with some attributes changed; f's own output where
    nothing differs."""
    if not changed and all(a is b for a, b in zip(inputs, f.inputs, strict=True)):
        return f.output
    return apply(f.op, inputs, **{**dict(f.attrs), **changed})


def named(v: Variable, like: Variable) -> Variable:
    """v, with the name of ``like`` if it has none."""
    v.name = v.name or like.name
    return v
