"""Tells URLs of objects in stores from file names, and the store that a URL is in."""

from __future__ import annotations

import re

_FAR = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)")
_NEAR = ("file", "local", "memory", "data")


def is_remote(name: str) -> bool:
    """Whether this names an object of a store, not a file."""
    return _FAR.match(name) is not None


def store_of(url: str) -> str | None:
    """The store that a URL leads to, such as ``s3://bucket`` or ``https://host``, without user and password; None for a path."""
    match = _FAR.match(url)
    return None if match is None or match[1] in _NEAR else f"{match[1]}://{match[2].rpartition('@')[2]}"
