"""Whether something draws random numbers: it is done once, and the states of all generators are compared, and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from pipefix.vocabulary.generators import generators, is_generator
from pipefix.vocabulary.random_state import preserved

T = TypeVar("T")


def tried(do: Callable[[], T], *holders: Any) -> tuple[T, bool]:
    """What ``do`` gives, and whether it draws: from the process's own generators, or from those that ``holders`` and their modules
    hold. All of them are as they were."""
    held = {id(one): one for holder in holders for one in (*generators(holder), *_of_module(holder))}
    with preserved(*held.values()) as before:
        return do(), before.changed()


def _of_module(holder: Any) -> list[Any]:
    """Global names of the module that a dataset's class or a function is written in."""
    module = sys.modules.get(getattr(holder, "__module__", None) or "")
    return [] if module is None else [value for value in list(vars(module).values()) if is_generator(value)]
