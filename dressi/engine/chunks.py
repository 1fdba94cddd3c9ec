"""Steps with a callback and a progress bar in between. In: what runs steps. Out: the
same steps, in chunks."""

from __future__ import annotations

from collections.abc import Callable

Callback = Callable[[int], object]
"""Called with the number of steps done; True stops."""


def run_in_chunks(
    run: Callable[[int], object],
    loss: Callable[[], float],
    n: int,
    callback: Callback | None,
    progress: bool,
    every: int,
) -> None:
    """Run n steps, ``every`` at once. run: does so many. progress: a bar on standard error, or in a
    notebook, with the loss."""
    from tqdm import tqdm  # it takes a while to import, and few ask for it

    done = 0
    with tqdm(total=n, unit="step", disable=not progress) as bar:
        while done < n:
            many = min(every, n - done)
            run(many)
            done += many
            if progress:
                bar.set_postfix(loss=f"{loss():.4g}", refresh=False)
                bar.update(many)
            if callback is not None and callback(done) is True:
                break
