"""Finds mistakes in which samples a loop gets, and each rank of it: none, the same ones again, or not all of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipefix.programs.loop_notes import LoopNotes
from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.quantity import counted, percent
from pipefix.vocabulary.shards import GIVE_PARTS

LEAST_APART = 4
"""First batches of a stream that must differ, before two ranks or workers that get the same ones are told."""
TAIL = 0.05
"""Part of a dataset that training leaves out, or takes twice, from which it is told. In evaluation any part is."""
_GLOBAL = re.compile(r"--?(?:\w+\.)?(?:global|total|effective)[-_]batch(?:[-_]size)?")
_PARTS_OF_A_MODEL = "Ranks that hold parts of one model (tensor or pipeline parallel) are to get the same: leave them so."


def findings(place: str, loops: Sequence[LoopNotes], ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """``loops``: over the loaders that the line ``place`` made; ``ranks``: those of processes that know their rank."""
    yield from _same_order(place, loops)
    yield from _stream_of_each_worker(place, loops)
    yield from _tails(place, [*ranks.values()] if len(ranks) > 1 else [*loops][:1])
    if len(ranks) > 1:
        for look in (_same_samples, _same_stream, _uneven, _unlike_batches):
            yield from look(place, ranks)
    yield from _another_global_batch(place, loops)


def no_batches(place: str, loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """A loader that was gone through and gave nothing."""
    for notes in loops:
        ended = [epoch for epoch in notes.epochs if epoch["event"] == "epoch ended" and "batches" in epoch]
        if not ended or any(epoch["batches"] for epoch in ended) or notes.total("steps"):
            continue
        begun = _begun(notes)
        held = f" of {counted(begun['dataset_length'], 'sample')}" if begun.get("dataset_length") is not None else ""
        rank = f" on rank {notes.rank}" if notes.rank is not None else ""
        advice = "With drop_last=True fewer samples than a batch are none at all: use smaller batches, or drop_last=False."
        if not begun.get("drop_last"):
            advice = "See why its dataset or its sampler is empty there."
        found = f"a loop over the loader made at {place}{held} got no batch{rank}"
        yield Finding(id="no-batches", severity="warning", found=found, advice=advice)
        return


def global_batch(loops: Sequence[LoopNotes]) -> tuple[int, str] | None:
    """Samples that an optimizer's step of these ranks' loops is over, and how they come about; None where that is not certain."""
    size = _only(notes.facts.get("batch_size") for notes in loops)
    each = [notes.total("steps") / notes.total("optimizer_steps") for notes in loops if notes.total("optimizer_steps")]
    in_turn = any(notes.total("optimizers_changed") > 0.1 * notes.total("optimizer_steps") for notes in loops)
    if in_turn or not isinstance(size, int) or size < 1 or len(each) != len(loops):
        return None
    batches = round(min(each))
    if batches < 1 or any(abs(count - batches) > 0.1 * batches for count in each):
        return None  # two optimizers, or a loop that was ended in between
    ranks = len({notes.rank for notes in loops if notes.rank is not None}) or 1
    sentence = f"batches of {size:,}" + (f" on each of {ranks} ranks" if ranks > 1 else "")
    return size * ranks * batches, sentence + (f", {batches} of them a step" if batches > 1 else "")


def _only(values: Iterable[Any]) -> Any:
    """The value that all of these are; None where they differ, or there is none."""
    (value, *others) = set(values) or {None}
    return None if others else value


def _another_global_batch(place: str, loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """Than the program's arguments ask for by that very name."""
    actual = global_batch(loops) if all(notes.role == "training" for notes in loops) else None
    intended = next((words for notes in loops if (words := _asked_for(notes.process.get("argv") or ()))), None)
    if actual is None or intended is None or actual[0] == intended[1]:
        return
    option, size = intended
    found = f"{option} asks for {size:,} samples an optimizer step, and steps are over {actual[0]:,}: {actual[1]} "
    found += f"(loader made at {place})"
    advice = "The batch size of a DataLoader is a rank's: divide it by the ranks, and by the batches of a step."
    yield Finding(id="global-batch", severity="warning", found=found, advice=advice)


def _asked_for(words: Sequence[str]) -> tuple[str, int] | None:
    for word, following in itertools.pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if _GLOBAL.fullmatch(option) and (value or following).isdigit():
            return option, int(value or following)
    return None


def _same_samples(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """Ranks whose samplers go through the whole dataset, each of them."""
    begun = [_begun(notes) for notes in ranks.values()]
    length = _only(epoch.get("dataset_length") for epoch in begun)
    whole = all(not epoch.get("shared") and epoch.get("sampler_length") == length for epoch in begun)
    if not length or not whole or _only(epoch.get("dataset") for epoch in begun) is None:
        return
    orders = (next((epoch["order"] for epoch in notes.epochs if "order" in epoch), None) for notes in ranks.values())
    same = "" if _only(orders) is None else " in the same order"
    found = f"each of {len(ranks)} ranks goes through all {length:,} samples{same} (loader made at {place})"
    advice = "Give each rank its share: DataLoader(..., sampler=DistributedSampler(dataset, shuffle=True))"
    advice += f". {_PARTS_OF_A_MODEL}" if same else ""
    yield Finding(id="same-samples", severity=_severity(ranks), found=found, advice=advice)


def _severity(ranks: dict[int, LoopNotes]) -> str:
    """Of samples that several ranks get."""
    return "problem" if any(notes.role == "training" for notes in ranks.values()) else "warning"


def _same_order(place: str, loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """Epochs that repeat a shuffled order."""
    for notes in loops:
        orders = [epoch["order"] for epoch in notes.epochs if "order" in epoch and not epoch["sequential"]]
        if notes.role == "training" and len(orders) > 1 and len(set(orders)) == 1:
            shared = any(epoch.get("shared") for epoch in notes.epochs)
            call, seed = "Call sampler.set_epoch(epoch) before each epoch", "Seed the loader's generator once, not in each epoch"
            found = f"{len(orders)} epochs ask for their samples in the same shuffled order (loader made at {place})"
            advice = f"{call if shared else seed}: each epoch is to have an order of its own."
            yield Finding(id="same-order", severity="warning", found=found, advice=advice)
            return


def _uneven(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """Ranks whose epochs differ in length."""
    ended = _only(sum(epoch["event"] == "epoch ended" for epoch in notes.epochs) for notes in ranks.values())
    steps = {rank: int(notes.total("steps")) for rank, notes in ranks.items()}
    if ended and len(set(steps.values())) > 1:
        most, least = max(steps, key=steps.__getitem__), min(steps, key=steps.__getitem__)
        found = f"rank {most} takes {counted(steps[most], 'batch')} and rank {least} {steps[least]:,} (loader made at {place})"
        advice = "Give all ranks as many batches (a DistributedSampler does): the others wait for one that has ended."
        yield Finding(id="uneven-ranks", severity="warning", found=found, advice=advice)


def _begun(notes: LoopNotes) -> dict[str, Any]:
    return next((epoch for epoch in notes.epochs if epoch["event"] == "epoch"), {})


def _stream_of_each_worker(place: str, loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """Workers that each go through the whole stream: batches come from them in turn, so each comes once for every worker."""
    for notes in loops:
        workers = notes.workers
        if workers < 2 or not _begun(notes).get("stream"):
            continue
        turns = [{*notes.checksums[at : at + workers]} for at in range(0, len(notes.checksums) - workers + 1, workers)]
        if len(turns) >= 2 and all(len(turn) == 1 for turn in turns) and len(set().union(*turns)) == len(turns):
            found = f"each of {workers} workers goes through the whole stream, so that every sample comes {workers} times an epoch"
            found += f" (loader made at {place})"
            yield Finding(id="whole-stream-each", severity="problem", found=found, advice=GIVE_PARTS)
            return


def _same_stream(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    """Ranks whose first batches of a stream hold the same."""
    if not all(_begun(notes).get("stream") for notes in ranks.values()):
        return
    firsts = [notes.checksums for notes in ranks.values()]
    common = min(map(len, firsts))
    alike = len({tuple(indices[:common]) for indices in firsts}) == 1
    if alike and len(set(firsts[0][:common])) >= LEAST_APART:
        found = f"each of {len(ranks)} ranks gets the same batches of its stream (loader made at {place})"
        advice = "Give each rank its share: itertools.islice(samples, rank, None, world_size), or split_dataset_by_node, "
        advice += f"split_by_node and the like of the library that makes the stream. {_PARTS_OF_A_MODEL}"
        yield Finding(id="same-samples", severity=_severity(ranks), found=found, advice=advice)


def _unlike_batches(place: str, ranks: dict[int, LoopNotes]) -> Iterator[Finding]:
    sizes: dict[Any, list[int]] = {}
    for rank, notes in sorted(ranks.items()):
        sizes.setdefault(notes.facts.get("batch_size"), []).append(rank)
    if len(sizes) < 2 or None in sizes or any(notes.role != "training" for notes in ranks.values()):
        return
    ranks_by_size = "; ".join(f"{size}: rank {', '.join(map(str, whose))}" for size, whose in sizes.items())
    found = f"ranks take batches of different sizes ({ranks_by_size}; loader made at {place})"
    advice = "Gradients are averaged over ranks, not over samples, so smaller batches count for more: use one size."
    yield Finding(id="unlike-batches", severity="warning", found=found, advice=advice)


def _tails(place: str, loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """What an epoch leaves out at its end, or takes a second time to make all ranks even."""
    ended = [next((epoch for epoch in notes.epochs if "samples" in epoch), None) for notes in loops]
    begun = [_begun(notes) for notes in loops]
    length = _only(epoch.get("dataset_length") for epoch in begun)
    if not length or not all(_is_counted(epoch, notes) for epoch, notes in zip(ended, loops, strict=True)):
        return
    meant: list[Any] = [epoch.get("sampler_length") for epoch in begun]
    if None in meant or (len(loops) > 1 and not all(epoch.get("shared") for epoch in begun)):
        return
    if abs(sum(map(int, meant)) - length) > len(loops):
        return  # a sampler that draws a part, or more
    taken = sum(epoch["samples"] for epoch in ended if epoch is not None)
    evaluates = all(notes.role == "evaluation" for notes in loops)
    if taken == length or (not evaluates and abs(taken - length) < TAIL * length):
        return
    dropped = taken < length
    if dropped and not any(epoch.get("drop_last") for epoch in begun):
        return
    part, count = ("evaluation" if evaluates else "an epoch"), abs(length - taken)
    kind, how = "doubled-tail", f"takes {count:,} of {length:,} samples twice"
    advice = "A DistributedSampler fills up, so that all ranks have as many: leave the doubles out of the figures, or have "
    advice += "one rank evaluate."
    if dropped:
        kind, how = "dropped-tail", f"leaves out {count:,} of {length:,} samples"
        advice = "drop_last=False takes the last batch, which is smaller, as well."
    found = f"{part} {how}, {percent(count / length)} (loader made at {place})"
    yield Finding(id=kind, severity="warning" if evaluates else "note", found=found, advice=advice)


def _is_counted(epoch: dict[str, Any] | None, notes: LoopNotes) -> bool:
    """Whether the samples of an epoch that came to its end are known by its batches."""
    size = notes.facts.get("batch_size")
    return bool(epoch and isinstance(size, int) and epoch["batches"] and 0 <= epoch["batches"] * size - epoch["samples"] < size)
