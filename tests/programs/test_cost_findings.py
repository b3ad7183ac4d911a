"""What a loop pays beside its batches is told where it is much, and nothing of loops that pay little."""

from __future__ import annotations

from typing import Any

from pipefix.programs.cost_findings import findings
from pipefix.programs.loop_notes import LoopNotes
from tests.programs.test_ranks import rank, told


def loop(*, workers: int = 4, persistent: bool = False, first: float = 0.1, epochs: int = 5, **others: Any) -> LoopNotes:
    """100 steps of 22 ms an epoch."""
    notes = rank(None, first=first, orders=tuple(range(epochs)), noise=0.0, **others)
    notes.facts.update(workers=workers, persistent=persistent)
    for block in notes.blocks:
        block["between_s"] = 0.0
    return notes


def test_workers_that_start_anew() -> None:
    ((name, found),) = told(loop(first=3.0))
    assert name == "workers-anew"
    assert found == (
        "4 workers start anew in each of 5 epochs: 11.6 s, 44 % of its time until first batches come (loader made at train.py:7)"
    )
    beside_cuda = loop(first=3.0)
    beside_cuda.process = {**beside_cuda.process, "cuda": True}
    advices = [findings([notes]) for notes in (loop(first=3.0), beside_cuda)]
    assert ["2.13" in next(advice).advice for advice in advices] == [False, True], "they would be slow to end there"
    assert told(loop(first=3.0, persistent=True)) == []
    assert told(loop(first=3.0, workers=0)) == []
    assert told(loop(first=3.0, epochs=2)) == [], "too few to speak of each"
    assert told(loop(first=0.1)) == [], "a batch of each worker takes as long"


def test_an_iterator_for_each_batch() -> None:
    """The workers of one start and end for a single batch."""

    def taken(**facts: Any) -> LoopNotes:
        notes = loop(**facts)
        notes.epochs = [{"event": "epoch"}] * 12
        notes.blocks = [{**notes.blocks[0], "steps": 1, "first_s": [0.1], "wait_s": 0.1}] * 12
        return notes

    ((name, found),) = told(taken())
    assert name == "a-batch-an-iterator"
    assert found == (
        "each of 12 batches is the first of an iterator of its own, as of next(iter(loader)), and 4 workers start and end for it "
        "(loader made at train.py:7)"
    )
    assert told(taken(workers=0)) == told(taken(persistent=True)) == []
    whole = taken()
    whole.epochs.append({"event": "epoch ended"})
    assert told(whole) == [], "an epoch is one batch"


def test_a_program_that_waits_for_its_workers_to_end() -> None:
    notes = loop(persistent=True)
    notes.process = {**notes.process, "ending_s": 20.3}
    ((name, found),) = told(notes)
    assert name == "slow-end"
    assert found == (
        "after its last line the program took 20.3 s to end: torch waits 5 s for each worker that is kept and whose batches are "
        "pinned (loader made at train.py:7)"
    )
    for other, ending in ((loop(persistent=True), 15.0), (loop(workers=0, persistent=True), 20.3), (loop(), 20.3)):
        other.process = {**other.process, "ending_s": ending}
        assert told(other) == [], "its own handlers took that"


def test_batches_that_the_program_kept() -> None:
    notes = loop()
    notes.from_memory = True
    ((name, found),) = told(notes)
    assert name == "batches-from-memory"
    assert found.startswith("the loader made at train.py:7 was gone through once, and training went on for longer without")


def test_checkpoints_that_the_loop_waits_for() -> None:
    slow, quick, evaluation = loop(), loop(), loop(trains=False)
    for notes, spent in ((slow, 0.3), (quick, 0.01), (evaluation, 0.3)):
        for block in notes.blocks:
            block.update(saved_s=spent)
    ((name, found),) = told(slow)
    assert name == "blocking-saves"
    assert found.startswith("the training loop waits for calls of torch.save: 6.00 s, ")
    assert told(quick) == told(evaluation) == []
    after = loop()
    after.blocks[-1].update(saved_s=40.0, saved_outside_s=40.0)
    assert told(after) == [], "the model, when training was over, was 360 % of its time"


def test_batches_of_many_tensors() -> None:
    many, few, here = loop(), loop(), loop(workers=0)
    many.tensors = here.tensors = 300
    few.tensors = 3
    ((name, found),) = told(many)
    assert name == "many-tensors"
    assert found.startswith("a batch is 300 tensors, and each comes from its worker by itself, which takes 30.0 ms or more; ")
    assert told(few) == told(here) == []
    slow = loop(work=1.0)
    slow.tensors = 300
    assert told(slow) == [], "it takes long anyhow"
