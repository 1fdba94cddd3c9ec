"""Run random sequences of what users do with an engine, as many as time permits.

    python scripts/hunt_sequences.py 10000 [--first N] [--device NAME] [--actions N] [--ops N]

Each sequence has a program of its own; a fresh engine and float64 NumPy stand beside it (see
``dressi.apps.reliability.sequences``). A line on standard error every ten sequences; Ctrl-C ends
the hunt and prints what was found so far. The exit status is 1 where a fault was found.
"""

from __future__ import annotations

import argparse
import sys

from dressi.apps.reliability.sequences import Outcome, hunt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="sequences")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--device", help="index, name, name#k or UUID of the device")
    parser.add_argument("--actions", type=int, default=8, help="per sequence (default 8)")
    parser.add_argument("--ops", type=int, default=4, help="per program (default 4)")
    args = parser.parse_args()
    found = Outcome()
    told = 0

    def tell(seed: int, done: Outcome) -> None:
        nonlocal found, told
        found = done
        for fault in done.faults[told:]:
            print(fault, flush=True)
        told = len(done.faults)
        if seed % 10 == 9:
            print(f"seed {seed}: {told} faults, {dict(done.counts)}", file=sys.stderr, flush=True)

    seeds = range(args.first, args.first + args.count)
    try:
        hunt(seeds, args.device, None, args.actions, args.ops, tell)
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
    print(f"{len(found.faults)} faults; {dict(found.counts)}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
