"""``python -m dressi.torch script.py args``: runs a script that imports ``nvdiffrast.torch`` on
``dressi.torch.nvdiffrast``; without CUDA its tensors stay on the CPU. ``-m package.module`` runs a
module."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch

from dressi.torch.no_cuda import alias_nvdiffrast, map_cuda_to_cpu

USAGE = """usage: python -m dressi.torch SCRIPT.py [ARGUMENTS ...]
       python -m dressi.torch -m MODULE [ARGUMENTS ...]

Runs a script that imports nvdiffrast.torch on dressi.torch.nvdiffrast. Where torch has no CUDA,
what the script asks to be on a GPU stays on the CPU."""


def main(arguments: list[str]) -> None:
    """Run the script or module that the arguments name, with the rest of them."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        asked = bool(arguments) and arguments[0] != "-m"
        (sys.stdout if asked else sys.stderr).write(USAGE + "\n")
        raise SystemExit(0 if asked else 2)
    is_module = arguments[0] == "-m"
    script = arguments[1] if is_module else arguments[0]
    if not is_module and not Path(script).exists():
        raise SystemExit(f"python -m dressi.torch: there is no file {script}")
    alias_nvdiffrast()
    if not torch.cuda.is_available():
        map_cuda_to_cpu()
    sys.argv = arguments[1:] if is_module else arguments
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(script).resolve().parent)
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
