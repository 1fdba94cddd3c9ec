"""Text is UTF-8 in every locale: no file is opened in the locale's encoding, no print stops."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dressi", "scripts")
LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _has(call: ast.Call, *names: str) -> bool:
    return any(k.arg in names for k in call.keywords)


def _mode(call: ast.Call, position: int) -> str:
    found = [k.value for k in call.keywords if k.arg == "mode"] + call.args[position : position + 1]
    return str(found[0].value) if found and isinstance(found[0], ast.Constant) else ""


def faults(source: str) -> list[int]:
    """Lines that read or write text, or talk to a process in text, without naming an encoding."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or _has(call, "encoding"):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        owner = getattr(getattr(call.func, "value", None), "id", "")
        if name in ("read_text", "write_text"):
            bad = len(call.args) < (1 if name == "read_text" else 2)
        elif name == "open" and owner not in ("Image", "PillowImage", "os", "webbrowser"):
            bad = "b" not in _mode(call, 1 if isinstance(call.func, ast.Name) else 0)
        elif name == "fdopen":
            bad = "b" not in _mode(call, 1)
        elif name in ("TemporaryFile", "NamedTemporaryFile"):
            bad = bool(_mode(call, 0)) and "b" not in _mode(call, 0)
        else:
            bad = _has(call, "text", "universal_newlines") and owner == "subprocess"
        found += [call.lineno] if bad else []
    return found


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in faults(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["open(p)", "open(p, 'w')", "p.open()", "p.open('w')", "p.read_text()", "p.write_text('x')"]
    + ["os.fdopen(h, 'w')", "subprocess.run(c, text=True)", "tempfile.TemporaryFile('w')"],
)
def test_the_check_finds_each_of_them(line: str) -> None:
    assert faults(line) == [1]
    comma = "" if line.endswith("()") else ", "
    assert faults(f"{line[:-1]}{comma}encoding='utf-8')") == []


@pytest.mark.parametrize(
    "line",
    ["open(p, 'rb')", "open(p, mode='wb')", "p.open('xb')", "p.read_bytes()", "self._open(x)"]
    + ["Image.open(p)", "os.fdopen(h, 'wb')", "tempfile.TemporaryFile()", "subprocess.run(c)"],
)
def test_the_check_leaves_bytes_alone(line: str) -> None:
    assert faults(line) == []


def _run(code: str, folder: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **LOCALE, "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=120)


def test_dumps_and_files_hold_every_name_in_a_locale_of_ascii(tmp_path: Path) -> None:
    code = (
        "import locale, sys; assert locale.getpreferredencoding(False).upper() != 'UTF-8'\n"
        "import numpy as np\n"
        "from dressi.inspect.dumps import dump\n"
        "dump('graph', lambda: 'Gr\\u00f6\\u00dfe \\U0001f404 \\udcff', '.txt')\n"
        "from dressi.inspect.draw import GraphView\n"
        "GraphView('\\u00d7', '\\u00d7').save('a.svg')\n"
        "from dressi.render.io import save_scene, load_scene, save_mesh, load_mesh\n"
        "from dressi.render.scene import icosphere\n"
        "from dressi.render.scene import scene_of\n"
        "from dataclasses import replace\n"
        "save_scene('a.gltf', replace(scene_of(icosphere(1)), name='Gr\\u00f6\\u00dfe'))\n"
        "assert load_scene('a.gltf').name == 'Gr\\u00f6\\u00dfe'\n"
        "save_mesh('a.obj', icosphere(1)); load_mesh('a.obj')\n"
    )
    done = _run(code, tmp_path, DRESSI_DUMP=str(tmp_path / "dump"))
    assert done.returncode == 0, done.stderr.decode()
    (dumped,) = (tmp_path / "dump").iterdir()
    assert dumped.read_bytes() == "Größe 🐄 \\udcff\n".encode()
    assert (tmp_path / "a.svg").read_bytes() == "×".encode()


def test_the_command_line_prints_in_a_locale_of_ascii(tmp_path: Path) -> None:
    code = (
        "import sys; from dressi import cli\n"
        "def run(args): print('2 \\u00d7 3'); raise OSError('no \\u00fc')\n"
        "cli._devices = run\n"
        "sys.exit(cli.main(['devices']))\n"
    )
    done = _run(code, tmp_path)
    assert done.returncode == 1, done.stderr.decode()
    assert done.stdout.strip() == b"2 \\xd7 3"
    assert done.stderr.strip() == b"dressi: OSError: no \\xfc"
