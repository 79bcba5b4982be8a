"""The options `--sigma` and `--pipeline` of commands, and the rules that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline.cli.problems import CannotRunError
from siftline.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

    from siftline.files.subscription_files import Subscriptions
    from siftline.ids import Id


def add_sigma(parser: argparse.ArgumentParser, which: Any) -> None:
    """Define the options; `which` is the group of places that subscriptions may come from."""
    which.add_argument("--sigma", metavar="FOLDER", help="a folder of Sigma rules, or one file of them")
    parser.add_argument(
        "--pipeline",
        metavar="NAME",
        action="append",
        help="a pipeline of pySigma for the rules, installed or a YAML file, instead of sysmon and "
        "windows-logsources; several may be given, and `none` takes rules as they are",
    )


def read_sigma(args: argparse.Namespace, about: dict[Id, tuple[str, str]] | None = None) -> Subscriptions:
    """Read the rules of `--sigma`; title and level of each go to `about`."""
    from siftline.files.subscription_files import Subscriptions

    try:
        from siftline.sigma import PIPELINES, read_rules
        from siftline.sigma.rules import rule_files
    except ImportError as error:
        raise CannotRunError(str(error)) from None
    size = sum(path.stat().st_size for path in rule_files(args.sigma))
    pipelines = PIPELINES if args.pipeline is None else [name for name in args.pipeline if name != "none"]
    with Progress("reading rules", size, "B", is_quiet=args.quiet) as progress:
        rules = read_rules(args.sigma, pipelines, advance=progress.advance)
    if about is not None:
        about.update(zip(rules.ids, zip(rules.titles, rules.levels, strict=True), strict=True))
    return Subscriptions(
        args.sigma,
        ids=list(rules.ids),
        expressions=rules.expressions,
        weights=rules.weights,
        tenants=[None] * len(rules),
        lines=rules.lines,
        files=rules.files,
        positions=list(range(len(rules))),
        problems=rules.refused,
    )
