"""The whole pipeline on generated products and wish lists, and a report of what it did: `siftline demo`."""

from __future__ import annotations
