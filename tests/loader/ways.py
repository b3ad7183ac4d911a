"""The ways in which a loader's samples are made, for promises that hold whoever makes them."""

from __future__ import annotations

from typing import Any

import pytest

from pipefix.loader.fast_loader import FastLoader


class ByThreads(FastLoader[Any]):
    """Its workers are threads of this process, where they can be."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, engine="threads", **options)


def made_by(*workers: int) -> Any:
    """The test runs with so many worker processes, and with as many threads as the most of them: its options are ``by``."""
    ways: list[dict[str, Any]] = [{"num_workers": number} for number in workers]
    threads = {"num_workers": max(workers), "engine": "threads"}
    return pytest.mark.parametrize("by", [*ways, threads], ids=[*map(str, workers), "threads"])
