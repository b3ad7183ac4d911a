"""Evidence as a value: one block gives no interval, the weaker kind wins, and words say no more than is known."""

from __future__ import annotations

import ast
import math
import re

import pytest

from pipefix.vocabulary.gain import Bounded, Gain, MeasuredGain, Modelled, NotTried, figure, surely_above
from pipefix.vocabulary.quantity import Interval
from tests.architecture import house

TWICE = Interval(2.0, 1.8, 2.2)


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (MeasuredGain(TWICE, 3), "2.00x (1.75-2.27)"),
        (Modelled(TWICE), "2.00x (1.80-2.20)"),
        (MeasuredGain(TWICE, 1), "2.00x in one block"),
        (Bounded(1.2), "at most 1.20x"),
        (NotTried(), "not tried"),
    ],
)
def test_the_figure_says_no_more_than_is_known(gain: Gain, said: str) -> None:
    assert figure(gain) == said


def test_one_block_gives_no_interval() -> None:
    gain = MeasuredGain(TWICE, 1)
    assert (gain.interval.low, gain.interval.high, gain.interval.value) == (-math.inf, math.inf, 2.0)
    assert not surely_above(gain, 1.0)
    assert surely_above(MeasuredGain(TWICE, 2), 1.0)


@pytest.mark.parametrize(
    ("gain", "told"),
    [
        (Interval(2.0, 2.0, 2.0), (1.843, 2.170)),  # blocks that agree do not make a replay the change itself
        (Interval(0.5, 0.5, 0.5), (0.461, 0.542)),
        (Interval(1.0, 0.99, 1.01), (0.99, 1.01)),  # where nothing changes, nothing is replayed
        (Interval(1.05, 1.0, 1.1), (1.0, 1.1)),
        (Interval(4.0, 2.0, 8.0), (1.963, 8.153)),  # blocks that differ much more say how much
        (Interval(2.0, 0.0, 3.0), (0.0, 3.0)),
    ],
)
def test_what_is_told_of_a_trial_leaves_room_for_what_blocks_cannot_show(gain: Interval, told: tuple[float, float]) -> None:
    tried = MeasuredGain(gain, 9)
    assert (tried.told.low, tried.told.high) == pytest.approx(told, rel=2e-3)
    assert tried.told.value == gain.value
    assert tried.interval == gain  # what the verdict's rules go by


@pytest.mark.parametrize("least", [1.0, 0.5])
def test_only_what_was_tried_is_surely_above_anything(least: float) -> None:
    assert not any(surely_above(gain, least) for gain in (Modelled(TWICE), Bounded(3.0), NotTried()))


def test_the_word_measured_is_spelt_beside_no_gain_elsewhere() -> None:
    """Rooms that make gains leave the word to `pedigree`; "was not measured" speaks of no gain."""
    spelt = re.compile(r"(?<!was )(?<!were )(?<!not )(?<!be )\bmeasured\b(?! (time|with)\b)")
    for room in ("diagnosis", "plan"):
        for path in (house.PACKAGE / room).rglob("*.py"):
            tree = ast.parse(path.read_text())
            told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            assert not [text.value for text in texts if id(text) not in told and spelt.search(text.value)], path
