"""Executes the notebooks; the exit status is 1 when a cell of one raises.

Works on a copy under out/notebooks, so the tracked files stay as they are; the executed notebooks
are left there to look at. ``--save`` writes them back with their outputs when all went well. The
kernel is this interpreter's own; Jupyter and IPython write nothing to the home folder.

    python scripts/run_notebooks.py [--save] [--jobs N] [NOTEBOOK ...]

--jobs: kernels at once; a notebook's seconds are those beside the others then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600  # for a cell; a notebook is meant to take a minute or so on two CPU cores


async def run_notebook(path: Path) -> str | None:
    """Executes ``path`` in its own folder, outputs written into it; returns the error's text."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=40"],  # errors only: newer kernels warn about plain TCP
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        await client.async_execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)
    finally:
        nbformat.write(notebook, path)
    return None


def save(executed: Path, target: Path) -> None:
    """Writes an executed notebook back, of progress bars the last line only."""
    import nbformat

    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        merged: list[Any] = []
        streams: dict[str, Any] = {}
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name in streams:
                streams[output.name].text += output.text
                continue
            if output.output_type == "stream":
                streams[output.name] = output
            merged.append(output)
        for output in streams.values():
            lines = output.text.split("\n")
            output.text = "\n".join(line.rstrip("\r").split("\r")[-1] for line in lines)
        if cell.cell_type == "code":
            cell.outputs = merged
    nbformat.write(notebook, target)


async def run_all(paths: list[Path], jobs: int) -> int:
    """Runs notebooks, ``jobs`` at once; prints a line for each and returns how many failed."""
    free = asyncio.Semaphore(jobs)

    async def run(path: Path) -> bool:
        async with free:
            start = time.perf_counter()
            error = await run_notebook(path)
        verdict = "ok" if error is None else "FAILED"
        print(f"{path.name}: {verdict}, {time.perf_counter() - start:.1f} s", flush=True)
        if error is not None:
            print(error, file=sys.stderr, flush=True)
        return error is not None

    return sum(await asyncio.gather(*(run(path) for path in paths)))


def main(arguments: list[str]) -> int:
    """Runs the named notebooks, or all of notebooks/."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK")
    given = parser.parse_args(arguments)
    source, copy = ROOT / "notebooks", ROOT / "out" / "notebooks"
    shutil.rmtree(copy, ignore_errors=True)
    ignored = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
    shutil.copytree(source, copy, ignore=ignored)
    paths = [copy / Path(name).name for name in given.names] or sorted(copy.glob("*.ipynb"))
    if not paths:
        print(f"no notebooks in {source.relative_to(ROOT)}/", file=sys.stderr)
        return 1
    failed = asyncio.run(run_all(paths, given.jobs))
    if not failed and given.save:
        for path in paths:
            save(path, source / path.name)
    return 1 if failed else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        # Before Jupyter is imported: the venv's kernel first, and no files in the home folder.
        os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
        os.environ["JUPYTER_RUNTIME_DIR"] = str(Path(scratch) / "runtime")
        os.environ["IPYTHONDIR"] = str(Path(scratch) / "ipython")
        status = main(sys.argv[1:])
    sys.exit(status)
