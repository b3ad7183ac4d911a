"""Where all the seconds of a program went, by the loops of the one process that trains (of the lowest rank)."""

from __future__ import annotations

from collections.abc import Sequence

from pipefix.programs.loop_notes import LoopNotes
from pipefix.report.runfile import ProgramAccount


def account(loops: Sequence[LoopNotes], begun: float, seconds: float) -> ProgramAccount:
    """``loops``: those with notes; ``begun``: when the program began, by the clock of the notes; ``seconds``: that it took."""
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
