"""Actions of a command, such as `siftline store add`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add an action that `args.act` runs, with the options that all actions have."""
    action = actions.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    # The command itself has these options too; SUPPRESS keeps the action from resetting them.
    for option, text in (("--quiet", "no progress and no summary"), ("--debug", "show tracebacks")):
        action.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=text)
    action.set_defaults(act=run)
    return action
