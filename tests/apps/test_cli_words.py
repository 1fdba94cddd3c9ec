"""The command line without a device: help, lists, completion, quiet, options named in errors."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from dressi import cli
from dressi.apps.completion import levels, script
from dressi.errors import warn


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "completion" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "name"), [("bench", "roofline"), ("experiment", "camera")])
def test_without_a_name_what_there_is_is_listed(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command]) == 0
    assert any(line.strip().startswith(name) for line in capsys.readouterr().out.splitlines())


def test_the_list_of_tables_is_whole() -> None:
    from dressi.apps.bench import ABOUT, ALL, TABLES

    assert set(ABOUT) == {*TABLES, ALL}


def test_every_option_that_takes_a_value_says_its_default() -> None:
    for parser in parsers(cli._parser("completion")):
        for action in parser._actions:
            if action.option_strings and action.nargs != 0:
                said = action.help or ""
                assert "default" in said or action.required, (
                    f"{parser.prog} {action.option_strings}"
                )


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["demo", "--size", "2"], "--size 2: must be at least 8"),
        (["fit", "--images", ".", "--cameras", "x", "--views", "3"], "--views 3: must be"),
        (["fit", "--images", "nowhere", "--cameras", "x"], "--images nowhere: no such folder"),
        (["bench", "nothing"], "TABLE nothing: there is no such table"),
    ],
)
def test_an_error_names_the_option(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 1
    assert option in capsys.readouterr().err


def test_an_unknown_option_is_answered_with_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["demo", "--K", "2"])
    said = capsys.readouterr().err
    assert said.startswith("usage: dressi demo") and "unrecognized arguments: --K 2" in said


def test_a_reader_that_has_enough_is_no_error() -> None:
    """``dressi completion bash | head -0``."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dressi", "completion", "bash"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_warnings_are_one_line_and_a_loss_that_is_nan_ends_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["the pictures are small"]

    def run(args: argparse.Namespace) -> None:
        print("figures")
        warn(said[0])

    monkeypatch.setattr(cli, "_devices", run)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.main(["devices", "--quiet"]) == 0
        got = capsys.readouterr()
        assert got.out == "" and got.err == "dressi: warning: the pictures are small\n"
        said[0] = "the loss x is nan"
        assert cli.main(["devices"]) == 1
    assert "DressiWarning: the loss x is nan" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_command_and_option(shell: str) -> None:
    parser = cli._parser("completion")
    text = script(shell, parser, {"bench": {"steps": "fits"}})
    for level in levels(parser, {}):
        for word in [*level.words, *level.options]:
            assert word.removeprefix("--") in text
    assert "steps" in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("dressi be", "bench"),
        ("dressi bench st", "steps"),
        ("dressi demo --texture-it", "--texture-iterations"),
        ("dressi experiment camera --smo", "--smoke"),
        ("dressi fit --segment gr", "grabcut"),
        ("dressi fit --images ''", ""),  # the shell offers files then
        ("dressi view ''", ""),
    ],
)
def test_bash_completes_what_is_typed(words: str, wanted: str) -> None:
    text = script("bash", cli._parser("completion"), {"bench": {"steps": "fits"}})
    ask = f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _dressi\n"
    done = subprocess.run(
        ["bash", "-c", f'{text}\n{ask}echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == wanted
