"""What a user has frozen stays frozen, and nothing else does."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipefix.vocabulary.garbage import existing_objects_skipped


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_exists_is_skipped_for_a_while() -> None:
    with existing_objects_skipped():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0


def test_what_was_frozen_before_stays_so_and_nothing_is_added() -> None:
    gc.freeze()
    made = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    with existing_objects_skipped():
        assert gc.get_freeze_count() <= before
    assert len(made) == 1000 < gc.get_freeze_count() <= before


def test_what_is_frozen_meanwhile_stays_so() -> None:
    with existing_objects_skipped():
        made = [[number] for number in range(1000)]
        gc.freeze()
    assert gc.get_freeze_count() > len(made)
