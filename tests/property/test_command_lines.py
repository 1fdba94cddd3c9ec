"""Random words on the command line: they are understood, or refused by argparse; never a traceback.
What a command would do is not done here."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressi import cli

COMMANDS = ("info", "devices", "doctor", "demo", "fit", "bench", "experiment")
FLAGS = (
    *("--help", "--version", "--all", "--json", "--device", "--target", "--out", "--iterations"),
    *("--texture-iterations", "--views", "--size", "--refine", "--no-refine", "--images"),
    *("--cameras", "--holdout", "--smoke", "--data", "--only", "--", "-x", "--it"),
)
WORDS = ("steps", "reliability", "all", "0", "-1", "1e9", "R1,R9", "", " ", "ä日本", "a.obj", "nan")
ANYTHING = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@pytest.fixture(autouse=True)
def _nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMMANDS[:-1]:
        monkeypatch.setattr(cli, f"_{name}", lambda args: None)
    from dressi.apps import experiments

    monkeypatch.setattr(experiments, "run_parsed", lambda args: None)


def status(words: list[str]) -> Any:
    """What the shell would see."""
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        try:
            return cli.main(words)
        except SystemExit as end:
            return end.code


@given(
    st.sampled_from(COMMANDS),
    st.lists(st.one_of(st.sampled_from(FLAGS), st.sampled_from(WORDS), ANYTHING), max_size=5),
)
def test_any_words_behind_a_command_are_understood_or_refused(
    command: str, words: list[str]
) -> None:
    assert status([command, *words]) in (0, 2)


@given(st.lists(st.one_of(st.sampled_from(FLAGS), ANYTHING), max_size=3))
def test_any_words_alone_are_understood_or_refused(words: list[str]) -> None:
    assert status(words) in (0, 2)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert status([command, "--help"]) == 0
