"""Where the whole time of a program went, by the loops of one of its processes: the one that trains, of the lowest rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipefix.programs.noted import LoopNotes
from pipefix.report.runfile import ProgramAccount


def account(loops: Sequence[LoopNotes], begun: float, seconds: float) -> ProgramAccount:
    """``loops``: those with notes; ``begun``: when the program began, by the clock of the notes; ``seconds``: that it took."""
    loops = _of_one_process([notes for notes in loops if notes.facts.get("main_thread", True)])
    training = [notes for notes in loops if notes.role == "training"]
    first_batch = sum(seconds for notes in training for block in notes.blocks for seconds in block["first_s"])
    checkpoints = _total(training, "saved_s")
    own = {
        "start_up": min([seconds, *(max(0.0, _begin(notes) - begun) for notes in loops)]),
        "first_batch": first_batch,
        "training": _working(training) - first_batch - (checkpoints - _total(training, "saved_outside_s")),
        "evaluation": _working(notes for notes in loops if notes.role == "evaluation"),
        "checkpoints": checkpoints,
        "between_epochs": _total(training, "between_s") - _total(training, "saved_between_s"),
    }
    own = {part: max(0.0, spent) for part, spent in own.items()}
    if not loops:
        own["start_up"] = 0.0
    return ProgramAccount(**own, rest=max(0.0, seconds - sum(own.values())))


def _of_one_process(loops: Sequence[LoopNotes]) -> list[LoopNotes]:
    if not loops:
        return []
    chosen = min(loops, key=lambda notes: (notes.role != "training", notes.rank or 0, -_working([notes])))
    return [notes for notes in loops if notes.process is chosen.process]


def _begin(notes: LoopNotes) -> float:
    """When its first batch was asked for, by the clock of the notes."""
    first = notes.blocks[0]
    return float(first.get("at", 0.0) - first["wait_s"] - first["step_s"])


def _working(loops: Iterable[LoopNotes]) -> float:
    """Seconds of waits and steps, without loops inside them."""
    return sum(notes.total("wait_s") + notes.total("step_s") - notes.total("inner_s") for notes in loops)


def _total(loops: Iterable[LoopNotes], name: str) -> float:
    return sum(notes.total(name) for notes in loops)
