"""Finds what the ranks of a program do to each other: who makes the others wait, and what they differ in.

Ranks that exchange gradients take as long for a step as the slowest of them. The slow one waits for its own data, or works; the
others wait for it wherever they meet, mostly inside backward. So a rank that is slow is told by the part that it has more of, while
the others have as much more of the rest.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipefix.programs import cost_findings, sample_findings
from pipefix.programs.loop_notes import LoopNotes, total
from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.quantity import counted, percent, seconds

LEAST_BLOCKS, LEAST_STEPS, LEAST_SECONDS = 4, 10, 1.5
"""Of every rank, below which nothing is said of how long it takes."""
NOTICED = 0.05
"""Part of a step's time that a rank must cost the others surely."""
MATCHED = 0.5
"""Part of that which the others must have waited elsewhere."""
LATE, LATE_SHARE = 1.0, 0.05
"""Seconds, and part of the loop's time, by which a rank must begin later than the others."""
COMPUTES, WAITS = 0.6, 0.3
"""CPU seconds a second of making samples, above which a rank's loader computes, and below which it waits."""
LEAST_LOOKS = 3
"""Batches that were looked at while they were made, from which that is told by them."""
_RESAMPLES = 200


def findings(loops: Sequence[LoopNotes]) -> list[Finding]:
    findings = [*_several_programs(loops)]
    for both in dict.fromkeys(notes.place for notes in loops if notes.loader):
        there, place = [notes for notes in loops if notes.place == both], both[0]
        findings += sample_findings.no_batches(place, there)
        here = [notes for notes in there if notes.role in ("training", "evaluation") and notes.blocks]
        ranks = {notes.rank: notes for notes in sorted(here, key=lambda notes: notes.seconds) if notes.rank is not None}
        findings += sample_findings.findings(place, here, ranks)
        findings += cost_findings.findings(here)
        if len(ranks) > 1:
            findings += [finding for finding in _unlike(ranks) if finding not in findings]
            for look in (_straggler, _late_start):
                findings += look(place, ranks)
    return findings


def _several_programs(loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """Machines that share the folder, and run another program each, or one with other arguments where none knows of ranks: none is
    refused, for they may be nodes of one."""
    by_host: dict[Any, set[str]] = {}
    without_ranks = all(notes.rank is None for notes in loops)
    for notes in loops:
        script, *arguments = notes.process.get("argv") or [""]
        words = [os.path.basename(script), *arguments]
        name = " ".join(words if without_ranks else words[: 1 + (script == "-m")])
        by_host.setdefault(notes.process.get("host"), set()).add(name)
    if len(by_host) > 1 and not set.intersection(*by_host.values()):
        programs = "; ".join(f"{', '.join(sorted(names))} on {host}" for host, names in by_host.items())
        found = f"these are loops of several programs, which noted in one folder ({programs})"
        advice = "Give each a folder of its own, and run it again: pipefix run --out FOLDER train.py"
        yield Finding(id="several-programs", severity="problem", found=found, advice=advice)


def _unlike(ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """Ranks that may use fewer cores than others, or another machine's processors."""
    for name, title, advice in _MACHINE:
        by_value: dict[Any, list[int]] = {}
        for rank, notes in sorted(ranks.items()):
            by_value.setdefault(_of_machine(notes, name), []).append(rank)
        if len(by_value) > 1 and None not in by_value:
            ranks_by_value = "; ".join(f"{value}: rank {_listed(whose)}" for value, whose in by_value.items())
            yield Finding(id="unlike-ranks", severity="note", found=f"ranks differ in {title} ({ranks_by_value})", advice=advice)


_MACHINE = (
    ("cores", "the number of cores that they may use", "Give each rank as many: compare CPU limits, affinity and --cpus-per-task."),
    ("processor", "their processors",
     "The slowest machine sets the pace of all: use machines of one kind, or fewer samples there."),
    ("numa_spread", "how many NUMA nodes their cores lie on",
     "Pin each rank to the node of its device, all of them or none: numactl --cpunodebind=N --membind=N, or srun --cpu-bind."),
    ("storage", "the file systems that their data lies on",
     "The slowest storage sets the pace of all: copy the data to the same kind of storage everywhere."),
    ("memory_gib", "the memory of their machines, in GiB", "What stays in the page cache on one may be read again on another."),
)  # fmt: skip
"""What each process noted of its machine, and of where its data lies."""


def _of_machine(notes: LoopNotes, name: str) -> Any:
    if name == "storage":
        return next((epoch["storage"] for epoch in notes.epochs if epoch.get("storage")), None)
    if name == "numa_spread":
        nodes = notes.process.get("numa_nodes")
        return nodes and len(str(nodes).split(","))
    return notes.process.get(name)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


# -- who is waited for -----------------------------------------------------------------------------------------------------


def _straggler(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """The rank that the others wait for, by what it has more of."""
    if any(notes.role != "training" or _too_short(notes) for notes in ranks.values()):
        return
    for part, description, advice in _PARTS:
        spent = {rank: part(notes.blocks) for rank, notes in ranks.items()}
        slow = max(spent, key=spent.__getitem__)
        others = [notes for rank, notes in ranks.items() if rank != slow]
        more = spent[slow] - statistics.median(part(notes.blocks) for notes in others)
        rest = statistics.median(_step_of(notes.blocks) - part(notes.blocks) for notes in others)
        elsewhere = rest - (_step_of(ranks[slow].blocks) - spent[slow])
        whole = _step_of(ranks[slow].blocks)
        if more > 0 and elsewhere >= MATCHED * more and _surely(part, ranks[slow], others) >= NOTICED * whole:
            found = f"rank {slow} makes the others wait: {description(ranks[slow])} {seconds(more)} more a step than theirs, "
            found += f"{percent(more / whole)} of the time of {len(ranks)} ranks (loader made at {place})"
            yield Finding(id="straggler", severity="warning", found=found, advice=advice)
            return


def _too_short(notes: LoopNotes) -> bool:
    few = len(notes.blocks) < LEAST_BLOCKS or notes.total("steps") < LEAST_STEPS
    return few or notes.total("wait_s") + notes.total("step_s") < LEAST_SECONDS


_Part = Callable[[Sequence[dict[str, Any]]], float]


def _waiting(blocks: Sequence[dict[str, Any]]) -> float:
    """Seconds a step for data, the first batch of an epoch apart."""
    first = sum(sum(block.get("first_s", ())) for block in blocks)
    return max(0.0, total(blocks, "wait_s") - first) / max(1.0, total(blocks, "steps"))


def _working(blocks: Sequence[dict[str, Any]]) -> float:
    """Seconds a step neither for data nor in backward, where ranks wait for each other."""
    spent = total(blocks, "step_s") - total(blocks, "backward_s") - total(blocks, "inner_s")
    return max(0.0, spent) / max(1.0, total(blocks, "steps"))


def _step_of(blocks: Sequence[dict[str, Any]]) -> float:
    return _waiting(blocks) + (total(blocks, "step_s") - total(blocks, "inner_s")) / max(1.0, total(blocks, "steps"))


def _surely(part: _Part, slow: LoopNotes, others: Sequence[LoopNotes]) -> float:
    """Seconds a step that it has at least more than the others, in 97 % of resamples."""
    draw = random.Random(0)
    shares = []
    for _ in range(_RESAMPLES):
        spent, *others_spent = (part(draw.choices(notes.blocks, k=len(notes.blocks))) for notes in (slow, *others))
        shares.append(spent - statistics.median(others_spent))
    return sorted(shares)[_RESAMPLES // 40]


def _busy(notes: LoopNotes) -> float:
    """CPU seconds a second of making samples."""
    looked = [block["looked"] for block in notes.blocks if "looked" in block]
    if total(looked, "batches") >= LEAST_LOOKS:
        return total(looked, "cpu") / (total(looked, "made") or 1.0)
    making = notes.total("making_s") * max(1, notes.workers)
    return notes.total("making_cpu_s") / making if making else 0.0


def _data(notes: LoopNotes) -> str:
    busy = _busy(notes)
    if busy >= COMPUTES:
        cause = "its samples are decoded and augmented more slowly (its loader computes)"
    elif busy <= WAITS:
        cause = "its storage is slower (its loader waits and computes little)"
    else:
        cause = "its samples are made more slowly"
    return f"{cause}, and it waits for them"


_PARTS: tuple[tuple[_Part, Callable[[LoopNotes], str], str], ...] = (
    (_waiting, _data,
     "Compare that rank's storage, cores and samples with the others'; pipefix run --probe there names the stage."),
    (_working, lambda _: "its step, backward apart, takes",
     "Compare that rank's device, cores and load with the others'; logging and checkpoints of one rank count as well."),
)  # fmt: skip
"""Of a step, what a slow rank has more of: its seconds, how that is told, and advice."""


def _late_start(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """A rank whose first batch comes later than everybody's."""
    first = {rank: sum(notes.first_s) for rank, notes in ranks.items()}
    slow = max(first, key=first.__getitem__)
    more = first[slow] - statistics.median(spent for rank, spent in first.items() if rank != slow)
    whole = first[slow] + _step_of(ranks[slow].blocks) * ranks[slow].total("steps")
    if more >= LATE and more >= LATE_SHARE * whole:
        epochs = sum(epoch["event"] == "epoch" for epoch in ranks[slow].epochs) or 1
        found = f"rank {slow} makes the others wait at the beginning of epochs: its first batches come {seconds(more)} later in "
        found += f"all, in {counted(epochs, 'epoch')} (loader made at {place})"
        advice = "Keep workers between epochs (persistent_workers=True); look at what worker_init_fn and the dataset do first."
        yield Finding(id="late-start", severity="warning", found=found, advice=advice)
