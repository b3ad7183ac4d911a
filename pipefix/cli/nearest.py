"""Suggests the known word nearest to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word somebody who typed ``word`` most likely meant."""
    import difflib

    names = list(known)
    begun = [name for name in names if len(word) > 3 and name.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, names, n=1)), None)
