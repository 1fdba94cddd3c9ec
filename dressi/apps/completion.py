"""``dressi completion``: a script that completes the command line, made from the parser.

In: a parser with all commands. Out: text for bash, zsh or fish.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Level:
    """What may follow a command. path: its words, none for ``dressi`` itself. words: commands and
    names; options: by their longest name; each with its help. values: what an option that takes one
    may be given, () for anything."""

    path: tuple[str, ...]
    words: dict[str, str]
    options: dict[str, str]
    values: dict[str, tuple[str, ...]]


def levels(
    parser: argparse.ArgumentParser, names: dict[str, dict[str, str]], path: tuple[str, ...] = ()
) -> Iterator[Level]:
    """Yield the levels of a parser, the outermost first. names: words that a command takes beside
    its options, by command, as tables of ``bench``."""
    words: dict[str, str] = dict(names.get(" ".join(path), {}))
    options: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    below = []
    for action in parser._actions:  # argparse has no public way to them
        if isinstance(action, argparse._SubParsersAction):
            helps = {a.dest: a.help or "" for a in action._choices_actions}
            for name, sub in action.choices.items():
                words[name] = helps.get(name, "")
                below.append((name, sub))
        elif action.option_strings:
            options[max(action.option_strings, key=len)] = action.help or ""
            if action.nargs != 0:
                values |= dict.fromkeys(action.option_strings, tuple(action.choices or ()))
        elif action.choices:
            words.update(dict.fromkeys(action.choices, ""))
    yield Level(path, words, options, values)
    for name, sub in below:
        yield from levels(sub, names, (*path, name))


def script(shell: str, parser: argparse.ArgumentParser, names: dict[str, dict[str, str]]) -> str:
    """Return the script for a shell of SHELLS."""
    found = list(levels(parser, names))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found)


def _cases(found: list[Level], take: str) -> str:
    lines = []
    for level in found:
        listed = " ".join([*level.words, *level.options])
        lines.append(f'    "{" ".join(level.path)}") {take.format(words=listed)} ;;')
    return "\n".join(lines)


def _walk(found: list[Level], words: str) -> str:
    """Lines that find the command that stands before the cursor."""
    known = "|".join(f'"{" ".join(level.path)}"' for level in found if level.path)
    return (
        f'  local at="" word\n  for word in {words}; do\n'
        f'    case "${{at:+$at }}$word" in\n      {known}) at="${{at:+$at }}$word" ;;\n'
        "    esac\n  done\n"
    )


def _bash(found: list[Level]) -> str:
    def offer(words: Iterable[str]) -> str:
        return f"""COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$cur")); return ;;"""

    lines = []  # what follows an option, then options, then words; where there are none, files
    for level in sorted(found, key=lambda level: -len(level.path)):
        at = " ".join(level.path)
        chosen = {option: own for option, own in level.values.items() if own}
        lines += [f'    "{at} {option}":*) {offer(own)}' for option, own in chosen.items()]
        files = [f'"{at} {option}":*' for option in level.values.keys() - chosen.keys()]
        lines += [f"    {'|'.join(sorted(files))}) return ;;"] if files else []
        lines.append(f'    "{at} "*:-*) {offer(level.options)}')
        lines.append(f'    "{at} "*) {offer(level.words)}')
    cases = "\n".join(lines)
    return (
        '# eval "$(dressi completion bash)" in ~/.bashrc\n_dressi() {\n'
        + _walk(found, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"')
        + '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"\n'
        + f'  COMPREPLY=()\n  case "$at $prev:$cur" in\n{cases}\n  esac\n}}\n'
        "complete -o default -F _dressi dressi\n"
    )


def _zsh(found: list[Level]) -> str:
    return (
        '#compdef dressi\n# eval "$(dressi completion zsh)" in ~/.zshrc, behind compinit\n'
        "_dressi() {\n"
        + _walk(found, "${words[2,CURRENT-1]}")
        + f'  case "$at" in\n{_cases(found, "compadd -- {words}")}\n  esac\n  _files\n}}\n'
        "compdef _dressi dressi\n"
    )


def _fish(found: list[Level]) -> str:
    lines = ["# dressi completion fish > ~/.config/fish/completions/dressi.fish"]
    for level in found:
        deeper = [other.path[-1] for other in found if other.path[:-1] == level.path and other.path]
        seen = [f"__fish_seen_subcommand_from {word}" for word in level.path]
        if deeper:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(deeper)}")
        when = f"-n '{'; and '.join(seen)}' " if seen else ""
        for name, text in level.words.items():
            lines.append(f"complete -c dressi {when}-a {name} -d {_quoted(text)}")
        for option, text in level.options.items():
            lines.append(f"complete -c dressi {when}-l {option[2:]} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    plain = text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"
