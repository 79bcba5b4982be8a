"""The regular expressions of rules: RE2, which later runs them, checks them, and prints nothing of its own."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

import re2

_FLAGS: Final = {2: "i", 8: "m", 16: "s"}  # as the module `re` numbers them


def _policy() -> dict[str, Any]:
    """Return what constructors of pySigma take to check regular expressions by our function.

    pySigma 1 has no such choice: it checks with Python's engine, and what RE2 refuses is refused later.
    """
    try:
        policy: Any = importlib.import_module("sigma.policy")
    except ImportError:
        return {}

    class QuietEngine(policy.RE2RegexEngine):  # type: ignore[misc]
        def compile(self, pattern: str, flags: int = 0) -> Any:
            return _compiled(pattern, int(flags))

    return {"policy": policy.SigmaPolicy(regex_engine=QuietEngine())}


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


POLICY: Final = _policy()
