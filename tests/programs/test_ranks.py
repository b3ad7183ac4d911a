"""Ranks that wait for one of them, read the same samples or repeat an order are named; healthy ones are not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipefix.programs.loop_notes import LoopNotes
from pipefix.programs.rank_findings import findings

SHARE: dict[str, Any] = {"shared": True, "dataset_length": 100, "sampler_length": 50, "dataset": 7}
WHOLE: dict[str, Any] = {"shared": False, "dataset_length": 100, "sampler_length": 100, "dataset": 7}


def rank(
    number: int | None,
    *,
    wait: float = 0.002,
    work: float = 0.01,
    backward: float = 0.01,
    cpu: float = 0.0,
    first: float = 0.1,
    steps: int = 25,
    share: dict[str, Any] = SHARE,
    orders: tuple[int, ...] = (1, 2),
    trains: bool = True,
    noise: float = 0.1,
) -> LoopNotes:
    """Two epochs of four blocks each; figures are seconds a step."""
    draw = random.Random(0 if number is None else number)
    notes = LoopNotes("train.py:7", {"rank": None if number is None else str(number)}, {"workers": 0})
    for order in orders:
        notes.epochs.append({"event": "epoch", **share})
        for block in range(4):
            about = draw.uniform(1 - noise, 1 + noise)
            notes.blocks.append(
                {
                    "steps": steps,
                    "wait_s": wait * steps * about + (first if not block else 0.0),
                    "step_s": (work + backward) * steps * draw.uniform(1 - noise, 1 + noise),
                    "backward_s": backward * steps if trains else 0.0,
                    "making_cpu_s": cpu * steps * about,
                    "making_s": wait * steps * about,
                    "inner_s": 0.0,
                    "first_s": [first] if not block else [],
                    "optimizer_steps": steps if trains else 0,
                    "without_gradients": 0 if trains else steps,
                }
            )
        notes.epochs.append({"event": "epoch ended", "order": order, "sequential": False})
    return notes


def told(*loops: LoopNotes) -> list[tuple[str, str]]:
    return [(one.id, one.found) for one in findings(loops)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_healthy_ranks_are_left_alone(ranks: int, noise: float) -> None:
    assert told(*(rank(number, noise=noise) for number in range(ranks))) == []
    assert told(*(rank(number, wait=0.03, noise=noise) for number in range(ranks))) == [], "all of them wait for data"
    assert told(rank(None)) == []


@pytest.mark.parametrize(
    ("cpu", "why"), [(0.0, "storage is slower"), (0.029, "decoded and augmented more slowly"), (0.014, "made more slowly")]
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_whose_data_is_slow(ranks: int, cpu: float, why: str) -> None:
    others = [rank(number, backward=0.04) for number in range(ranks - 1)]
    ((name, found),) = told(*others, rank(ranks - 1, wait=0.032, cpu=cpu))
    assert name == "straggler"
    assert found.startswith(f"rank {ranks - 1} makes the others wait: ")
    assert why in found


def test_ranks_on_unlike_machines() -> None:
    first, *others = (rank(number) for number in range(3))
    for one in (first, *others):
        one.process.update(cores=8, processor="the same", memory_gib=64)
    assert told(first, *others) == []
    first.process.update(cores=2)
    ((name, found),) = told(first, *others)
    assert name == "unlike-ranks"
    assert found == "ranks differ in the number of cores that they may use (2: rank 0; 8: rank 1, 2)"
    first.process.pop("cores")
    assert told(first, *others) == [], "not known of all of them"


def test_another_program_on_another_machine_is_no_node_of_this_one() -> None:
    """Two machines that share a home, and each a program in the same directory: their loops were told as one program's."""
    here, there = rank(None), rank(None)
    for one, host, argv in ((here, "a", ["train.py", "--lr", "1"]), (there, "b", ["/home/me/train.py", "--lr", "1"])):
        one.process.update(host=host, argv=argv)
    assert told(here, there) == []
    there.process["argv"] = ["train.py", "--lr", "2"]
    assert told(here, there)[0][1].endswith("(train.py --lr 1 on a; train.py --lr 2 on b)"), "a search, a trial on each machine"
    ranks = rank(0), rank(1)
    for one, other in zip(ranks, (here, there), strict=True):
        one.process.update(host=other.process["host"], argv=other.process["argv"])
    assert told(*ranks) == [], "nodes are given a rank as an argument"
    there.process["argv"] = ["-m", "evaluate"]
    ((name, found),) = told(here, there)
    assert name == "several-programs"
    assert found.endswith("(train.py --lr 1 on a; -m evaluate on b)")


def test_ranks_pinned_unlike_and_on_other_storage() -> None:
    first, *others = (rank(number) for number in range(3))
    for number, one in enumerate((first, *others)):
        one.process["numa_nodes"] = str(number % 2)
        one.epochs[0]["storage"] = "ext4"
    assert told(first, *others) == [], "each on the node of its device"
    first.process["numa_nodes"] = "0, 1"
    assert told(first, *others)[0][1] == "ranks differ in how many NUMA nodes their cores lie on (2: rank 0; 1: rank 1, 2)"
    first.process["numa_nodes"] = "0"
    first.epochs[0]["storage"] = "nfs4"
    ((_, found),) = told(first, *others)
    assert found == "ranks differ in the file systems that their data lies on (nfs4: rank 0; ext4: rank 1, 2)"


def test_looks_tell_more_than_the_clocks_of_processes() -> None:
    """Workers of a slow rank also wait for their turn, which their CPU seconds a second do not tell from waiting for a disk."""
    slow = rank(1, wait=0.032, cpu=0.014)
    slow.blocks[0]["looked"] = {"batches": 4, "cpu": 0.9, "made": 1.0}
    ((_, found),) = told(rank(0, backward=0.04), slow)
    assert "decoded and augmented more slowly" in found


def test_a_rank_whose_step_is_slow() -> None:
    ((name, found),) = told(rank(0, work=0.04), rank(1, backward=0.04))
    assert name == "straggler"
    assert found.startswith("rank 0 makes the others wait: its step, backward apart, takes 30.")


def test_ranks_of_a_job_that_was_started_again() -> None:
    """Those of the attempt that came to nothing are no ranks beside the others."""
    others = [rank(0, work=0.04), rank(1, backward=0.04)]
    assert told(*others, rank(0, steps=1), rank(1, steps=1)) == told(*others) != []


def test_of_a_second_nothing_is_said() -> None:
    assert told(rank(0, work=0.04, steps=3), rank(1, backward=0.04, steps=3)) == []


def test_a_rank_that_is_slow_and_costs_nobody_anything() -> None:
    assert told(rank(0), rank(1, wait=0.032)) == [], "the other has as little to do elsewhere: they do not meet"


def test_a_rank_that_begins_late() -> None:
    ((name, found),) = told(rank(0, first=3.0), rank(1))
    assert name == "late-start"
    assert "5.80 s later in all, in 2 epochs" in found
