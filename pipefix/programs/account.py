"""Where all the seconds of a program went, by the loops of the one process that trains (of the lowest rank)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipefix.programs.loop_notes import LoopNotes
from pipefix.report.runfile import ProgramAccount


def account(loops: Sequence[LoopNotes], begun: float, seconds: float) -> ProgramAccount:
    """``loops``: those with notes; ``begun``: when the program began, by the clock of the notes; ``seconds``: that it took."""
    loops = [notes for notes in loops if notes.waits]
    if not loops:
        return ProgramAccount(rest=seconds)
    loops = _of_one_process(loops)
    training = [notes for notes in loops if notes.role == "training"]
    first_batch = sum(sum(notes.first_s) for notes in training)
    checkpoints = _total(training, "saved_s")
    parts = {
        "start_up": min(seconds, *(max(0.0, _begin(notes) - begun) for notes in loops)),
        "first_batch": first_batch,
        "training": _seconds(training) - first_batch - (checkpoints - _total(training, "saved_outside_s")),
        "evaluation": _seconds(notes for notes in loops if notes.role == "evaluation"),
        "checkpoints": checkpoints,
        "between_epochs": _total(training, "between_s") - _total(training, "saved_between_s"),
        "experiments": loops[0].process.get("experiments", {}).get("seconds", 0.0),
        "end": loops[0].process.get("ending_s", 0.0),
    }
    parts = {part: max(0.0, spent) for part, spent in parts.items()}
    return ProgramAccount(**parts, rest=max(0.0, seconds - sum(parts.values())))


def _of_one_process(loops: Sequence[LoopNotes]) -> list[LoopNotes]:
    chosen = min(loops, key=lambda notes: (notes.role != "training", notes.rank or 0, -notes.seconds))
    return [notes for notes in loops if notes.process is chosen.process]


def _begin(notes: LoopNotes) -> float:
    """When its first batch was asked for, by the clock of the notes."""
    first = notes.blocks[0]
    return float(first.get("at", 0.0) - first["wait_s"] - first["step_s"])


def _seconds(loops: Iterable[LoopNotes]) -> float:
    return sum(notes.seconds for notes in loops)


def _total(loops: Iterable[LoopNotes], name: str) -> float:
    return sum(notes.total(name) for notes in loops)
