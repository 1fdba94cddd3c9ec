"""How a notebook shows a Variable: its type and maker, and the picture that a leaf holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dressi.previews import image_html, resized, table_html, to_screen

if TYPE_CHECKING:
    from dressi.ad.graph import Variable


class Shown:
    """The part of a Variable that notebooks ask for."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        v = cast("Variable", self)
        rows: dict[str, Any] = {
            "type": v.vtype.name,
            "size": f"{v.size[0]} x {v.size[1]}" + (f", {v.layers} layers" if v.layers > 1 else ""),
            "made": v.line if v.creator is None else v.creator.where,
            "requires_grad": v.requires_grad,
        }
        beside = ""
        if v.data is not None and not v.vtype.is_matrix:
            rows["data"] = f"in [{v.data.min():.4g}, {v.data.max():.4g}]"
            if not v.vtype.is_int and min(v.size) > 1:
                beside = image_html(resized(to_screen(v.data[0])), v.label())
        elif v.creator is None and v.derived is None:
            rows["data"] = "sent to an engine, if anywhere: dressi.show(x, engine)"
        return table_html(v.name or f"%{v.uid}", rows, beside)
