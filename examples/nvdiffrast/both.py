"""The scripts of this folder by both interfaces, and whether they find the same.

Usage: both.py [OUT.json] [--only cube.py ...] [--timeout 120]. Each runs unchanged, as
``python -m dressi.torch SCRIPT`` and, where nvdiffrast is installed, as ``python SCRIPT``. The last
line that a script prints is its final error, as JSON.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Script, arguments, and the error from which on a figure is rounding and counts as equal: that of
# float32 weights; of an angle from a float32 cosine next to 1, whose arc is off by some hundredths
# of a degree for the last bit.
RUNS = (
    ("triangle.py", ("{scratch}",), 1e-6),
    ("cube.py", ("16", "150"), 0.0),
    ("cube.py", ("8", "150"), 0.0),
    ("cube.py", ("4", "150"), 0.0),
    ("pose.py", ("48", "75", "6"), 0.05),
    ("earth.py", ("48", "80"), 0.0),
    ("envphong.py", ("48", "60"), 0.0),
)
WITHIN = 1.2
"""Ratio of the larger final error to the smaller one, at most."""
CONDITIONS = {
    "same": "errors within 20 % of each other",
    "not_worse": "Dressi's error at most 1.2 times the other",
}


def run(command, timeout):
    """Return what the last line says, with the seconds of the whole process."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command], cwd=HERE, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "seconds": time.perf_counter() - begin}


def compared(row):
    """Whether both errors are equal within ``WITHIN``, and whether Dressi's is at most that much
    larger."""
    own, theirs = (max(row[k]["error"], row["rounding"], 1e-12) for k in ("dressi", "nvdiffrast"))
    return {"same": max(own, theirs) <= WITHIN * min(own, theirs),
            "not_worse": own <= WITHIN * theirs}  # fmt: skip


def said(figures):
    return f"{figures['error']:.3g} ({figures['seconds']:.1f} s)" if figures else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default="both.json")
    parser.add_argument("--only", nargs="+", choices=sorted({r[0] for r in RUNS}))
    parser.add_argument("--timeout", type=float, default=120)
    args = parser.parse_args()
    installed = importlib.util.find_spec("nvdiffrast") is not None
    if not installed:
        print("nvdiffrast is not installed: Dressi's errors alone")
    scratch = str(Path(args.out).resolve().with_suffix(".png"))
    print(f"{'script':<18}{'at first':>10}{'dressi':>20}{'nvdiffrast':>20}  within 20 %")
    rows = []
    for script, arguments, rounding in RUNS:
        if args.only and script not in args.only:
            continue
        command = [script, *(scratch if a == "{scratch}" else a for a in arguments)]
        name = " ".join([script, *(a for a in arguments if a != "{scratch}")])
        row = {"script": name, "rounding": rounding, "nvdiffrast": None}
        row["dressi"] = run(["-m", "dressi.torch", *command], args.timeout)
        if installed:
            row["nvdiffrast"] = run(command, args.timeout)
            row |= compared(row)
        rows.append(row)
        first = row["dressi"].get("first")
        print(f"{row['script']:<18}{'' if first is None else f'{first:.3g}':>10}"
              f"{said(row['dressi']):>20}{said(row['nvdiffrast']):>20}"
              f"  {row.get('same', '')}", flush=True)  # fmt: skip
    found = {"rows": rows}
    if installed:
        for key, words in CONDITIONS.items():
            found[key] = all(row[key] for row in rows)
            print(f"{words}: {'holds' if found[key] else 'does not hold'}")
    Path(args.out).write_text(json.dumps(found, indent=1))
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
