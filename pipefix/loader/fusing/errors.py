"""The errors that say why something is not made by fused calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NotFused(Exception):
    """A dataset or its transforms are not fused; ``str(error)`` says why."""


class CannotFollow(Exception):
    """This picture takes a turn that one call cannot make (padding, say): the user's own transforms make the sample."""


def found_once(known: dict[Any, Any], key: Any, find: Callable[[], Any]) -> Any:
    """What ``find`` gives, or raises as `NotFused`, kept in ``known``."""
    if key not in known:
        try:
            known[key] = find()
        except NotFused as error:
            known[key] = NotFused(str(error))  # without the frames, which hold what was tried
    if isinstance(known[key], NotFused):
        raise NotFused(str(known[key]))
    return known[key]
