"""What a user has frozen stays frozen, and nothing else does."""

from __future__ import annotations

import contextlib
import gc
import os
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


@pytest.mark.parametrize("within", [True, False])
def test_a_forked_process_skips_all_also_where_the_user_has_frozen_something(within: bool) -> None:
    """What is garbage there may be memory of a device that it was forked beside, and cannot free."""
    gc.freeze()
    made = [[number] for number in range(10_000)]
    before = gc.get_freeze_count()
    with existing_objects_skipped() if within else contextlib.nullcontext():
        child = os.fork()
        if child == 0:
            os._exit(gc.get_freeze_count() >= before + len(made) / 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == within
