"""The exceptions that only measurements raise."""

from __future__ import annotations

from siftline.errors import SiftlineError


class WrongIdsError(SiftlineError):
    """An index found other ids than the reference: its times mean nothing."""


class ResultsError(SiftlineError):
    """A file holds no benchmark results."""
