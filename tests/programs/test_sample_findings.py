"""Which samples a loop and its ranks get: what is wrong with that is told, and nothing of what is right."""

from __future__ import annotations

from typing import Any

import pytest

from pipefix.programs.loop_notes import LoopNotes
from pipefix.programs.rank_findings import findings
from tests.programs.test_ranks import SHARE, WHOLE, rank, told

STREAM: dict[str, Any] = {"shared": False, "dataset_length": None, "sampler_length": None, "dataset": None, "stream": True}


def test_ranks_that_read_the_same_samples() -> None:
    ((name, found),) = told(rank(0, share=WHOLE, orders=(1, 2)), rank(1, share=WHOLE, orders=(3, 4)))
    assert (name, found) == ("same-samples", "each of 2 ranks goes through all 100 samples (loader made at train.py:7)")
    ((name, found),) = told(rank(0, share=WHOLE), rank(1, share=WHOLE))
    assert "in the same order" in found
    advices = [findings([rank(0, share=WHOLE), rank(1, share=WHOLE, orders=orders)])[0].advice for orders in ((1, 2), (3, 4))]
    assert ["tensor or pipeline parallel" in advice for advice in advices] == [True, False], "whose ranks are to get the same"
    assert told(rank(0, share=WHOLE), rank(1, share={**WHOLE, "dataset": 8})) == [], "each has files of its own"
    assert told(rank(0, share=WHOLE), rank(1, share={**WHOLE, "dataset": None})) == []
    assert told(rank(None, share=WHOLE)) == []


def test_epochs_that_repeat_an_order() -> None:
    ((name, found),) = told(rank(None, orders=(5, 5)))
    assert (name, found) == ("same-order", "2 epochs ask for their samples in the same shuffled order (loader made at train.py:7)")
    (one,) = findings([rank(0, orders=(5, 5)), rank(1, orders=(6, 6))])
    assert "set_epoch" in one.advice
    assert told(rank(None, orders=(5, 5), trains=False)) == [], "evaluation may"


def test_ranks_of_different_lengths() -> None:
    ((name, found),) = told(rank(0), rank(1, steps=24))
    assert (name, found) == ("uneven-ranks", "rank 0 takes 200 batches and rank 1 192 (loader made at train.py:7)")


def stream(number: int | None, checksums: list[int], workers: int = 0) -> LoopNotes:
    notes = rank(number, share=STREAM)
    notes.facts["workers"] = workers
    notes.checksums = checksums
    for epoch in notes.epochs:
        epoch.pop("order", None)
    return notes


def test_workers_that_each_go_through_the_whole_stream() -> None:
    ((name, found),) = told(stream(None, [1, 1, 2, 2, 3, 3, 4, 4], workers=2))
    assert name == "whole-stream-each"
    assert found.startswith("each of 2 workers goes through the whole stream, so that every sample comes 2 times an epoch")
    assert told(stream(None, [1, 1, 1, 1, 1, 1], workers=2)) == [], "all alike: the batches tell nothing"
    assert told(stream(None, [1, 2, 3, 4, 5, 6], workers=2)) == []
    assert told(stream(None, [1, 1, 2, 2, 3, 3], workers=0)) == [], "samples that come twice by themselves"
    assert told(stream(None, [1, 1], workers=2)) == [], "one turn"


def test_ranks_that_read_the_same_stream() -> None:
    ((name, found),) = told(stream(0, [1, 2, 3, 4, 5]), stream(1, [1, 2, 3, 4]))
    assert (name, found) == ("same-samples", "each of 2 ranks gets the same batches of its stream (loader made at train.py:7)")
    assert told(stream(0, [1, 2, 3, 4]), stream(1, [5, 6, 7, 8])) == []
    assert told(stream(0, [1, 1, 1, 1]), stream(1, [1, 1, 1, 1])) == [], "all alike"
    assert told(stream(0, []), stream(1, [])) == []


def counted(
    number: int | None, batches: int, samples: int, share: dict[str, Any], *, trains: bool = True, size: int = 8
) -> LoopNotes:
    notes = rank(number, share=share, trains=trains)
    notes.facts["batch_size"] = 8
    for epoch in notes.epochs:
        if epoch["event"] == "epoch ended":
            epoch.update(batches=batches, samples=samples)
    return notes


@pytest.mark.parametrize(
    ("length", "each", "batches", "samples", "trains", "drop", "said"),
    [
        (100, 50, 7, 50, False, False, None),
        (99, 50, 7, 50, False, False, ("doubled-tail", "warning", "evaluation takes 1 of 99 samples twice, 1.0 %")),
        (99, 50, 7, 50, True, False, None),
        (10, 8, 1, 8, True, False, None),
        (100, 50, 6, 48, False, True, ("dropped-tail", "warning", "evaluation leaves out 4 of 100 samples, 4.0 %")),
        (100, 50, 6, 48, True, True, None),
        (30, 15, 1, 8, True, True, ("dropped-tail", "note", "an epoch leaves out 14 of 30 samples, 47 %")),
        (100, 50, 5, 40, False, False, None),
        (1000, 50, 7, 50, False, False, None),
    ],
    ids=["even", "doubled in evaluation", "one of 99 in training", "a sampler that draws more", "dropped in evaluation",
         "few dropped in training", "many dropped in training", "left by something else", "a sampler that draws a part"],
)  # fmt: skip
def test_tails(
    length: int, each: int, batches: int, samples: int, trains: bool, drop: bool, said: tuple[str, str, str] | None
) -> None:
    share = {**SHARE, "dataset_length": length, "sampler_length": each, "drop_last": drop}
    found = findings([counted(number, batches, samples, share, trains=trains) for number in range(2)])
    assert [(one.id, one.severity, one.found.split(" (loader")[0]) for one in found] == ([] if said is None else [said])


def test_the_tail_of_one_process() -> None:
    share = {**WHOLE, "drop_last": True}
    ((name, found),) = told(counted(None, 12, 96, share, trains=False))
    assert (name, found) == ("dropped-tail", "evaluation leaves out 4 of 100 samples, 4.0 % (loader made at train.py:7)")


def test_batches_of_different_sizes() -> None:
    first, second = rank(0), rank(1)
    first.facts["batch_size"], second.facts["batch_size"] = 64, 64
    assert told(first, second) == []
    second.facts["batch_size"] = 32
    ((name, found),) = told(first, second)
    assert (name, found) == (
        "unlike-batches",
        "ranks take batches of different sizes (64: rank 0; 32: rank 1; loader made at train.py:7)",
    )


@pytest.mark.parametrize(
    ("words", "steps_a_step", "said"),
    [
        (["train.py", "--global-batch-size", "16"], 1, None),
        (["train.py", "--batch-size", "8"], 1, None),
        (["train.py", "--global-batch-size=8"], 1, "steps are over 16: batches of 8 on each of 2 ranks"),
        (["train.py", "--total_batch_size", "16"], 4, "steps are over 64: batches of 8 on each of 2 ranks, 4 of them a step"),
        (["train.py", "--global-batch-size", "8"], 0.5, None),
    ],
)
def test_a_global_batch_that_was_not_asked_for(words: list[str], steps_a_step: float, said: str | None) -> None:
    loops = [rank(number) for number in range(2)]
    for notes in loops:
        notes.facts["batch_size"] = 8
        notes.process["argv"] = words
        for block in notes.blocks:
            block["optimizer_steps"] = block["steps"] / steps_a_step
    found = told(*loops)
    assert [name for name, _ in found] == ([] if said is None else ["global-batch"])
    assert said is None or said in found[0][1]
    for notes in loops:
        notes.blocks[0]["optimizers_changed"] = notes.total("optimizer_steps")
    assert told(*loops) == [], "as of Muon and AdamW: each takes a step, and both steps are of the same batches"


def test_a_loader_that_gives_nothing() -> None:
    notes = counted(None, 0, 0, {**WHOLE, "drop_last": True, "dataset_length": 5})
    notes.blocks = []
    (one,) = findings([notes])
    assert (one.id, one.found) == ("no-batches", "a loop over the loader made at train.py:7 of 5 samples got no batch")
    assert "drop_last" in one.advice
