"""How the tests draw examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from numba.core import config

# As plain Python the kernels are a hundred times slower: fewer examples.
N_EXAMPLES = 25 if config.DISABLE_JIT else 200

settings.register_profile(
    "siftline", max_examples=N_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("siftline")
