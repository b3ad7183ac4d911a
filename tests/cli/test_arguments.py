from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import pytest

from pipefix.cli import arguments
from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import BadUsage


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("seconds", "60", 60.0),
        ("seconds", "90s", 90.0),
        ("seconds", "2m", 120.0),
        ("seconds", "0.5h", 1800.0),
        ("milliseconds", "25", 25.0),
        ("milliseconds", "0.2s", 200.0),
        ("milliseconds", "25ms", 25.0),
        ("rate", "1200", 1200.0),
        ("rate", "1200/s", 1200.0),
        ("cores", "2.5", 2.5),
        ("price", "3.50", 3.5),
        ("size", "500MB", 500_000_000),
        ("size", "1.5 GB", 1_500_000_000),
        ("size", "1GiB", 2**30),
        ("size", "1e9", 10**9),
        ("size", "4096", 4096),
        ("share", "5%", 0.05),
        ("share", "5", 0.05),
        ("share", "0%", 0.0),
        ("seed", "7", 7),
        ("batch_size", "16", 16),
        ("workers", "0", 0),
    ],
)
def test_values_as_people_write_them(kind: str, text: str, value: float) -> None:
    assert getattr(arguments, kind)(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("seconds", "6o", "'6o' is not a number of seconds; write 60, 90s or 2m"),
        ("seconds", "0", "'0' is not above zero; write 60, 90s or 2m"),
        ("seconds", "nan", "'nan' is not a number of seconds; write 60, 90s or 2m"),
        ("seconds", "1e999", "'1e999' is not a number of seconds; write 60, 90s or 2m"),
        ("seconds", "", "'' is not a number of seconds; write 60, 90s or 2m"),
        ("milliseconds", "25 bananas", "'25 bananas' is not a number of milliseconds; write 25 or 0.2s"),
        ("milliseconds", "2,5", "'2,5' has a comma in it; write 2.5"),
        ("rate", "1,200", "'1,200' has a comma in it; write 1.200 or 1200"),
        ("rate", "1,200,000/s", "'1,200,000/s' has a comma in it; write 1200000/s"),
        ("share", "0.01", "'0.01' could mean 0.01% or 1%; write 1% or 0.01%"),
        ("price", "much", "'much' is not an amount of money; write 3.50"),
        ("size", "500 M bytes", "'500 M bytes' is not a size; write 500MB, 2GB or 1GiB"),
        ("size", "0.2", "'0.2' is less than one byte; write 500MB, 2GB or 1GiB"),
        ("share", "120%", "'120%' is not between 0% and 100%; write 5%"),
        ("share", "5 %%", "'5 %%' is not a percentage; write 5%"),
        ("seed", "1.5", "'1.5' is not a whole number from 0 to 2^63 - 1; write 0"),
        ("workers", "-2", "'-2' is not a whole number from 0 to 4096; write 4"),
    ],
)
def test_refusals_say_what_was_found_and_what_would_do(kind: str, text: str, said: str) -> None:
    read: Any = getattr(arguments, kind)
    with pytest.raises(ArgumentTypeError) as caught:
        read(text)
    assert str(caught.value) == said


def test_a_share_in_python_is_no_percentage() -> None:
    assert amounts.taken_share("min_gain", 0.05) == amounts.taken_share("min_gain", "5%") == 0.05
    with pytest.raises(BadUsage, match="min_gain is a share from 0 to 1, and 5 is not") as caught:
        amounts.taken_share("min_gain", 5)
    assert caught.value.advice == "Write min_gain=0.05, or min_gain='5%'."
