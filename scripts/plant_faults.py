#!/usr/bin/env python3
"""Plant faults in copies of the package, one at a time, and count those that the tests catch.

    python scripts/plant_faults.py --count 200 --jobs 2 --json out/faults.json

A fault is one changed token: an operator, a comparison, a number, a truth value, in Python or
inside a GLSL string, of the files of ``GROUPS``. Which ones is drawn by ``--seed``, evenly over the
groups. Each is tried on a copy of the tree with the tests that its group names, the nearest first,
until one fails that passes without the fault. A run that was stopped goes on from its JSON file.
The exit status is 1 when fewer than 90 % are caught. Needs a Vulkan device for the shaders' faults.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
WANTED = 0.9
LIMIT_S = 3600  # of one test command; a fault that never ends is caught by it

ON_DEVICE = "tests/engine/test_ops_on_device.py"
# Not those of a minute or more, which find what the others do, or look for leaks.
LONG = ("memory", "report", "sequences", "deterministic", "side_by_side", "types_on_device")
ENGINE = "tests/engine " + " ".join(f"--ignore-glob=*{name}*" for name in LONG)
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # name: (files, tests in the order in which they are run; {names} is `-k` of the file's ops)
    "ops": (
        ("dressi/ad/functions/*.py", "dressi/ad/functions/kernels/*.glsl"),
        (
            "tests/ad/test_op_table.py {names}",
            f"{ON_DEVICE} {{names}}",
            "tests/ad --ignore=tests/ad/test_op_table.py",
            ENGINE,
            "tests/render/test_raster.py tests/render/test_hardsoftras.py",
        ),
    ),
    "backward": (
        ("dressi/ad/autodiff.py", "dressi/ad/simplify.py", "dressi/ad/optim.py")
        + ("dressi/ad/forward.py", "dressi/ad/graph.py", "dressi/ad/lowering.py")
        + ("dressi/ad/peeling.py", "dressi/ad/vtype.py"),
        (
            "tests/ad --ignore=tests/ad/test_op_table.py",
            "tests/ad/test_op_table.py",
            ENGINE,
        ),
    ),
    "packing": (
        ("dressi/packing/*.py",),
        (
            "tests/packing --ignore=tests/packing/test_scale.py",
            f"{ENGINE} --ignore-glob=*on_device*",
            f"tests/packing/test_scale.py {ENGINE}",
        ),
    ),
}
NOT_MUTATED = {"show.py", "predict.py", "profile.py"}
"""Files whose faults change no result: texts, estimates of cost."""
TEXTS = {"short", "domain_text"}
"""Functions that write what people read."""
NO_RESULT = {"cases", "strict", "frozen", "slots", "overlap"}
"""Keywords of what is a test itself, checks, or changes how fast something is."""

SWAPS: dict[type[ast.AST], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
GLSL_SWAPS = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" < ", " <= "),
    (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" && ", " || "), (r" \|\| ", " && "), (r"\bmin\(", "max("), (r"\bmax\(", "min("),
    (r"\bsin\(", "cos("), (r"\b0\.5\b", "0.25"), (r"\b1\.0\b", "2.0"), (r"\.x\b", ".y"),
    (r"\{x0\}", "{x1}"), (r"\bfloor\(", "ceil("), (r"-\{x0\}", "{x0}"), (r"\bimin\(", "imax("),
]  # fmt: skip


@dataclass
class Fault:
    """One changed token: where it is, what stood there, what stands there now, and its fate."""

    group: str
    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    by: str = ""
    caught: bool | None = None
    seconds: float = 0.0

    def planted(self, source: str) -> str:
        """The source with the fault in it. Raises ValueError when the token is not there."""
        if source[self.start : self.end] != self.old:
            raise ValueError(f"{self.file}:{self.line}: {self.old!r} is not there any more")
        return source[: self.start] + self.new + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Collects (start, end, new text) of everything in a file that a fault can replace."""

    def __init__(self, source: str) -> None:
        self.source = source
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.bytes_to_chars = [line.encode() for line in lines]
        self.found: list[tuple[int, int, str]] = []

    def at(self, line: int, col: int) -> int:
        return self.starts[line - 1] + len(self.bytes_to_chars[line - 1][:col].decode())

    def between(self, left: ast.expr, right: ast.expr, new: str) -> None:
        """The operator between two operands, without the parentheses that may stand around it."""
        assert left.end_lineno and left.end_col_offset is not None
        start = self.at(left.end_lineno, left.end_col_offset)
        end = self.at(right.lineno, right.col_offset)
        match = re.search(r"[-+*/%<>=!]+|\bnot in\b|\bin\b|\bis not\b|\bis\b|\band\b|\bor\b",
                          self.source[start:end])  # fmt: skip
        if match:
            self.found.append((start + match.start(), start + match.end(), new))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.JoinedStr | ast.Constant) and not _number(node.left)
        if type(node.op) in SWAPS and not text:
            self.between(node.left, node.right, SWAPS[type(node.op)])
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.between(node.left, node.comparators[0], SWAPS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.between(node.values[0], node.values[1], SWAPS[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno or 0, node.end_col_offset or 0),
        )
        if isinstance(node.value, bool):
            self.found.append((start, end, str(not node.value)))
        elif _number(node):
            self.found.append((start, end, repr(node.value + 1)))
        elif isinstance(node.value, str) and _is_glsl(node.value):
            self.in_glsl(start, end)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        start, end = (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno or 0, node.end_col_offset or 0),
        )
        if _is_glsl(self.source[start:end]):
            self.in_glsl(start, end)

    def in_glsl(self, start: int, end: int) -> None:
        for pattern, new in GLSL_SWAPS:
            for match in re.finditer(pattern, self.source[start:end]):
                self.found.append((start + match.start(), start + match.end(), new))

    def visit_Raise(self, node: ast.Raise) -> None:
        """The text of an error is not a result."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in [*node.defaults, *(d for d in node.kw_defaults if d)]:
            self.visit(default)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in NO_RESULT:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """A case of an op is a test itself."""
        if not (isinstance(node.func, ast.Name) and node.func.id == "Case"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in TEXTS:
            self.generic_visit(node)


def _number(node: ast.expr) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_glsl(text: str) -> bool:
    return bool(re.search(r";\s*(\n|$|\"|')|\{y\}|\bivec2\b|\bfloat\b .*=", text))


def sites(group: str) -> list[Fault]:
    """Every fault that can be planted in the files of a group."""
    faults = []
    paths = sorted({p for pattern in GROUPS[group][0] for p in ROOT.glob(pattern)})
    for path in paths:
        if path.name in NOT_MUTATED:
            continue
        source = path.read_text(encoding="utf-8")
        visitor = _Sites(source)
        if path.suffix == ".glsl":
            visitor.in_glsl(source.index("\n", source.rfind("//!")), len(source))
        else:
            visitor.visit(ast.parse(source))
        for start, end, new in sorted(set(visitor.found)):
            fault = Fault(group, str(path.relative_to(ROOT)), source.count("\n", 0, start) + 1,
                          start, end, source[start:end], new)  # fmt: skip
            try:
                if path.suffix == ".py":
                    ast.parse(fault.planted(source))
            except SyntaxError:
                continue
            faults.append(fault)
    return faults


def chosen(count: int, seed: int) -> list[Fault]:
    """``count`` faults, evenly over the groups, drawn by the seed."""
    rng = random.Random(seed)
    drawn = []
    for k, group in enumerate(GROUPS):
        share = count // len(GROUPS) + (k < count % len(GROUPS))
        drawn += rng.sample(sites(group), share)
    return drawn


def _names_of(file: str) -> str:
    """``-k`` for the ops whose rows stand in a file; nothing where there are none."""
    found = re.findall(r'Op\(\s*"(\w+)"', (ROOT / file).read_text(encoding="utf-8"))
    return "-k '" + " or ".join(found) + "'" if found else ""


def _commands(fault: Fault) -> Iterator[str]:
    for tests in GROUPS[fault.group][1]:
        names = _names_of(fault.file) if "{names}" in tests else ""
        if "{names}" in tests and not names:
            continue
        yield tests.replace("{names}", names)


class Trier:
    """Tries faults in copies of the tree, several at once.

    A test that fails is run again without the fault: where it passes, the fault is caught by it.
    One that fails there too is left out from then on (``broken``).
    """

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.stopped = False
        self.running: set[subprocess.Popen[str]] = set()

    def stop(self) -> None:
        """End the tests that run; their faults stay untried."""
        self.stopped = True
        for process in list(self.running):
            os.killpg(process.pid, signal.SIGKILL)

    def try_fault(self, fault: Fault, tree: Path) -> None:
        """Plant a fault in a copy of the tree, run tests until one fails, and take it out again."""
        path = tree / fault.file
        source = path.read_text(encoding="utf-8")
        began = time.monotonic()
        by = ""
        for tests in _commands(fault):
            path.write_text(fault.planted(source), encoding="utf-8")
            try:
                failed = self.first_failure(tests, tree)
            finally:
                path.write_text(source, encoding="utf-8")
            while failed and not by and not self.stopped:
                if not self.first_failure(shlex.quote(failed) if "::" in failed else failed, tree):
                    by = failed
                else:
                    print(f"fails without a fault: {failed}", flush=True)
                    self.broken.add(failed)
                    path.write_text(fault.planted(source), encoding="utf-8")
                    try:
                        failed = self.first_failure(tests, tree)
                    finally:
                        path.write_text(source, encoding="utf-8")
            if by or self.stopped:
                break
        if not self.stopped:
            fault.caught, fault.by = bool(by), by
            fault.seconds = round(time.monotonic() - began, 1)

    def first_failure(self, tests: str, tree: Path) -> str:
        """The first test that fails, the whole command where it names none, "" where all pass."""
        without = " ".join(f"--deselect {shlex.quote(name)}" for name in sorted(self.broken))
        command = f"{sys.executable} -B -m pytest -x -q -rfE -p no:cacheprovider {tests} {without}"
        environment = {"DRESSI_PROFILE": "llvmpipe", "LP_NUM_THREADS": "1", **os.environ}
        process = subprocess.Popen(command, shell=True, cwd=tree, env=environment, text=True,
                                   start_new_session=True, encoding="utf-8",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        self.running.add(process)
        try:
            output = process.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
        finally:
            self.running.discard(process)
        if process.returncode in (0, 5):  # 5: no test was chosen
            return ""
        named = re.search(r"^(?:FAILED|ERROR) (\S+\.py::.*?)(?: - .*)?$", output, re.MULTILINE)
        return named[1] if named and named[1] not in self.broken else tests


def _copy(folder: Path, k: int) -> Path:
    tree = folder / f"tree{k}" / "project"
    ignored = shutil.ignore_patterns("out", "__pycache__", ".??*")
    shutil.copytree(ROOT, tree, ignore=ignored)
    if (ROOT.parent / "shared").exists():
        (tree.parent / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def run(faults: list[Fault], jobs: int, write: Path, until: float) -> None:
    """Try all faults, ``jobs`` at once; print each fate and keep the file up to date. until: of
    ``time.monotonic``, when the last one may begin."""
    trier = Trier()
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for k in range(jobs):
            trees.put(_copy(Path(folder), k))

        def one(fault: Fault) -> None:
            if trier.stopped or time.monotonic() > until:
                return
            tree = trees.get()
            try:
                trier.try_fault(fault, tree)
            finally:
                trees.put(tree)
            if fault.caught is None:
                return
            fate = f"caught by {fault.by}" if fault.caught else "SURVIVED"
            print(f"{fault.file}:{fault.line}: {fault.old.strip()!r} -> {fault.new.strip()!r}: "
                  f"{fate} ({fault.seconds:.0f} s)", flush=True)  # fmt: skip
            write.write_text(json.dumps([asdict(f) for f in faults], indent=1), encoding="utf-8")

        with ThreadPoolExecutor(jobs) as pool:
            try:
                list(pool.map(one, [f for f in faults if f.caught is None]))
            except KeyboardInterrupt:
                trier.stop()
                raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="faults to plant (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--json", type=Path, default=Path("out/faults.json"),
                        help="fates; the same run goes on from here")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no fault after so long")
    options = parser.parse_args()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if options.json.exists():
        stored = json.loads(options.json.read_text(encoding="utf-8"))
        faults = [Fault(**entry) for entry in stored]
    else:
        faults = chosen(options.count, options.seed)
        random.Random(options.seed).shuffle(faults)
    try:
        run(faults, options.jobs, options.json, time.monotonic() + 60 * options.minutes)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here")
    tried = [f for f in faults if f.caught is not None]
    caught = sum(bool(f.caught) for f in tried)
    print(f"{caught} of {len(tried)} faults caught ({100 * caught / max(len(tried), 1):.1f} %)")
    for f in tried:
        if not f.caught:
            print(f"  survived: {f.file}:{f.line}: {f.old.strip()!r} -> {f.new.strip()!r}")
    return caught < WANTED * len(tried)


if __name__ == "__main__":
    sys.exit(main())
