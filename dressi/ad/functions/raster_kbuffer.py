"""A k-buffer: the n nearest layers of every pixel in one traversal of the primitives.

In: the fragments of ``raster_compute``. Out: for every pixel n slots side by side in a buffer, the
nearest layer first, and the op that reads the primitive of one of them. The layers are those of
depth peeling (``ad.peeling``), to the bit. Linear in fragments where peeling is linear in fragments
times layers. Source: Bavoil et al. 2007, Multi-Fragment Effects on the GPU using the k-Buffer; here
with atomics instead of a lock per pixel.

Why the slots are exact, whatever the order of the fragments. A key (depth, primitive), inverted so
that nearer is larger, goes to slot 0. ``atomicMax`` leaves the larger of the two keys that meet
there and gives back what was in the slot; the smaller one goes on to the next slot, unless both
have one depth: then it ends. Let V be all keys that ever come to a slot, in any order.

1. The slot ends up with the largest of V: atomic maxima do not depend on their order.
2. Every other key of V leaves once, beaten by a larger key of V (the one that it finds, or the one
   that finds it). If it has the depth of the largest key it ends there: what beats it lies between
   the two, and keys of one depth are neighbours in order.
3. If it is the largest of another depth, what beats it has another depth: it goes on.

So each slot takes the nearest depth, with the smallest number at that, and hands the best key of
each farther depth to the next; by induction slot k holds layer k. A fragment
that sees a nearer depth in a slot needs no atomic operation: slots only grow, so it is beaten. Only
the depth is looked at for that: of a 64-bit word that is being written, halves may be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressi.ad.functions.raster_compute import DEPTH32, KEY64, WINNER32
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, implement
from dressi.ad.registry import ANY, Op, Shape, apply
from dressi.ad.vtype import INT

# {n}: slots per pixel; slot: its number; bits: of the depth; primitive: its number.
_KEYS64 = """slot *= {n};
        if (uint({buffer}[slot + {n} - 1] >> 32) <= ~bits) {  // else hidden by {n} layers
          uint64_t key = ~((uint64_t(bits) << 32) | uint64_t(uint(primitive)));
          for (int k = 0; k < {n} && key != uint64_t(0); k++) {
            uint mine = uint(key >> 32), there = uint({buffer}[slot + k] >> 32);
            uint64_t least = key;
            if (there <= mine) {
              uint64_t old = atomicMax({buffer}[slot + k], key);
              there = uint(old >> 32);
              least = min(old, key);
            }
            key = there == mine ? uint64_t(0) : least;
          }
        }"""

_DEPTHS32 = """slot *= {n};
        if ({buffer}[slot + {n} - 1] <= ~bits) {  // else hidden by {n} layers
          uint key = ~bits;
          for (int k = 0; k < {n} && key != 0u; k++) {
            uint there = {buffer}[slot + k], least = key;
            if (there < key) {
              there = atomicMax({buffer}[slot + k], key);
              least = min(there, key);
            }
            key = there == key ? 0u : least;
          }
        }"""

_WINNERS32 = """for (int k = 0; k < {n}; k++) {
          if (uint({depths}(ivec2(pixel.x * {n} + k, pixel.y), layer)) == ~bits) {
            atomicMax({buffer}[slot * {n} + k], ~uint(primitive));
            break;
          }
        }"""


SLOT_UPDATES = {KEY64: _KEYS64, DEPTH32: _DEPTHS32, WINNER32: _WINNERS32}
"""Templates of what a kept fragment does for {n} layers, by phase: with 64-bit atomics all in one
traversal; with 32-bit ones in two, first the depths (the same way, without numbers), then the
smallest number of those at each of the {depths}."""


def _layer_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    w, h = xs[0].size
    return INT, (w // attrs["n"], h), xs[0].layers


def _layer_glsl(f: Function) -> str:
    word = ".x" if f.inputs[0].vtype.n > 1 else ""  # the low one of 64 bits is the number
    n, k = f.attr("n"), f.attr("k")
    return f"{{y}} = ~{{fetch0}}(ivec2({{pos}}.x * {n} + {k}, {{pos}}.y), {{layer}}){word};"


LAYER = Op("kbuffer_layer", _layer_infer, reads=(ANY,))
implement(LAYER, Kernel(_layer_glsl))


def kbuffer_layer(keys: Variable, k: int, n: int) -> Variable:
    """INT @ pixels: the primitive of layer k of n, or -1. keys: the slots."""
    return apply(LAYER, (keys,), k=k, n=n)
