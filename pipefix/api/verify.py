"""verify: check a cache, and mend what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipefix.api.target import Progress, load_target, silent
from pipefix.caches import verify as verifying
from pipefix.caches.verify import Checked as Checked
from pipefix.stores.store import is_store
from pipefix.vocabulary.errors import BadUsage


def verify(
    cache: str | Path,
    *,
    sample: int | None = None,
    seed: int = 0,
    repair: bool = False,
    target: Any = None,
    progress: Progress | None = None,
) -> Checked:
    """Check a cache's every byte, or some of its records; with ``repair`` make what is damaged anew from its source.

    Args:
        cache: directory of the cache, or its URL in a store.
        sample: check so many records, drawn at random, instead of all.
        seed: of that draw.
        repair: make damaged parts anew from the source.
        target: the dataset that repairs, where the manifest names none that can be loaded.
        progress: called with a phase and the part that is done, 0 to 1.

    Returns:
        What is damaged, missing or changed in the source; ``sound`` is True where nothing is damaged.
    """
    say = progress or silent

    def part(number: int, count: int) -> None:
        say(f"checking: part {number + 1} of {count}", number / max(count, 1))

    if is_store(cache):
        if repair:
            raise BadUsage(
                f"{cache} is in a store: what is there is not changed.", advice="Make it anew: pipefix convert TARGET --out URL"
            )
        return verifying.verify_in_store(str(cache), sample=sample, seed=seed, progress=part)
    restored = repair and verifying.mend_manifest(Path(cache))
    found = verifying.verify(Path(cache), sample=sample, seed=seed, progress=part)
    found.restored = restored
    if repair and found.damage:
        if target is None and found.manifest.names_code_inside(found.folder):
            raise BadUsage(
                f"{cache} calls {found.manifest.target!r} its source, which lies in the cache itself: it is not run unasked.",
                advice=f"Name the dataset that it was made from: {found.manifest.repair(Path(cache))}",
            )
        say("mending", 0.9)
        found = verifying.repair(found, load_target(target if target is not None else found.manifest.target).dataset)
    return found
