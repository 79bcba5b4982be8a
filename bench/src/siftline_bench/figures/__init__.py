"""The papers' experiments: files in `figures/` say what is measured, rows in `results/` what came out.

figures/opindex-10a.yaml → figure.py (runs) → harness.py → worker.py (another process) → kinds/ → rows
rows, figures/claims.yaml → verdicts → one HTML page
"""

from siftline_bench.figures.figure import Axis, Figure, Run
from siftline_bench.figures.registry import PAPERS, chosen, figures

__all__ = ["PAPERS", "Axis", "Figure", "Run", "chosen", "figures"]
