"""The laboratory's tests draw examples as the product's do; shared modules are found in the folder `tests` of those."""

from __future__ import annotations

import conftest  # noqa: F401
