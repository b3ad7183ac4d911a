"""pipefix.verify: check every byte and record of a cache; it only reads."""

from __future__ import annotations

from pathlib import Path

from pipefix.api.target import Progress, silent
from pipefix.caches import verify as verifying
from pipefix.report.cache_report import ShownCheck
from pipefix.report.shown import shown_as

Checked = ShownCheck
"""As users name it."""


def verify(cache: str | Path, *, progress: Progress | None = None) -> Checked:
    """Check a cache's every byte and record. It only reads: `convert` with ``update`` mends.

    Args:
        cache: directory of the cache, or its URL in a store.
        progress: called with a phase and the part that is done, 0 to 1.

    Returns:
        What is damaged, missing or changed in the source; ``sound`` is True where nothing is damaged.
    """
    say = progress or silent

    def part(number: int, count: int) -> None:
        say(f"checking: part {number + 1} of {count}", number / max(count, 1))

    return shown_as(Checked, verifying.verify(cache, progress=part))
