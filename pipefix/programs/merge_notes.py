"""Merges the notes of all processes of a program: figures for each loop and rank."""

from __future__ import annotations

import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipefix.programs.clock_verdict import MOSTLY
from pipefix.programs.loop_notes import LoopNotes, total
from pipefix.programs.observing.inside import HOOK
from pipefix.programs.rank_findings import findings
from pipefix.programs.sample_findings import global_batch
from pipefix.report.program_figures import LoopFigures, LoopSpan, ProgramAccount, ProgramFigures, named
from pipefix.vocabulary.quantity import Interval, exactly

LEAST = 5
"""Notes from which a share has an interval."""
STILL_NOTES = 3600.0
"""Seconds after its latest note that a process on another machine, whose end was not noted, may still be running."""
MOSTLY_SEEN = 0.5
"""Part of a loop's steps whose waits were seen on the device, from which these count and not the clocks of the CPU."""
LEAST_LOOKS = 8
"""Batches looked at from which their stages are told."""
_RESAMPLES = 400
_SPANS = 300
_MARK = b'{"event": "process", "at": '
_ENDED = ("ended", "gone")


def merged_notes(
    folder: Path, command: list[str], exit_code: int | None, seconds: float, began: float | None = None
) -> ProgramFigures:
    """The notes in ``folder``, as far as they were written. ``began``: by the clock of the notes; that of the first one if None."""
    loops: list[LoopNotes] = []
    errors: list[str] = []
    planned: list[str] = []
    overhead, unended, running, cuda, begun = 0.0, 0, False, False, began or float("inf")
    for path in notes_in(folder):
        here: dict[int, LoopNotes] = {}
        process, ended = {}, False
        for event in _events(path):
            notes = here.get(event.get("loop", -1))
            match event["event"]:
                case "process":  # again where the process became another program by exec()
                    process, here = event, {}
                    begun = min(begun, event["at"] or begun)
                    command = command or event.get("argv", [])
                case "loop":
                    here[event["loop"]] = LoopNotes(event["loader"], process, event)
                    loops.append(here[event["loop"]])
                case "in turn" if notes is not None and event["other"] in here:
                    notes.in_turn.append(here[event["other"]])
                    here[event["other"]].in_turn.append(notes)
                case "rank":
                    process["rank"] = event["rank"]
                case "inside":
                    process["experiments"] = event
                case "plan":
                    planned.append(event["loader"])
                case "error":
                    errors.append(event["error"])
                case "ended":
                    ended = True
                    process |= {"ending_s": event.get("ending_s", 0.0), "cuda": event["cuda"]}
                    overhead = max(overhead, event["overhead_s"])
                    cuda = cuda or event["cuda"]
                case _ if notes is not None:
                    notes.take(event)
        if not ended:
            at_work = still_noting(path) is not None
            running, unended = running or at_work, unended + (not at_work)
    loops = _by_what_epochs_do(loops)
    _leave_experiments_out(loops)
    sentences = findings(loops)
    loops = [notes for notes in loops if notes.blocks]
    ranks = {notes.rank for notes in loops if notes.rank is not None}
    over = {place: global_batch([notes for notes in loops if notes.place == place]) for place in {notes.place for notes in loops}}
    figures = [_figures(notes, begun, over[notes.place]) for notes in loops]
    figures.sort(key=lambda loop: (loop.role != "training", -loop.seconds, loop.rank or 0))
    return ProgramFigures(
        command=command, exit_code=exit_code, seconds=seconds, ranks=max(1, len(ranks)), loops=figures,
        overhead_share=overhead / seconds if seconds > 0 else 0.0,
        account=_account(loops, began or begun, seconds) if seconds > 0 else None,
        cuda=cuda, killed=unended, running=running, findings=sentences,
        errors=list(dict.fromkeys(errors)), planned=list(dict.fromkeys(planned)),
    )  # fmt: skip


def _by_what_epochs_do(loops: Sequence[LoopNotes]) -> list[LoopNotes]:
    """With epochs that do not train as loops of their own, beside those of the same loader that do."""
    parts = [(notes, notes.part_off()) for notes in loops]
    known = {(id(notes.process), notes.place) for notes in loops}
    for notes in (part for _, part in parts if part is not None):
        while (id(notes.process), notes.place) in known:
            notes.facts["nth"] = notes.place[2] + 1
        known.add((id(notes.process), notes.place))
    return [notes for pair in parts for notes in pair if notes is not None]


def _leave_experiments_out(loops: Sequence[LoopNotes]) -> None:
    """Ranks that exchange gradients with one that stands still for experiments wait for it: that is no time of their loops'."""
    probed = next((notes.process for notes in loops if notes.rank is not None and "experiments" in notes.process), None)
    if probed is not None:
        for notes in loops:
            if notes.rank is not None and notes.process is not probed:
                notes.leave_out(probed["experiments"]["seconds"], probed["experiments"]["at"])


def _account(loops: Sequence[LoopNotes], begun: float, seconds: float) -> ProgramAccount:
    """Where all the seconds of a program went, by the loops of the one process that trains (of the lowest rank)."""
    loops = [notes for notes in loops if notes.waits]
    if not loops:
        return ProgramAccount(rest=seconds)
    process = min(loops, key=lambda notes: (notes.role != "training", notes.rank or 0, -notes.seconds)).process
    loops = [notes for notes in loops if notes.process is process]
    training = [notes for notes in loops if notes.role == "training"]
    first_batch = sum(sum(notes.first_s) for notes in training)
    names = ("saved_s", "saved_outside_s", "between_s", "saved_between_s")
    saved, saved_outside, between, saved_between = (sum(notes.total(name) for notes in training) for name in names)
    asked = min(notes.blocks[0].get("at", 0.0) - notes.blocks[0]["wait_s"] - notes.blocks[0]["step_s"] for notes in loops)
    parts = {
        "start_up": min(seconds, max(0.0, asked - begun)),
        "first_batch": first_batch,
        "training": sum(notes.seconds for notes in training) - first_batch - (saved - saved_outside),
        "evaluation": sum(notes.seconds for notes in loops if notes.role == "evaluation"),
        "checkpoints": saved,
        "between_epochs": between - saved_between,
        "experiments": process.get("experiments", {}).get("seconds", 0.0),
        "end": process.get("ending_s", 0.0),
    }
    parts = {part: max(0.0, spent) for part, spent in parts.items()}
    return ProgramAccount(**parts, rest=max(0.0, seconds - sum(parts.values())))


def notes_in(folder: Path) -> list[Path]:
    """Files in which processes of a program noted what they did, by what they say at their beginning; links are none."""
    return [path for path in sorted(folder.glob("events-*.jsonl")) if not path.is_symlink() and path.is_file() and _is_ours(path)]


def mark_ended(folder: Path) -> None:
    """Of processes of this machine that ended without a word: a container that is started again has another name, and would take
    them for those of another node that goes on."""
    for path in notes_in(folder):
        host, latest = _host_and_latest(path)
        if host == platform.node() and latest not in _ENDED and still_noting(path) is None:
            with suppress(OSError), path.open("a", encoding="utf-8") as file:
                file.write('\n{"event": "gone"}\n')  # the line before may be torn


def noted_elsewhere(path: Path) -> bool:
    """Whether a process on another machine still notes in this file, in a folder that both share."""
    host, latest = _host_and_latest(path)
    elsewhere = host not in (None, platform.node()) and latest not in _ENDED
    with suppress(FileNotFoundError):
        return elsewhere and time.time() - path.stat().st_mtime < STILL_NOTES
    return False


def _host_and_latest(path: Path) -> tuple[Any, str]:
    """Of a process's notes: its machine, and what was noted last."""
    events = list(_events(path)) or [{"event": ""}]
    return events[0].get("host"), events[-1]["event"]


def still_noting(path: Path) -> int | None:
    """The process on this machine that notes in this file still; None where there is none, or nothing tells."""
    begun = next(_events(path), {})
    if begun.get("host") != platform.node() or not isinstance(begun.get("pid"), int):
        return None
    process, folder = Path(f"/proc/{begun['pid']}"), path.parent.resolve()
    with suppress(OSError):
        if os.fsencode(folder / HOOK) in (process / "environ").read_bytes():
            return int(begun["pid"])
        for file in (process / "fd").iterdir():  # of one that imported pipefix.auto
            with suppress(FileNotFoundError):
                if os.readlink(file) == str(folder / path.name):
                    return int(begun["pid"])
    return None


def _is_ours(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:  # a rank that starts at the same time has removed it, or it cannot be read
        return file.read(len(_MARK)) == _MARK
    return False


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines: the last one of a process that was killed may be torn."""
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:  # as above
        for line in file:
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    yield event


def _figures(notes: LoopNotes, begun: float, steps_over: tuple[int, str] | None) -> LoopFigures:
    known = notes.seconds
    by_device = notes.total("device_steps") >= MOSTLY_SEEN * notes.total("steps") > 0
    looked_on_device = notes.total("on_device_steps")
    watched, workers_watched = notes.total("watched_s"), notes.total("making_s") * notes.workers
    return LoopFigures(
        loader=notes.loader, iterated=notes.place[1], nth=notes.place[2], rank=notes.rank, role=notes.role,
        steps=int(notes.total("steps")), samples=int(notes.total("samples")),
        step_samples=steps_over[0] if steps_over is not None and notes.role == "training" else None,
        seconds=known, workers=notes.facts.get("workers"), first_batch_s=notes.first_s,
        wait_share=_share(_by_device(notes.blocks) if by_device else notes.blocks) if notes.loader and known else None,
        outside_share=_outside_share(notes.blocks) if not notes.loader else None,
        by_device=by_device,
        in_turn=[named(*other.place) for other in notes.in_turn if other.role == notes.role == "training"],
        timeline=_timeline(notes.blocks, begun),
        step_split=_split_on_device(notes, known) if by_device and looked_on_device >= LEAST else _split_by_clocks(notes),
        between_epochs_s=notes.total("between_s"),
        starved_share=notes.total("queued_s") / watched if watched else None,
        workers_starved_share=notes.total("workers_queued_s") / workers_watched if workers_watched else None,
        stages=_stages([block["looked"] for block in notes.blocks if "looked" in block]),
        looked=sum(block["looked"]["batches"] for block in notes.blocks if "looked" in block),
    )  # fmt: skip


def _split_by_clocks(notes: LoopNotes) -> dict[str, float]:
    named = {f"{part}_s": notes.total(f"{part}_s") for part in ("wait", "forward", "backward", "optimizer", "inner")}
    told = sum(named[f"{part}_s"] for part in ("wait", "forward", "backward", "optimizer"))
    return named | {"other_s": max(0.0, notes.seconds - told)}


def _split_on_device(notes: LoopNotes, known: float) -> dict[str, float]:
    """By events around the parts of some steps; all steps are taken to be like these."""
    wait = sum(block["wait_s"] for block in _by_device(notes.blocks))
    parts = [block["on_device"] for block in notes.blocks if block.get("on_device")]
    seconds = {part: total(parts, part) for part in ("copies", "forward", "backward", "optimizer", "other")}
    scale = max(0.0, known - wait) / (sum(seconds.values()) or 1.0)
    split = {f"{part}_s": spent * scale for part, spent in seconds.items()}
    return {"wait_s": wait, **split, "inner_s": notes.total("inner_s")}


def _timeline(blocks: list[dict[str, Any]], begun: float) -> list[LoopSpan]:
    """When it ran and when it waited, in no more spans than a page can show."""
    together = max(1, -(-len(blocks) // _SPANS))
    spans = []
    for place in range(0, len(blocks), together):
        part = blocks[place : place + together]
        end = part[-1].get("at", 0.0) - begun
        first = part[0].get("at", 0.0) - begun - part[0]["wait_s"] - part[0]["step_s"]
        spans.append(LoopSpan(begin=round(max(0.0, first), 3), end=round(max(0.0, end), 3), waited=round(_ratio(part), 4)))
    return spans


def _share(blocks: list[dict[str, Any]]) -> Interval:
    """Of the loop's time, without that of loops inside it, that it waited; with the interval that resampled notes give.

    How a loop begins is no sample of how it goes on: its first note, and the first batches of epochs, are added as they were.
    """
    value = _ratio(blocks)
    if 1 < total(blocks, "steps") <= sum(len(block["first_s"]) for block in blocks):
        return exactly(value)
    if len(blocks) < LEAST:
        return Interval(value=value, low=0.0, high=1.0)
    begun = [blocks[0], {"wait_s": sum(sum(block["first_s"]) for block in blocks[1:]), "step_s": 0.0, "inner_s": 0.0}]
    later = [{**block, "wait_s": max(0.0, block["wait_s"] - sum(block["first_s"]))} for block in blocks[1:]]
    drawn = _resampled(later, lambda some: _ratio(begun + some))
    return Interval(value, min(value, drawn.low), max(value, drawn.high))


def _resampled(blocks: list[dict[str, Any]], figure: Callable[[list[dict[str, Any]]], float]) -> Interval:
    """A figure of these notes, with the middle 95 % of what it is of notes drawn from them."""
    draw = random.Random(0)
    figures = sorted(figure(draw.choices(blocks, k=len(blocks))) for _ in range(_RESAMPLES))
    return Interval(figure(blocks), figures[_RESAMPLES // 40], figures[-1 - _RESAMPLES // 40])


def _outside_share(blocks: list[dict[str, Any]]) -> Interval | None:
    """Of steps without a loader, what passes outside models, backward passes and optimizers; with its interval."""
    looked = [block for block in blocks if block.get("looked_into_s")]
    if len(looked) < LEAST:
        return None
    return _resampled(looked, lambda some: total(some, "outside_s") / total(some, "looked_into_s"))


def _stages(looked: list[dict[str, Any]]) -> dict[str, Interval]:
    """Each stage's part of the making of batches, with the interval that resampled looks give."""
    if sum(look["batches"] for look in looked) < LEAST_LOOKS or len(looked) < LEAST:
        return {}
    made = {stage: lambda some, stage=stage: total(some, stage) / (total(some, "made") or 1.0) for stage in MOSTLY}
    return {stage: _resampled(looked, part) for stage, part in made.items()}


def _by_device(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what the device idled as their waits; what it worked meanwhile is its step's."""
    adjusted, whole = [], total(blocks, "steps") / total(blocks, "device_steps")  # those of some steps were not seen
    for block in blocks:
        waited = min(block["wait_s"] + block["step_s"], whole * block["device_wait_s"] + sum(block["first_s"]))
        adjusted.append({**block, "wait_s": waited, "step_s": block["wait_s"] + block["step_s"] - waited})
    return adjusted


def _ratio(blocks: list[dict[str, Any]]) -> float:
    wait, step, inner = (total(blocks, name) for name in ("wait_s", "step_s", "inner_s"))
    known = wait + max(0.0, step - inner)
    return wait / known if known else 0.0
