"""Run random sequences of what users do with an engine, as many as time permits.

    python scripts/hunt_sequences.py 10000 --jobs 2 [--first N] [--device NAME] [--actions N]

Each sequence has a program of its own; a fresh engine and float64 NumPy stand beside it (see
``dressi.testing.sequences``). Faults are printed as they are found, and a line on standard
error for every share of ten sequences; Ctrl-C ends the hunt and prints what was found so far. The
exit status is 1 where a fault was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from dressi.testing.sequences import Outcome, hunt

SHARE = 10
"""Sequences that a process runs between two reports."""


def run_share(first: int, last: int, device: str | None, actions: int, ops: int) -> Outcome:
    """What the sequences of seeds ``first`` to ``last - 1`` show."""
    return hunt(range(first, last), device, None, actions, ops)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="sequences")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default 1)")
    parser.add_argument("--device", help="index, name, name#k or UUID of the device")
    parser.add_argument("--actions", type=int, default=8, help="per sequence (default 8)")
    parser.add_argument("--ops", type=int, default=4, help="per program (default 4)")
    args = parser.parse_args()
    end = args.first + args.count
    found, done = Outcome(), 0
    work = partial(run_share, device=args.device, actions=args.actions, ops=args.ops)
    # Not forked: a child of a process that holds a device could not use it.
    pool = ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn"))
    try:
        shares = [(at, min(at + SHARE, end)) for at in range(args.first, end, SHARE)]
        waiting = {pool.submit(work, *share): share for share in shares}
        for future in as_completed(waiting):
            outcome = future.result()
            found.add(outcome)
            done += waiting[future][1] - waiting[future][0]
            for fault in outcome.faults:
                print(fault, flush=True)
            text = f"{done} of {args.count} sequences: {len(found.faults)} faults"
            print(f"{text}, {dict(found.counts)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    print(f"{done} sequences, {len(found.faults)} faults; {dict(found.counts)}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
