"""Pages of results: one HTML file that needs no network.

In: figures, pictures, curves, models. Out: ``report.html``.
"""

from dressi.apps.page.plot import svg_curves
from dressi.apps.page.write import write_report

__all__ = ["svg_curves", "write_report"]
