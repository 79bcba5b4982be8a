"""The command line: one file per command, and here what all share: parsing of arguments, exit status, errors.

Other distributions can add commands by an entry point of the group `siftline.commands`: a module with SUMMARY, DETAILS,
EXAMPLES, `add_arguments` and `run`, like the modules here.

Exit status: 0 done; 1 invalid input was found; 2 the command could not run; 130 interrupted; 141 the reader of the
output has closed the pipe; 143 terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.problems import CANNOT_RUN, CannotRunError, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

__all__ = ["main"]

_COMMANDS: Final = ("match", "check", "explain", "store", "serve", "spark", "demo")
_GROUP: Final = "siftline.commands"
# Commands of separate distributions: a summary, and how to install them.
_APART: Final = {"bench": ("measure indexes on seeded workloads", "pip install 'siftline[bench]'")}

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

`siftline COMMAND --help` describes a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the name of the program; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        signal.signal(signal.SIGTERM, _terminate)
    if not arguments:
        _parser(arguments).print_help(sys.stderr)
        return CANNOT_RUN
    try:
        args = _parser(arguments).parse_args(arguments)
    except CannotRunError as error:  # a command that is not installed
        say(f"siftline: {error}")
        return CANNOT_RUN
    except SystemExit as stop:  # argparse has printed the error or the help
        return stop.code if isinstance(stop.code, int) else CANNOT_RUN
    try:
        return _guarded(args)
    except BrokenPipeError:
        # Otherwise buffered output would raise again when the interpreter closes standard output.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        say("interrupted")
        return _INTERRUPTED


def _terminate(number: int, frame: object) -> None:
    """Exit by an exception, so that unfinished files are removed."""
    raise SystemExit(_TERMINATED)


def _guarded(args: argparse.Namespace) -> int:
    """Run the command; print an error as one line, and so a bug, unless --debug asks for its traceback."""
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
    """Return whether an error was caused by an interrupt inside of a library."""
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
        command = importlib.import_module(f"siftline.cli.{name}")
        _add_command(subparsers, command.NAME, command).add_argument(
            "--quiet", action="store_true", help="no progress and no summary"
        )
    # Other commands are only searched for if they are needed, because that takes longer than parsing.
    if arguments[:1] in ([], ["-h"], ["--help"]):
        _list_others(subparsers)
    elif arguments[0] not in _COMMANDS and not arguments[0].startswith("-"):
        _add_other(subparsers, arguments[0])
    return parser


def _add_command(subparsers: Any, name: str, module: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=module.SUMMARY,
        description=f"{module.SUMMARY[:1].upper()}{module.SUMMARY[1:]}.\n\n{module.DETAILS}",
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unexpected error")
    parser.set_defaults(run=module.run)
    return parser


def _others() -> dict[str, EntryPoint]:
    """Return the commands of other distributions."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=_GROUP) if entry.name not in _COMMANDS}


def _add_other(subparsers: Any, name: str) -> None:
    """Add the command of another distribution, if there is one of this name."""
    entry = _others().get(name)
    if entry is not None:
        _add_command(subparsers, name, _loaded(entry))
    elif name in _APART:
        raise CannotRunError(f"`siftline {name}` is not installed: {_APART[name][1]} installs it")


def _list_others(subparsers: Any) -> None:
    """List the commands of other distributions in the help, including those of ours that are not installed."""
    found = _others()
    for name, (summary, install) in _APART.items():
        if name not in found:
            subparsers.add_parser(name, help=f"{summary} (not installed: {install})")
    for name, entry in found.items():
        try:
            summary = _loaded(entry).SUMMARY
        except CannotRunError as error:  # the help is printed anyway
            summary = str(error)
        subparsers.add_parser(name, help=summary.replace("%", "%%"))


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise CannotRunError(f"`siftline {entry.name}` cannot be loaded: {type(error).__name__}: {error}") from error
