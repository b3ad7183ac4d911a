"""What a verb is given in Python: a loader and its step, and amounts as text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pipefix.api.target import consumed, load_target
from pipefix.measurement.consumer import consumer_for
from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import BadUsage

LOADER = DataLoader(TensorDataset(torch.zeros(16, 2)), batch_size=4)


def test_a_step_beside_a_loader_is_its_consumer() -> None:
    seen: list[Any] = []
    subject = load_target(LOADER, step=seen.append)
    consumer = consumer_for(subject)
    assert consumer.name == "train_step"
    assert subject.consumer == seen.append


def test_a_model_is_taken_as_one() -> None:
    subject = load_target(LOADER, step=torch.nn.Linear(2, 1))
    assert subject.consumer is None
    assert isinstance(subject.model, torch.nn.Linear)


def test_what_cannot_be_called_is_no_step() -> None:
    with pytest.raises(BadUsage) as caught:
        load_target(LOADER, step=25)
    assert str(caught.value) == "step is of type int, which cannot be called with a batch."
    assert "step=train_step" in caught.value.advice


def test_emulated_consumers_may_be_text() -> None:
    assert consumed("25ms", None) == {"step_ms": 25.0, "target_rate": None}
    assert consumed("0.2s", None) == {"step_ms": 200.0, "target_rate": None}
    assert consumed(None, "1200/s") == {"step_ms": None, "target_rate": 1200.0}


@pytest.mark.parametrize(
    ("name", "value", "read", "amount"),
    [
        ("budget", "2m", amounts.seconds, 120.0),
        ("budget", 30, amounts.seconds, 30),
        ("recording_bytes", "8GB", amounts.size, 8_000_000_000),
        ("stall", "1%", amounts.share, 0.01),
        ("stall", 0.01, amounts.share, 0.01),
    ],
)
def test_amounts_are_numbers_or_text(name: str, value: Any, read: Any, amount: float) -> None:
    assert amounts.taken(name, value, read) == pytest.approx(amount)


@pytest.mark.parametrize("value", [0, -1.5, float("nan")])
def test_a_number_is_above_zero_as_a_text_is(value: float) -> None:
    """A budget of 0 was a ZeroDivisionError of ours."""
    with pytest.raises(BadUsage, match=f"budget: {value:g} is not above zero"):
        amounts.taken("budget", value, amounts.seconds)


def test_a_text_that_is_no_amount_is_told_with_its_name() -> None:
    with pytest.raises(BadUsage, match="budget: 'soon' is not a number of seconds; write 60, 90s or 2m"):
        amounts.taken("budget", "soon", amounts.seconds)
    with pytest.raises(BadUsage, match=r"min_gain: '0\.05' could mean 0.05% or 5%; write 5% or 0\.05%"):
        amounts.taken("min_gain", "0.05", amounts.share)
