"""What ``torchrun`` and other launchers tell each process of a job in its environment."""

from __future__ import annotations

import os


def number(*names: str) -> int | None:
    """The first of these variables that holds a number; None where none does."""
    return next((int(value) for name in names if (value := os.environ.get(name, "")).isdecimal()), None)
