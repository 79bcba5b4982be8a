"""The option `--operators`: modules that define operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siftline.cli.problems import CannotRunError

if TYPE_CHECKING:
    import argparse


def add_operators(parser: argparse.ArgumentParser) -> None:
    """Define the option that names modules of operators."""
    parser.add_argument(
        "--operators",
        metavar="MODULE",
        action="append",
        default=[],
        help="a module, or a .py file, that defines operators with @siftline.operator; may be given several times",
    )


def load_operators(args: argparse.Namespace) -> None:
    """Load the modules of the option."""
    from siftline.errors import OperatorError
    from siftline.operators.modules import load_modules

    for name in args.operators:
        try:
            load_modules([name])
        except OperatorError as error:
            raise CannotRunError(f"--operators {name}: cannot be loaded: {error.__cause__!r}") from error
