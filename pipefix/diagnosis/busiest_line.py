"""The line of the user's own code that was seen running most often, where it stands out. Pure."""

from __future__ import annotations

from collections.abc import Mapping

ENOUGH = ((20, 0.4), (8, 0.7))
"""Looks at the running line, and the part of them that a line must have, before it is named: of few looks, more of them."""


def busiest_line(looks: Mapping[str, int], function: str = "") -> str | None:
    """Of a function of the user's, or of any: ``function at file.py:line``."""
    seen = {line: count for line, count in looks.items() if not function or _is_in(line, function)}
    line = max(seen, key=seen.__getitem__, default=None)
    every = sum(seen.values())
    stands_out = line is not None and any(every >= looks and seen[line] >= part * every for looks, part in ENOUGH)
    return line if stands_out else None


def _is_in(line: str, function: str) -> bool:
    name = line.partition(" at ")[0]
    return name == function or function.endswith(f".{name}")  # before Python 3.11 a frame does not know its class
