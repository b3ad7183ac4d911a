"""Runs a verb inside a training program: on the loader of its training loop, with its own dataset and step time.

`in_program` starts the program and waits for the answer; `work` is called in a process forked from the program's.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from pipefix.caches.layout import CONTAINERS
from pipefix.plan import planfile
from pipefix.programs.launch import Ended, command_line, launch
from pipefix.programs.script import is_program, trains_when_imported
from pipefix.report.runfile import Run
from pipefix.stores.store import is_store
from pipefix.vocabulary import amounts, files
from pipefix.vocabulary.commands import as_measured, on_target, undone_by
from pipefix.vocabulary.commands import command as written
from pipefix.vocabulary.errors import Interrupted, NothingToProbe, PipefixError, TargetError

_MODULE = "pipefix.api.in_program"
_FILES = {"forecast": "convert"}
"""Verbs that do not lie in a module of their own name."""
_ON_LOADERS = ("fix", "probe", "tune")
"""Verbs that want a loader with its settings and a step; the others want its dataset."""
LONGER, LATEST = 2.0, 60.0
"""A probe may take so many times its budget, and seconds more, before it is ended: the program waits for it."""
TOO_SHORT = "ten steps and a second, first batches of epochs left out"
"""After which the work would have begun."""
_LOOK = 0.2
"""Seconds between two looks at how far the work is."""


class Job:
    """What is to be done inside a program; it lies in a folder of its own, which nobody else can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file, self.answer, self.progress = folder / "job.json", folder / "answer", folder / "progress"
        self._plan: Path | None = None
        """Of a fix: where what it keeps is written."""

    def write(self, verb: str, options: dict[str, Any], *, ends: bool, program: Sequence[str] = ()) -> None:
        """``ends``: the program is ended when the work is done; ``program``: what the user runs it as."""
        (self.folder / "options").write_bytes(pickle.dumps(options))
        self._plan = options["out"] / planfile.NAME if verb == "fix" and not options.get("dry_run") else None
        budget = amounts.taken("budget", options.get("budget", 60.0), amounts.seconds)
        job = {
            "module": _MODULE, "verb": verb, "folder": str(self.folder), "answer": str(self.answer), "ends": ends,
            "program": list(program), "patience": LONGER * budget + LATEST if verb == "probe" else 24 * 3600.0,
        }  # fmt: skip
        self.file.write_text(json.dumps(job), encoding="utf-8")

    def answered(self, ended: Ended, command: Sequence[str]) -> Any:
        """What the verb returned in the program, or raised there."""
        if self.answer.exists():
            kind, value = pickle.loads(self.answer.read_bytes())
            if kind == "raised":
                raise value
            return value
        if ended.interrupted:
            if self._plan is not None and self._plan.exists():
                problem = f"Interrupted, and the program was ended, too. {self._plan} holds the steps that were kept."
                back = f"{undone_by(self._plan.parent)} takes the last step back."
                raise Interrupted(problem, advice=f"The same command goes on from there; {back}")
            raise Interrupted("Interrupted before there was anything to report: the program was ended, too.")
        log, watching = self.folder / "job.json.log", written("pipefix", "run", *command)
        text = log.read_text(encoding="utf-8", errors="replace") or None if log.exists() else None
        if self.file.with_name(f"{self.file.name}.taken").exists():
            problem = "The program's training loop was reached, but what was to be done with its loader there was not done."
            raise TargetError(problem, advice=f"The program itself can be watched with: {watching}", user_traceback=text)
        if self.file.with_name(f"{self.file.name}.left").exists():
            problem = "This is done in rank 0 alone, and this command started other ranks."
            raise TargetError(problem, advice=f"What these do is told by: {watching}", user_traceback=text)
        code = ended.exit_code or 0
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        problem = f"The program ended ({how}) before a training loop over a DataLoader had taken {TOO_SHORT}."
        what = "Let it train for longer, by more epochs or more data; arguments of the program follow --."
        if code > 0:
            what = "It failed; what it printed itself, above this, says why."
            if Path(command[0]).with_name("__init__.py").exists():
                what += " A file of a package is given as its module: -m PACKAGE.MODULE."
        raise TargetError(problem, advice=f"{what} What it does is told by: {watching}", user_traceback=text)


@contextmanager
def job() -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="pipefix-job-", ignore_cleanup_errors=True) as folder:
        yield Job(Path(folder))


def in_program(verb: str, command: Sequence[str], *, progress: Callable[[str, float], None] | None = None, **options: Any) -> Any:
    """Run a program to its first warm training loop, use a verb on that loop's loader there, and end the program.

    ``command``: the program as `run_program` takes it; ``options``: what the verb takes besides its target, of which ``step_ms`` is
    the program's own where it is not given. Returns what the verb does.
    """
    words = command_line(command)
    with job() as inner_job, told(inner_job, progress):
        inner_job.write(verb, _given(options, verb), ends=True, program=command)
        ended = launch(words, inner_job.folder, job=inner_job.file)
        answer = inner_job.answered(ended, command)
    if isinstance(answer, Run):
        return with_commands(answer, command)
    return answer.seen_from(Path.cwd()) if hasattr(answer, "seen_from") else answer


def imported_or_run(
    verb: Callable[..., Any], target: Any, *, progress: Callable[[str, float], None] | None = None, **options: Any
) -> Any:
    """Use a verb on a target; on the loader of its training loop where the target is a program.

    A Python file is one if importing it would train, or if it hands over no dataset and its ``if __name__ == "__main__"`` says what
    to do when it is run. ``options``: what the verb takes besides its target. Returns what the verb does.
    """
    path = Path(str(target)).expanduser()
    in_file = path.suffix == ".py" and path.is_file()
    why = "trains when it is imported" if in_file and trains_when_imported(path) else ""
    if not why:
        refuse_program(target)  # FILE.py:name, of which no program is run
        try:
            return verb(target, progress=progress, **options)
        except TargetError as error:
            if not (in_file and isinstance(error, NothingToProbe) and is_program(path)):
                raise
            why = "hands over no dataset when it is imported"
    if progress is not None:
        progress(f"{target} {why}, so it is run to its training loop; arguments for it follow --", 0.0)
    return in_program(verb.__name__, [str(target)], progress=progress, **options)


def refuse_program(target: Any) -> None:
    """Raise `TargetError` where importing the target's file would train, and no program is run in its place."""
    file, colon, _ = str(target if isinstance(target, (str, Path)) else "").partition(".py:")
    path = Path(f"{file}.py" if colon else file).expanduser()
    if path.suffix == ".py" and path.is_file() and trains_when_imported(path):
        raise TargetError(
            f"{path} trains when it is imported: loading its dataset would run the training.",
            advice="Put what trains under if __name__ == '__main__':, or have the program run to its training loop: "
            + written("pipefix", "probe", str(path)),
        )


def _given(options: dict[str, Any], verb: str) -> dict[str, Any]:
    """As the program can take them, which may work in another folder, and in which nobody can be asked."""
    chosen = {name: value for name, value in options.items() if value is not None and name != "ask"}
    if verb == "fix":
        chosen.setdefault("out", Path())
    if verb in ("convert", "forecast") and (container := CONTAINERS.get(chosen.get("to", "lmdb"))):
        chosen.setdefault("out", Path(f"cache-{chosen.get('store') or container.stores[0]}"))
    if isinstance(chosen.get("out"), str) and not is_store(chosen["out"]):
        chosen["out"] = Path(chosen["out"])
    if Path(chosen.get("tokenizer", "")).is_file():
        chosen["tokenizer"] = str(Path(chosen["tokenizer"]).absolute())
    return {name: value.absolute() if isinstance(value, Path) else value for name, value in chosen.items()}


@contextmanager
def told(job: Job, progress: Callable[[str, float], None] | None) -> Iterator[None]:
    """Meanwhile ``progress`` is told what the work in the program says."""
    if progress is None:
        yield
        return
    progress("running the program to its training loop", 0.0)
    over = threading.Event()

    def look() -> None:
        latest = ""
        while not over.wait(_LOOK):
            said = job.progress.read_text(encoding="utf-8") if job.progress.exists() else ""
            phase, _, share = said.rpartition("\t")
            if said != latest and phase:
                progress(phase, float(share))
            latest = said

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def with_commands(run: Run, command: Sequence[str]) -> Run:
    """A loader inside a program has no name of its own: remedies are applied through the program."""
    named = 2 if command[0] == "-m" else 1
    given = [word for name, value in run.given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    program = [*command[:named], *given, "--", *command[named:]]
    typed = on_target("tune", run.target, **as_measured(run.target, run.consumer, run.given))
    tunes = (typed, written("pipefix", "tune", *program))
    remedies = []
    for remedy in run.remedies:
        suggested = remedy.command
        if suggested and suggested.startswith(("pipefix convert ", "pipefix swap ")):
            suggested = written("pipefix", "fix", "--only", remedy.id, *program)
        remedies.append(msgspec.structs.replace(remedy, command=suggested and suggested.replace(*tunes)))
    return msgspec.structs.replace(run, remedies=remedies)


# -- in the program ----------------------------------------------------------------------------------------------------------


def work(loader: Any, place: str, step: tuple[float, float | None], job: dict[str, Any]) -> None:
    """Use the verb on ``loader``. ``step``: seconds of the steps that its loop takes, and of those in which the CPU is busy."""
    import torch

    from pipefix.subject.load import load

    torch.set_num_threads(1)  # threads that torch had are not in a forked process, and to wait for them is for ever
    own_job, told_at = Job(Path(job["folder"])), [0.0]

    def progress(phase: str, share: float) -> None:
        if time.monotonic() - told_at[0] > _LOOK:
            told_at[0] = time.monotonic()
            files.write_whole(own_job.progress, f"{phase}\t{share}".encode(), durable=False)

    options = pickle.loads((own_job.folder / "options").read_bytes())
    settings, launch_seconds = {}, None
    if job["verb"] in _ON_LOADERS:
        if options.get("step_ms") is None and options.get("target_rate") is None:
            step_seconds, launch_seconds = step
            options["step_ms"] = max(1e-3, round(step_seconds * 1e3, 3))
        settings = {name: options.pop(name) for name in ("batch_size", "workers") if name in options}
    try:
        loaded, program = load(loader, **settings), tuple(job["program"])
        subject = dataclasses.replace(loaded, target=place, program=program, launch_seconds=launch_seconds)
        verb = getattr(import_module(f"pipefix.api.{_FILES.get(job['verb'], job['verb'])}"), job["verb"])
        answer = ("returned", verb(subject, progress=progress, **options))
    except PipefixError as error:
        answer = ("raised", error)
    files.write_whole(own_job.answer, pickle.dumps(answer), durable=False)
