"""Operators on the command line: modules that define some, and the schedule of their calls."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
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
    """Load the modules that were named."""
    for name in args.operators:
        try:
            _load(name)
        except Exception as error:
            raise CannotRunError(f"--operators {name}: cannot be loaded: {error!r}") from error


def _load(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
