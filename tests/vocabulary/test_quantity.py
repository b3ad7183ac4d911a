"""A figure reads the same wherever it stands: in a verdict's sentence, in a table, on a page."""

from __future__ import annotations

import pytest

from pipefix.vocabulary import quantity
from pipefix.vocabulary.quantity import Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9996, "1.00 s"), (0.09996, "100 ms"), (0.0, "0 s"), (95.0, "1.6 min"), (5401.0, "1.5 h"), (2e-9, "2.00 ns")],
)
def test_seconds(value: float, text: str) -> None:
    assert quantity.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.004, "0.004"), (0.12, "0.12"), (9.999, "10.0"), (99.96, "100"), (1234.5, "1,234")])
def test_rates(value: float, text: str) -> None:
    assert quantity.rate(value) == f"{text} samples/s"


@pytest.mark.parametrize(("value", "text"), [(999.4, "999 B"), (999_999, "1.00 MB"), (1e12, "1.00 TB"), (10**400, "unknown")])
def test_sizes(value: float, text: str) -> None:
    assert quantity.size(value) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "batch", "1 batch"), (1250, "batch", "1,250 batches"), (2, "epoch", "2 epochs"), (0, "path", "0 paths")],
)
def test_counts(count: int, noun: str, text: str) -> None:
    assert quantity.counted(count, noun) == text


INF = float("inf")


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1.42, 1.31, 1.55), "1.42x (1.31-1.55)"),
        (Interval(1.42, 1.4199, 1.4201), "1.42x"),
        (Interval(0.01, -0.5, 0.5), "0.01x (-0.50 to 0.50)"),
        (Interval(0.004, 0.0001, 0.02), "0.004x (<0.001-0.02)"),
        (Interval(2.0, 1.5, INF), "2.00x (at least 1.50)"),
        (Interval(2.0, -INF, 3.0), "2.00x (at most 3.00)"),
        (Interval(2.0, -INF, INF), "2.00x (no interval)"),
        (Interval(float("nan"), 1.0, 2.0), "unknown"),
        (None, "unknown"),
    ],
)
def test_intervals(interval: Interval | None, text: str) -> None:
    assert quantity.times_between(interval) == text
