"""Steps with a callback and a progress bar in between. In: an engine. Out: the same steps, in
chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tqdm.auto import tqdm

if TYPE_CHECKING:
    from dressi.engine.engine import Engine

Callback = Callable[[int], object]
"""Called with the number of steps done; True stops."""


def run_in_chunks(
    engine: Engine, n: int, callback: Callback | None, progress: bool, every: int
) -> int:
    """Run n steps of an engine, ``every`` at once, and return how many were run. progress: a bar on
    standard error, or in a notebook, with the sum of the loss."""
    done = 0
    with tqdm(total=n, unit="step", disable=not progress) as bar:
        while done < n:
            many = min(every, n - done)
            engine.exec_steps(many)
            done += many
            if progress:
                bar.set_postfix(loss=f"{_loss(engine):.4g}", refresh=False)
                bar.update(many)
            if callback is not None and callback(done) is True:
                break
    return done


def _loss(engine: Engine) -> float:
    loss = engine._program.need_loss()
    return float(np.sum(engine.recv_img(loss)))
