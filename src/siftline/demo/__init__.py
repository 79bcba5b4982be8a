"""`siftline demo`: the whole pipeline on generated products and wish lists, with a report of the results."""

from __future__ import annotations
