"""Builds commands that messages suggest, quoted so that a shell does what they say, whatever a file is called."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path


def command(*words: str | os.PathLike[str]) -> str:
    """A command line of these words, each quoted where a shell would take it for something else."""
    # No program is to take a path for one of its options.
    return shlex.join(word if isinstance(word, str) else re.sub(r"\A-", "./-", os.fspath(word)) for word in words)


def on_target(verb: str, target: str, **options: object) -> str:
    """A verb used on a target: typed, or called where the target is an object of Python, which has no name to type."""
    if target.endswith(" object>"):
        given = ["loader" if "Loader" in target else "dataset", *(f"{name}={value!r}" for name, value in options.items())]
        return f"pipefix.{verb}({', '.join(given)})"
    typed = {f"--{name.replace('_', '-')}": value if isinstance(value, Path) else str(value) for name, value in options.items()}
    return command("pipefix", verb, target, *chain.from_iterable(typed.items()))


class Name(str):
    """What a call that is suggested gives by a name of the user's own."""

    __repr__ = str.__str__


_EMULATED = re.compile(r"emulated: (\d+\.?\d*(?:e[+-]?\d+)?) (ms|samples)")


def as_measured(target: str, consumer: str, given: Mapping[str, int]) -> dict[str, object]:
    """Options with which a verb meets a target as a probe did: beside the same step, with what was given in place of its own."""
    options: dict[str, object] = {name: given[name] for name in ("batch_size", "workers") if name in given}
    if made_in_program(target):
        return options
    if emulated := _EMULATED.match(consumer):
        return {"step_ms" if emulated[2] == "ms" else "target_rate": float(emulated[1]), **options}
    if target.endswith(" object>") and consumer in ("train_step", "model"):  # which the call was given
        return {"step": Name(consumer), **options}
    return options


def undone_by(folder: str | os.PathLike[str]) -> str:
    """How the last step of the plan in a folder is taken back."""
    return command("pipefix", "fix", "--undo", *(["--out", folder] if os.fspath(folder) != "." else []))


def made_in_program(target: str) -> bool:
    """Whether a target is a loader inside a program, which has no name but the line that makes it: ``train.py:14``, ``yolo:8``."""
    return re.fullmatch(r"[^/]*:\d+", target) is not None


def of_a_notebook(name: str) -> str:
    """What is typed where a notebook was named."""
    program = command("jupyter", "nbconvert", "--to", "script", name)
    return f"In the notebook: pipefix.probe(loader). Or make a program of it: {program}"


def with_plan(plan: str, target: str, program: Sequence[str] = ()) -> str:
    """How a plan file for the target is put in place; ``program``: what the target's program was run as, where it is known.

    ``...`` are the arguments of the user's own loader, which a plan does not hold.
    """
    if made_in_program(target):
        return command("pipefix", "run", "--plan", plan, *program) + ("" if program else " PROGRAM")
    return f"FastLoader(dataset, ..., plan={json.dumps(plan, ensure_ascii=False)})"
