"""Sigma: detection rules of the Sigma project become expressions, by pySigma's parser and pipelines.

`rules.py`: `parse_sigma` for one rule, `read_rules` for a folder. `documents.py` reads YAML, `pipelines.py` finds
pipelines, `conditions.py` and `values.py` say in Siftline's language what pySigma has parsed, `pieces.py` keeps it
until it is text, `places.py` finds the line of an error, `backend.py` is the backend for `sigma convert -t siftline`.
"""

from __future__ import annotations

try:
    import sigma.rule as _rule
except ImportError as error:
    raise ImportError("Sigma rules need pySigma: pip install 'siftline[sigma]'") from error

from siftline.sigma.rules import PIPELINES, Rules, parse_sigma, read_rules

__all__ = ["PIPELINES", "Rules", "parse_sigma", "read_rules"]

del _rule
