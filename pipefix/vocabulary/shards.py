"""In how many parts a stream can be read at once: no more workers than that ever get a sample."""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import suppress
from functools import cache
from typing import Any

from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.user_modules import is_users

GIVE_PARTS = (
    "Give each worker its part: for sample in itertools.islice(samples, info.id, None, info.num_workers), with "
    "info = torch.utils.data.get_worker_info()."
)
"""What to do where each worker goes through the whole stream."""
MAY_REPEAT = "Each worker runs the whole IterableDataset: unless it shards itself by get_worker_info(), samples come repeated."
_DEPTH = 5
_COUNTS = ("num_shards", "n_shards")
"""What Hugging Face's streams say of themselves; the second by its older name."""
_INSIDE = ("dataset", "source_dataset", "datapipe", "source_datapipe", "pipeline", "stages")


def shards_of(stream: Any, depth: int = 0) -> int | None:
    """None where the stream does not say; 0 where workers of a loader have no part in it."""
    if vars(type(stream)).get("has_own_workers") is True:
        return 0
    if depth > _DEPTH:
        return None
    if type(stream).__module__.partition(".")[0] == "datasets":  # the user's own classes are not run for it
        for name in _COUNTS:
            with suppress(Exception):  # a property that raises says nothing
                if type(counted := getattr(stream, name, None)) is int and counted > 0:
                    return counted
    held = attributes(stream)
    kind: Any = type(stream)
    for name in _lists_of_shards(kind):
        shards = held.get(name)
        if isinstance(shards, (list, tuple)) and shards:
            return len(shards)
    inner = [held[name] for name in _INSIDE if name in held]
    parts = [part for member in inner for part in (member if isinstance(member, (list, tuple)) else [member])]
    return next((count for part in parts if (count := shards_of(part, depth + 1)) is not None), None)


@cache
def _lists_of_shards(kind: type) -> frozenset[str]:
    """Attributes that hold one entry a shard: WebDataset's, or what the user's code shares out, as ``self.files[worker::workers]``.

    Lists that are drawn from with replacement are none: every worker draws from all of them.
    """
    if not is_users(kind.__module__):
        return frozenset() if kind.__name__.startswith("Resampled") else frozenset({"urls"})
    return frozenset(name for owner in kind.__mro__ if is_users(owner.__module__) for name in _dealt_out(owner))


def _dealt_out(kind: type) -> set[str]:
    with suppress(OSError, TypeError, SyntaxError):  # it has no file
        nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
        slices = [(node.value, node.slice) for node in nodes if isinstance(node, ast.Subscript)]
        steps = [
            (value.attr, part.step) for value, part in slices if isinstance(value, ast.Attribute) and isinstance(part, ast.Slice)
        ]
        # A constant takes every second entry, or all of them backwards.
        return {name for name, step in steps if step is not None and not isinstance(step, (ast.Constant, ast.UnaryOp))}
    return set()
