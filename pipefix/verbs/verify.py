"""verify: check a cache, and mend what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipefix.caches import verify as verifying
from pipefix.caches.verify import Checked
from pipefix.verbs.target import Progress, load_target, silent


def verify(
    cache: str | Path,
    *,
    sample: int | None = None,
    seed: int = 0,
    repair: bool = False,
    target: Any = None,
    progress: Progress | None = None,
) -> Checked:
    """Check a cache's every byte, or some of its records; with ``repair`` make what is damaged anew from its source."""
    say = progress or silent

    def part(number: int, count: int) -> None:
        say(f"checking: part {number + 1} of {count}", number / max(count, 1))

    restored = repair and verifying.mend_manifest(Path(cache))
    found = verifying.verify(Path(cache), sample=sample, seed=seed, progress=part)
    found.restored = restored
    if repair and found.damage:
        say("mending", 0.9)
        found = verifying.repair(found, load_target(target if target is not None else found.manifest.target).dataset)
    return found
