"""How the tests draw examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from numba.core import config

FULL_EXAMPLES = 200
# As plain Python the kernels are a hundred times slower: fewer examples. `make check` asks for fewer as well.
N_EXAMPLES = 25 if config.DISABLE_JIT else int(os.environ.get("SIFTLINE_EXAMPLES", FULL_EXAMPLES))

settings.register_profile(
    "siftline",
    max_examples=N_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # On a build machine the same examples every time: a change is judged by what it changed. Elsewhere, new ones.
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("siftline")
