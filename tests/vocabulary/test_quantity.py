"""A figure reads the same wherever it stands: in a verdict's sentence, in a table, on a page."""

from __future__ import annotations

import pytest

from pipefix.report import wording
from pipefix.vocabulary import quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9996, "1.00 s"), (0.09996, "100 ms"), (0.0, "0 s"), (95.0, "1.6 min"), (5401.0, "1.5 h"), (2e-9, "2.00 ns")],
)
def test_seconds(value: float, text: str) -> None:
    assert quantity.seconds(value) == wording.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.004, "0.004"), (0.12, "0.12"), (9.999, "10.0"), (99.96, "100"), (1234.5, "1,234")])
def test_rates(value: float, text: str) -> None:
    assert quantity.rate(value) == wording.rate(value) == f"{text} samples/s"
