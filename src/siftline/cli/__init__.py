"""The command line: one file per command, and here what they share: options, exit status, errors.

Exit status: 0 done; 1 bad input was found; 2 the command could not run; 130 interrupted; 141 the reader of the output
went away; 143 terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.problems import CANNOT_RUN, CannotRunError, say

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS: Final = ("match", "check", "explain", "store", "serve", "spark", "demo")
_BENCH: Final = "siftline.bench.command"

_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141
_TERMINATED: Final = 143

_DESCRIPTION: Final = """\
Finds, for every event, all of the standing subscriptions that it satisfies.
"""
_EXAMPLES: Final = """\
examples:
  siftline demo
  siftline check subscriptions.jsonl --against events.jsonl
  siftline match --subscriptions subscriptions.jsonl --events events.jsonl --output matches.csv
  siftline store import subscriptions.db subscriptions.jsonl
  siftline spark compile subscriptions.parquet --index wishes
  siftline serve --demo
  siftline explain --subscription "price <= 580" --event '{"price": 600}'

`siftline COMMAND --help` says more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, without the name of the program; those of the process if left out.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        signal.signal(signal.SIGTERM, _terminate)
    if not arguments:
        _parser(arguments).print_help(sys.stderr)
        return CANNOT_RUN
    try:
        args = _parser(arguments).parse_args(arguments)
    except SystemExit as stop:  # argparse has said what is wrong, or printed the help
        return stop.code if isinstance(stop.code, int) else CANNOT_RUN
    try:
        return _guarded(args)
    except BrokenPipeError:
        # What is still buffered would raise again when the interpreter closes standard output.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        say("interrupted")
        return _INTERRUPTED


def _terminate(number: int, frame: object) -> None:
    """End by an exception, so that half-written files are removed."""
    raise SystemExit(_TERMINATED)


def _guarded(args: argparse.Namespace) -> int:
    """Run the command; an error becomes one line, a bug too unless --debug asks for the traceback."""
    from siftline.errors import SiftlineError

    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except (CannotRunError, SiftlineError) as error:
        say(f"siftline: {error}")
    except OSError as error:
        say(f"siftline: {_os_message(error)}")
    except MemoryError:
        say("siftline: out of memory")
    except Exception as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        if getattr(args, "debug", False):
            raise
        say(f"siftline: this is a bug: {type(error).__name__}: {error} (--debug shows the traceback)")
    return CANNOT_RUN


def _was_interrupted(error: BaseException | None) -> bool:
    """Return whether an error came of an interrupt that a library met and could not handle."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _os_message(error: OSError) -> str:
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    from siftline import __version__

    parser = argparse.ArgumentParser(
        prog="siftline",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"siftline {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name in _COMMANDS:
        _add_command(subparsers, importlib.import_module(f"siftline.cli.{name}"))
    _add_bench(subparsers, arguments)
    return parser


def _add_command(subparsers: Any, module: Any) -> None:
    parser = subparsers.add_parser(
        module.NAME,
        help=module.SUMMARY,
        description=f"{module.SUMMARY[:1].upper()}{module.SUMMARY[1:]}.\n\n{module.DETAILS}",
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unexpected error")
    parser.set_defaults(run=module.run)


def _add_bench(subparsers: Any, arguments: Sequence[str]) -> None:
    """Add `bench`, but load it only when it is asked for: it brings much with it."""
    if importlib.util.find_spec(_BENCH) is None:
        return
    if "bench" not in arguments[:1]:
        subparsers.add_parser("bench", help="measure indexes on seeded workloads")
        return
    command = importlib.import_module(_BENCH)
    command.add_parser(subparsers)
    subparsers.choices["bench"].set_defaults(run=command.run)
