"""Reads a number that ``torchrun`` or another launcher told this process in its environment, such as its rank."""

from __future__ import annotations

import os


def number(*names: str) -> int | None:
    """The first of these variables that holds a number; None where none does."""
    return next((int(value) for name in names if (value := os.environ.get(name, "")).isdecimal()), None)
