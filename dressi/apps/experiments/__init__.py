"""``dressi experiment NAME``: the paper's experiments, each one command with pictures and a JSON.

One module an experiment, with ``HELP``, ``Settings`` and ``run(settings) -> Result``; ``run.py``
has the table of them. docs/experiments.md says what each shows.
"""

from dressi.apps.experiments.common import Experiment, Result, Settings
from dressi.apps.experiments.run import EXPERIMENTS, add_parsers, run_experiment, run_parsed

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Result",
    "Settings",
    "add_parsers",
    "run_experiment",
    "run_parsed",
]
