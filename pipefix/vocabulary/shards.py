"""How many parts a stream can be read in at once: no more workers than that ever get a sample."""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.attributes import attributes

_DEPTH = 5
_COUNTS = ("num_shards", "n_shards")
"""What Hugging Face's streams say of themselves; the second by its older name."""
_INSIDE = ("dataset", "source_dataset", "datapipe", "source_datapipe", "pipeline", "stages")


def shards_of(stream: Any, depth: int = 0) -> int | None:
    """None where the stream does not say."""
    if depth > _DEPTH:
        return None
    for name in _COUNTS:
        counted = _asked(stream, name)
        if type(counted) is int and counted > 0:
            return counted
    held = attributes(stream)
    urls = held.get("urls")
    if isinstance(urls, (list, tuple)) and urls:  # WebDataset's list of shards
        return len(urls)
    inner = [held[name] for name in _INSIDE if name in held]
    parts = [part for member in inner for part in (member if isinstance(member, (list, tuple)) else [member])]
    return next((count for part in parts if (count := shards_of(part, depth + 1)) is not None), None)


def _asked(stream: Any, name: str) -> Any:
    """An attribute that may be a property of a library's; the user's own classes are not run for it."""
    if type(stream).__module__.partition(".")[0] != "datasets":
        return None
    try:
        return getattr(stream, name, None)
    except Exception:  # noqa: BLE001 - a property that raises says nothing
        return None
