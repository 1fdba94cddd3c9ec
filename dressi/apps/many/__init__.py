"""``dressi many SPEC.toml``: thousands of fits from one file, with a table and a report.

``spec.py`` reads the file, ``fits.py`` has the fits that it may name, ``report.py`` writes what
came of them. docs/many.md tells the rest.
"""

from dressi.apps.many.run import run_many
from dressi.apps.many.spec import Spec, read_spec

__all__ = ["Spec", "read_spec", "run_many"]
