"""The ways in which a loader's samples are read, for promises that hold in each of them."""

from __future__ import annotations

from typing import Any

import pytest


def made_by(*workers: int) -> Any:
    """The test runs with so many worker processes, with one queue for all of them, and with threads that read the samples: its
    options are ``by``."""
    ways: list[dict[str, Any]] = [{"num_workers": number} for number in workers]
    free = {"num_workers": max(workers), "rng": "sample"}
    threads = {"num_workers": min(workers), "threads_per_worker": 3}
    return pytest.mark.parametrize("by", [*ways, free, threads], ids=[*map(str, workers), "one queue", "threads"])
