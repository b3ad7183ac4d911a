"""Runs a training program as it is and says where the time of its loops went (``pipefix run``)."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from pipefix.api.in_program import TOO_SHORT, Job, job, with_commands
from pipefix.plan import planfile
from pipefix.programs.clock_verdict import agreed, clock_verdict
from pipefix.programs.cost_findings import MANY_ANEW
from pipefix.programs.launch import Ended, command_line, launch, remove_old_hooks
from pipefix.programs.launch import start as start
from pipefix.programs.merge_notes import mark_ended, merged_notes, noted_elsewhere, notes_in, still_noting
from pipefix.programs.observing.inside import ENOUGH
from pipefix.report import runfile
from pipefix.report.program_figures import ProgramFigures
from pipefix.report.program_report import NOT_PROBED
from pipefix.report.shown import ShownRun as Run
from pipefix.report.shown import shown
from pipefix.vocabulary import files, launched
from pipefix.vocabulary.commands import command as written
from pipefix.vocabulary.commands import made_in_program
from pipefix.vocabulary.errors import BadUsage, Interrupted, PipefixError, UnreadableFile
from pipefix.vocabulary.folder_lock import taken
from pipefix.vocabulary.version import VERSION

_NOTES = re.compile(r"(run\.json|report\.html|events-.*\.jsonl|\.pipefix-(enough|noting-.*))\Z")

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables of launchers that start this command for each rank, beside ``RANK``: what others note in the folder is of the same
program if there are several. Ranks of theirs are set for a single task as well, and Slurm's in every batch script."""


def run_program(
    command: Sequence[str], *, out: Path, seconds: float | None = None, steps: int | None = None, probe: float | None = None,
    plan: Path | None = None, stages: bool = True,
) -> Run:  # fmt: skip
    """Run a training program as it is and say where the time of its loops over loaders went.

    Args:
        command: ``["train.py", "--epochs", "3"]``, ``["-m", "package.train"]``, or any program that starts Python.
        out: an existing folder that gets ``run.json`` and, while the program runs, the notes of each process.
        seconds: end the program after so long, as Ctrl-C would.
        steps: end it after so many optimizer steps.
        probe: seconds to probe the training loop's loader for, inside the program, which goes on afterwards.
        plan: a plan that `fix` or `tune` made for a loader of this program, which comes up with it.
        stages: look into the making of some batches: what of it is reading, decoding, augmentation, collating.

    Raises:
        BadUsage: another program notes in ``out``, or is about to.
        UnreadableFile: ``run.json`` could not be written; the run is its ``known``.
    """
    words = check(command, plan)
    with held(out), job() if probe is not None else nullcontext() as probe_job:
        clear(out)
        if probe_job is not None:
            probe_job.write("probe", {"budget": probe}, ends=False)
        file = probe_job.file if probe_job is not None else None
        ended = launch(words, out, seconds=seconds, steps=steps, job=file, plan=plan, stages=stages)
        try:
            mark_ended(out)
            run = _told(out, command, ended, plan)
            if probe_job is not None and probe is not None:
                run = shown(_probed_elsewhere(_with_probe(run, probe_job, ended, command, probe), out / "run.json"))
            runfile.write(run, out / "run.json")
        except UnreadableFile as error:
            error.known = run
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise EndedUntold(ended.exit_code or 0) from error
    return run


class EndedUntold(Exception):
    """A fault of pipefix's, or an interrupt, after the program had ended with ``exit_code``: what was seen of it is not told."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def check(command: Sequence[str], plan: Path | None) -> list[str]:
    """The command to start; raises what stands in its way, before anything is made."""
    words = command_line(command)
    target = planfile.read(plan).target if plan is not None else ""
    if plan is not None and not made_in_program(target):
        raise BadUsage(
            f"The plan {plan} was made for {target or 'no target'}, not for a loader of a program.",
            advice="Make one with: pipefix fix train.py -- ARGUMENTS; this one is for the code: FastLoader(dataset, ..., plan=...)",
        )
    return words


def from_folder(folder: Path) -> runfile.Run:
    """What is known of a program by the folder that ``--out`` named.

    Where processes noted something after the run file was written (on another node), or where there is none (pipefix was killed
    beside the program, or it still runs), that comes from their notes.
    """
    file = folder / "run.json"
    if file.exists():
        run = runfile.read(file)
        program = run.program
        if program is None or all(path.stat().st_mtime <= file.stat().st_mtime for path in notes_in(folder)):
            return run
        later = merged_notes(folder, program.command, program.exit_code, program.seconds)
        later = msgspec.structs.replace(later, plan=program.plan, at_limit=program.at_limit)
        return msgspec.structs.replace(run, program=later, verdict=run.verdict if run.stages else clock_verdict(later))
    if not notes_in(folder):
        from pipefix.fixes.fix_log import LOG

        advice = "Name a run file, or the folder that --out named; a program writes one by: pipefix run train.py"
        if (folder / LOG).exists():
            advice = f"It is one of pipefix fix: {written('pipefix', 'log', folder)}"
        raise UnreadableFile(
            f"{folder} is no folder of pipefix run: there is neither a run.json nor a process's notes in it.", advice=advice
        )
    return _told(folder, (), Ended(None, 0.0))


def _with_probe(run: runfile.Run, probe_job: Job, ended: Ended, command: Sequence[str], probe: float = 60.0) -> runfile.Run:
    """What the experiments found, with the program that they were made in; the clocks' verdict, and why, where there were none."""
    assert run.program is not None
    try:
        probed = probe_job.answered(ended, command)
        if probed.partial and not probed.stages:
            raise Interrupted("The probe was interrupted before the first block was measured.")
    except PipefixError as error:
        if any(told.startswith(NOT_PROBED) for told in run.program.errors):
            return run  # the program itself knows why
        instead = "" if TOO_SHORT not in str(error) else _instead(run.program)
        told = f"{NOT_PROBED} {error}{instead}"
        program = msgspec.structs.replace(run.program, errors=[*run.program.errors, told])
        return msgspec.structs.replace(run, program=program)
    with_program = _with_program(_in_words_of_run(with_commands(probed, command)), run.program)
    if with_program.verdict is None or run.verdict is None:
        return with_program
    return msgspec.structs.replace(with_program, verdict=agreed(with_program.verdict, run.verdict, probe))


def _with_program(probed: runfile.Run, program: ProgramFigures) -> runfile.Run:
    """Experiments and the program that they were made in; that they could not be made by ranks on other machines is not told."""
    errors = [error for error in program.errors if not error.startswith(NOT_PROBED)]
    return msgspec.structs.replace(probed, program=msgspec.structs.replace(program, errors=errors))


def _probed_elsewhere(run: runfile.Run, file: Path) -> runfile.Run:
    """With the experiments that this command wrote on another node meanwhile, to the same folder: there the first rank was."""
    other = runfile.read(file) if not run.stages and file.exists() else None
    return _with_program(other, run.program) if other is not None and other.stages and run.program is not None else run


def _instead(program: ProgramFigures) -> str:
    """What to do so that the program can be probed."""
    training = [loop for loop in program.loops if loop.role == "training"]
    if training and not any(loop.loader for loop in training):
        return " It trains without a DataLoader, so there is none to probe."
    if program.at_limit:
        return " --seconds or --steps ended it before that: give it more of them."
    if program.exit_code or not program.loops:
        return ""  # it failed, and says why; or nothing was seen of it, as is told beside
    if not training:
        return " None of its loops is known to train; probe a loader by its name: pipefix probe FILE.py:NAME"
    if any(loop.steps >= MANY_ANEW and loop.steps == len(loop.first_batch_s) for loop in training):
        return " Each batch is the first of an iterator, as of next(iter(loader)): make the iterator once, before the loop."
    return " Let it train for longer, by more epochs or more data."


def _in_words_of_run(run: runfile.Run) -> runfile.Run:
    """What asks for a longer probe names the option as it is here: ``--probe=60``; a trace is another command's."""

    def said(text: str) -> str:
        return re.sub(r"--budget (\d+)", r"--probe=\1", text).replace("a trace: --trace", "a trace: pipefix probe --trace")

    verdict = run.verdict and msgspec.structs.replace(run.verdict, sentence=said(run.verdict.sentence))
    caveats = [msgspec.structs.replace(caveat, sentence=said(caveat.sentence)) for caveat in run.caveats]
    return msgspec.structs.replace(run, verdict=verdict, caveats=caveats)


def _told(folder: Path, command: Sequence[str], ended: Ended, plan: Path | None = None) -> Run:
    program = merged_notes(folder, list(command), ended.exit_code, ended.seconds, ended.began)
    program = msgspec.structs.replace(program, plan=str(plan) if plan is not None else None, at_limit=ended.at_limit)
    return Run(
        pipefix=VERSION, created=datetime.now().astimezone().isoformat(timespec="seconds"), target=written(*program.command),
        verdict=clock_verdict(program), program=program,
    )  # fmt: skip


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """No other program of this machine notes there meanwhile, also where nothing is noted yet; ranks of one program share it."""
    place, free = folder / f".pipefix-noting-{platform.node()}", True
    lock: BinaryIO = BytesIO()
    with suppress(OSError):  # nothing can be written there, or its file system has no locks
        file = files.open_own(place)
        free, lock = taken(file), file
    with lock:
        if not free:
            _refuse(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                files.remove(place, _NOTES)


def _refuse(folder: Path, who: str = "") -> None:
    if "RANK" not in os.environ and all((launched.number(name) or 1) < 2 for name in _SIZES):
        problem = f"--out {folder}: another program notes there and still runs{who}."
        raise BadUsage(problem, advice="Name another folder: pipefix run --out FOLDER train.py")


def clear(folder: Path) -> None:
    """Of an earlier program's notes and figures; whatever else is in the folder stays, and what other nodes of this one note.

    Raises `BadUsage` where another program still notes there, `UnreadableFile` where they cannot be removed, or are none of ours.
    """
    file = folder / "run.json"
    earlier: list[Path] = []
    try:
        runfile.read(file)
        earlier = [file, folder / "report.html"]  # which `import pipefix.auto` does not write anew
    except UnreadableFile:  # there is none; a rank that starts at the same time may have removed it just now
        if file.exists():  # it is none of ours
            raise
    ours = [notes for notes in notes_in(folder) if not noted_elsewhere(notes)]
    noting = {notes: process for notes in ours if (process := still_noting(notes)) is not None}
    if noting:
        _refuse(folder, f" (process {min(noting.values())})")
    try:
        for path in (*earlier, folder / ENOUGH, *(notes for notes in ours if notes not in noting)):
            files.remove(path, _NOTES)
        remove_old_hooks(folder)
    except OSError as error:
        problem = f"--out {folder}: the notes of an earlier program cannot be removed: {error.strerror or error}."
        raise UnreadableFile(problem, advice="Name another folder: pipefix run --out FOLDER train.py") from error
