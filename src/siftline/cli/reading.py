"""Reads a file of subscriptions with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siftline.cli.progress import Progress
from siftline.files.formats import size_of

if TYPE_CHECKING:
    from siftline.files.subscription_files import Subscriptions


def read_file(
    path: str, *, is_quiet: bool, stop_after: int | None = None, keeps_entries: bool = False
) -> Subscriptions:
    """Read a file of subscriptions with a progress bar."""
    from siftline.files.subscription_files import read_subscriptions

    with Progress("reading subscriptions", size_of(path), "B", is_quiet=is_quiet) as progress:
        return read_subscriptions(path, stop_after=stop_after, keeps_entries=keeps_entries, advance=progress.advance)
