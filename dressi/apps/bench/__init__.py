"""``dressi bench``: what whole iterations cost on this device, beside a plain copy measured in the
same run.

``steps`` times fits; ``limits``, ``ablation``, ``silhouettes`` and ``textures`` are the paper's
tables 2 to 5; ``scaling`` follows one quantity at a time, ``packing`` times the compiler,
``antialias`` and ``kbuffer`` compare two methods, ``torch`` times a layer, ``many`` spreads fits
over workers, ``reliability`` counts promises. docs/benchmarks.md says how to read them.
"""

from dressi.apps.bench.common import Settings
from dressi.apps.bench.run import ABOUT, ALL, OUT, TABLES, run_bench

__all__ = ["ABOUT", "ALL", "OUT", "TABLES", "Settings", "run_bench"]
