"""GLSL to SPIR-V for a whole build at once, through the disk cache.

In: (stage, GLSL) pairs. Out: SPIR-V for Vulkan 1.0. Texts that occur twice are compiled once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from dressi.config import cache_dir
from dressi.errors import ShaderError
from dressi.vk import cache
from dressi.vk.compilers import CompileFailure, find_compiler

STAGES = ("vert", "frag", "comp")
_MAGIC = (0x07230203).to_bytes(4, "little")
_CACHE_VERSION = b"1"
"""Part of every key; grows when the same GLSL should compile to something else than before."""
_CACHE_LIMIT = 64 << 20
_PRUNED_EVERY = _CACHE_LIMIT // 16
"""Bytes that a process writes before it looks through the cache again: a few thousand files take as
long as packing a small graph."""
_unpruned = _PRUNED_EVERY  # written since then; the first that is written counts as enough
_CONTEXT_LINES = 3


def compile_glsl(sources: list[tuple[str, str]]) -> list[bytes]:
    """Compiles shaders, all in one call.

    ``sources``: (stage, GLSL) with stage ``vert``, ``frag`` or ``comp``. Returns SPIR-V in the same
    order. Raises ShaderError with the compiler's text and the numbered lines around it, or one that
    says what to install when there is no compiler.
    """
    for stage, _ in sources:
        if stage not in STAGES:
            raise ShaderError(f"unknown shader stage {stage!r}; known: {', '.join(STAGES)}")
    folder = cache_dir() / "spirv"
    names = {source: _key(*source) for source in dict.fromkeys(sources)}
    done: dict[tuple[str, str], bytes] = {}
    for source, name in names.items():
        kept = cache.read(folder / name)
        if kept is not None and is_spirv(kept):
            done[source] = kept
    missing = [s for s in names if s not in done]
    if missing:
        for source, code in zip(missing, _compile(missing), strict=True):
            done[source] = code
            cache.write(folder / names[source], code)
        _bound(folder, sum(len(done[source]) for source in missing))
    return [done[s] for s in sources]


def _bound(folder: Path, written: int) -> None:
    """Keep the cache to its limit, and what processes have written since they looked."""
    global _unpruned
    _unpruned += written
    if _unpruned >= _PRUNED_EVERY:
        _unpruned = 0
        cache.prune(folder, _CACHE_LIMIT)


def is_spirv(code: bytes) -> bool:
    """Whether bytes look like SPIR-V: magic number, header, whole words."""
    return len(code) >= 20 and len(code) % 4 == 0 and code[:4] == _MAGIC


def _compile(sources: Sequence[tuple[str, str]]) -> list[bytes]:
    compiler = find_compiler()
    try:
        codes = compiler.compile(sources)
    except CompileFailure as failure:
        stage, text = sources[failure.index]
        raise ShaderError(error_text(compiler.name, stage, text, failure.message)) from None
    for (stage, _), code in zip(sources, codes, strict=True):
        if not is_spirv(code):
            raise ShaderError(f"{compiler.name} gave no SPIR-V for a {stage} shader")
    return codes


_COMMENT = re.compile(r"[ \t]*//[^\n]*")


def _key(stage: str, text: str) -> str:
    """Name of a file of the cache. Comments hold names and lines of the user's program, which make
    no difference to the code."""
    content = b"\0".join((_CACHE_VERSION, stage.encode(), _COMMENT.sub("", text).encode()))
    return hashlib.blake2b(content, digest_size=20).hexdigest() + ".spv"


# What the generator writes behind the first line of a snippet: the op and the user's line.
_ORIGIN = re.compile(r"//\s+(?:F\.)?(\w+)  (\S+:\d+(?: \[[^\]]+\])?)$")


def _origin(lines: Sequence[str], number: int) -> str:
    """``F.op at file:line`` of the snippet that a line (from 1) belongs to, or nothing."""
    for line in reversed(lines[:number]):
        found = _ORIGIN.search(line.rstrip())
        if found is not None:
            return f"F.{found[1]} at {found[2]}"
    return ""


def error_text(compiler: str, stage: str, text: str, message: str) -> str:
    """The compiler's message followed by the numbered source lines around what it names."""
    # glslang writes 'ERROR: 0:12: ...', glslc and shaderc write 'name:12: error: ...'.
    numbers = re.findall(r"(?:ERROR: [^:\n]*:|^[^:\n]+:)(\d+):", message, flags=re.MULTILINE)
    lines = text.splitlines()
    wanted: set[int] = set()
    marked = {int(n) for n in numbers[:5]}
    for number in marked:
        wanted.update(range(number - _CONTEXT_LINES, number + _CONTEXT_LINES + 1))
    shown = [
        f"{'>' if n in marked else ' '}{n:4d} | {lines[n - 1]}"
        for n in sorted(wanted)
        if 1 <= n <= len(lines)
    ]
    places = dict.fromkeys(p for n in sorted(marked) if (p := _origin(lines, n)))
    made = [f"  made by {', '.join(places)}"] if places else []
    parts = [f"{compiler} does not compile a {stage} shader:", message.strip(), *made, *shown]
    return "\n".join(parts)
