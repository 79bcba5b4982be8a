"""The regular expressions of rules: RE2, which later runs them, checks them, and prints nothing of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

try:
    from sigma.policy import SigmaPolicy
    from sigma.policy.regex_engine import RE2RegexEngine
except ImportError:  # pySigma 1 checks with Python's engine, and what RE2 refuses is refused later
    POLICY: Final[dict[str, Any]] = {}
else:

    class _QuietEngine(RE2RegexEngine):
        def compile(self, pattern: str, flags: int = 0) -> Any:
            return _compiled(pattern, int(flags))

    POLICY = {"policy": SigmaPolicy(regex_engine=_QuietEngine())}

_FLAGS: Final = {2: "i", 8: "m", 16: "s"}  # as the module `re` numbers them


@lru_cache(maxsize=1024)
def _compiled(pattern: str, flags: int) -> Any:
    """Return a compiled expression; that of a selector (`1 of selection_*`) occurs in rule after rule."""
    letters = "".join(letter for flag, letter in _FLAGS.items() if flags & flag)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?{letters}){pattern}" if letters else pattern, options)
    except re2.error as error:
        said = error.args[0]
        raise re2.error(said.decode() if isinstance(said, bytes) else said) from None
