"""Experiments inside a program that trains, which goes on as if nothing had happened; and plans put in place without an edit."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils import signal_handling

from pipefix.api import in_program
from pipefix.api.fix import FixReport
from pipefix.api.run import _in_words_of_run, _probed_elsewhere, _with_probe
from pipefix.caches import publish
from pipefix.diagnosis.sentences import SEE_IT
from pipefix.fixes.outcome import Fixed
from pipefix.plan import planfile
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.programs.launch import Ended
from pipefix.programs.observing.inside import ELSEWHERE, SECONDS, STEPS, Inside, _forget_fork_server, _renewed, end_program
from pipefix.programs.observing.observer import Observer
from pipefix.report import fix_report, runfile, terminal
from pipefix.report.card import card
from pipefix.report.program_figures import LoopFigures, ProgramFigures
from pipefix.report.program_report import NOT_PROBED
from pipefix.report.runfile import Caveat, RemedyFigures, Run, StageFigures, Verdict
from pipefix.subject import load as subject_load
from pipefix.subject.failure import exits_as_target_error
from pipefix.subject.importing import from_file
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import Interrupted, TargetError
from tests.programs.conftest import Place

TRAINS = """\
import random, sys, time
import numpy, torch
from torch.utils.data import DataLoader, Dataset

class Drawn(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index):
        noise = random.random() + numpy.random.rand() + torch.rand(()).item()
        return torch.full((4,), index + noise)

if __name__ == "__main__":
    torch.manual_seed(3); random.seed(3); numpy.random.seed(3)
    workers, epochs = int(sys.argv[1]), int(sys.argv[2])
    loader = DataLoader(Drawn(), batch_size=3, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            if epochs > 1: time.sleep(0.06)
            print(loss.item().hex(), random.random().hex(), numpy.random.rand().hex(), flush=True)
    print(type(loader).__name__)
"""
MADE_AT = f"train.py:{TRAINS[: TRAINS.index('loader = ')].count(chr(10)) + 1}"


def test_a_parent_of_the_process_that_trains_is_ended_without_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ``torch.multiprocessing.spawn`` printed a traceback of KeyboardInterrupt after each fix of such a program."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, frames: told.append(kind))
    with in_program.job() as job:
        job.write("probe", {}, ends=True)
        Observer(str(tmp_path), {"job": str(job.file)})
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    end_program(str(tmp_path))
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    sys.excepthook(ValueError, ValueError(), None)
    assert told == [KeyboardInterrupt, ValueError], "the first one was the user's own Ctrl-C"


def test_a_program_that_does_not_train_is_told(light: Place) -> None:
    light.write("print('nothing here')")
    done = light.verb("probe", "train.py", "--", "--lr", "1")
    assert done.returncode != 0
    assert "pipefix run train.py --lr 1" in done.stderr or "cannot be imported" in done.stderr


@pytest.mark.parametrize("exits", ["when it is imported", "in a sample"])
def test_a_file_that_exits_is_run_as_a_program_if_that_was_its_import(
    exits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that called sys.exit() had the whole training begun."""
    file = tmp_path / "exits.py"
    file.write_text(f"{'raise SystemExit' if 'import' in exits else ''}\nif __name__ == '__main__':\n    pass\n")

    def probe(target: Any, **_: Any) -> None:
        from_file(Path(target))
        with exits_as_target_error("dataset[0]"):
            raise SystemExit

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(in_program, "in_program", lambda *_, **__: "run")
    with nullcontext() if "import" in exits else pytest.raises(TargetError, match=r"dataset\[0\] raised SystemExit"):
        assert in_program.imported_or_run(probe, str(file)) == "run"


def test_a_name_in_a_file_that_trains_is_not_taken_by_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file alone is run to its training loop; with a name behind it, it was imported, and trained to its end first."""
    file = tmp_path / "train.py"
    file.write_text("loader = []\nfor loss in loader:\n    loss.backward()\n")
    monkeypatch.setattr(in_program, "in_program", lambda *_, **__: "run")
    assert in_program.imported_or_run(lambda *_, **__: "imported", str(file)) == "run"
    with pytest.raises(TargetError, match="trains when it is imported"):
        in_program.imported_or_run(lambda *_, **__: "imported", f"{file}:loader")


def planned(place: Place, target: str, **parts: Any) -> str:
    planfile.write(PlanFile(target=target, **parts), place.folder / "pipefix.plan.toml")
    return "pipefix.plan.toml"


def test_a_plan_for_something_else_is_refused(light: Place) -> None:
    light.write("print('end')")
    ran = light.run(options=["--plan", planned(light, "data.py:loader", loader=LoaderChange(num_workers=1))])
    assert (ran.code, ran.out) == (2, "")
    assert "was made for data.py:loader, not for a loader of a program" in ran.err


class TestWhenItIsDone:
    @pytest.fixture
    def waiting(self, tmp_path: Path) -> Inside:
        job = in_program.Job(tmp_path)
        job.write("probe", {}, ends=True)
        return Inside(str(job.file))

    def test_a_loop_is_warm_after_steps_and_seconds(self, waiting: Inside) -> None:
        assert not waiting.due(STEPS - 1, 2 * SECONDS)
        assert not waiting.due(STEPS, 0.5 * SECONDS)
        assert waiting.due(STEPS, SECONDS), "whether it stepped or waited"

    @pytest.mark.parametrize("told", ["by the launcher", "by torch"])
    def test_other_ranks_leave_it_to_the_first(
        self, told: str, waiting: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Under srun each rank was probed, all at once; and the command of another rank said to train for longer."""
        monkeypatch.delenv("RANK", raising=False)
        if told == "by the launcher":
            monkeypatch.setenv("RANK", "1")
        else:
            group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1)
            monkeypatch.setitem(sys.modules, "torch.distributed", group)
        assert not waiting.claim()
        with pytest.raises(TargetError, match="done in rank 0 alone, and this command started other ranks"):
            in_program.Job(tmp_path).answered(Ended(0, 9.0), ["train.py"])
        monkeypatch.setenv("RANK", "0")
        assert waiting.claim()
        assert not waiting.claim(), "another one of that rank"


class Kept(DataLoader[Any]):
    """Hands out from an iterator that it keeps, as ultralytics' loader does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept = super().__iter__()

    def __iter__(self) -> Any:
        yield from self.kept


class Placed(Kept):
    """Its iterators begin at a place that the loader knows, as those of torchdata's StatefulDataLoader do."""

    def _get_iterator(self) -> Any:
        made = super()._get_iterator()
        made.__class__ = type("Begun", (type(made),), {"__init__": lambda self, loader, place: None})
        return made


@pytest.mark.parametrize("kind", [Kept, Placed])
def test_an_iterator_that_a_loader_keeps_is_left_to_the_program(kind: Any) -> None:
    loader = kind(TensorDataset(torch.arange(8)), batch_size=2, num_workers=1)
    theirs = loader.kept._workers[0].pid
    fresh, before = _renewed([(loader.kept, loader)])
    try:
        assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert loader.kept._workers[0].pid != theirs
        assert before["_workers"][0].is_alive()
    finally:
        before["_workers"][0].terminate()
        vars(fresh)["_shutdown"] = True  # its workers are the other's by now
        signal_handling._remove_worker_pids(id(fresh))  # or an iterator that is made at the same address is refused
    plain = DataLoader(TensorDataset(torch.arange(4)), batch_size=2)
    assert _renewed([(iter(plain), plain)]) == []


class TestLoadersThatTheProgramLetGoOf:
    """``for batch in DataLoader(...)``: only the iterator is the program's."""

    def begun(self, folder: Path, job: Path | None = None, **settings: Any) -> tuple[Observer, Any, Callable[[], Any]]:
        observer = Observer(str(folder), {} if job is None else {"job": str(job)})
        loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2, **settings)
        iterator = iter(DataLoader(loader.dataset, batch_size=2))  # stands for its own
        observer.began(loader, iterator, 0.0)
        return observer, iterator, weakref.ref(loader)

    def test_they_live_as_long_as_their_iterator(self, tmp_path: Path) -> None:
        observer, iterator, loader = self.begun(tmp_path)
        assert observer.epochs[iterator].loader() is loader() is not None
        del iterator
        assert loader() is None

    def test_one_that_keeps_its_workers_ends_them_as_ever(self, tmp_path: Path) -> None:
        persistent = self.begun(tmp_path, num_workers=1, persistent_workers=True)
        assert persistent[2]() is None

    def test_it_is_kept_until_it_was_worked_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job = in_program.Job(tmp_path)
        job.write("probe", {}, ends=True)
        observer, iterator, loader = self.begun(tmp_path, job.file, num_workers=1, persistent_workers=True)
        assert loader() is not None
        assert observer.inside is not None
        given = []
        monkeypatch.setattr(observer.inside, "do", lambda loader, *_: given.append(type(loader)))
        observer.epochs[iterator].loop.durations.append(0.1)
        observer._work_inside(observer.inside, observer.epochs[iterator])
        assert given == [DataLoader]
        assert loader() is None
        assert (tmp_path / ".pipefix-enough").exists()

    def test_a_process_that_leaves_it_to_another_ends_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of ranks that no launcher told theirs, all are warm at once: the second ended the program while the first was at work."""
        job = in_program.Job(tmp_path)
        job.write("probe", {}, ends=True)
        (tmp_path / "job.json.taken").touch()
        observer, iterator, loader = self.begun(tmp_path, job.file, num_workers=1, persistent_workers=True)
        assert observer.inside is not None
        observer._work_inside(observer.inside, observer.epochs[iterator])
        assert not (tmp_path / ".pipefix-enough").exists()
        assert (observer.inside, loader()) == (None, None)


def test_a_process_of_the_program_starts_a_fork_server_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = forkserver.ForkServer()
    theirs._forkserver_pid, theirs._preload_modules = 1, ["__main__", "torch"]
    monkeypatch.setattr(forkserver, "_forkserver", theirs)
    _forget_fork_server()
    assert (theirs._forkserver_pid, theirs._forkserver_alive_fd) == (None, None)
    assert theirs._preload_modules == ["__main__", "torch"]


def test_in_a_thread_nothing_is_begun(tmp_path: Path) -> None:
    """Signals are heard in the main thread alone, and the program's handlers would wait for the probe."""
    (tmp_path / "job.json").write_text(json.dumps({"answer": str(tmp_path / "answer"), "patience": 1}))
    inside = Inside(str(tmp_path / "job.json"))
    with ThreadPoolExecutor(1) as other:
        told = other.submit(inside.do, None, "train.py:1", (0.1, 0.1), []).result()
    assert told is not None and told.startswith(f"{NOT_PROBED} batches are taken in a thread")


@pytest.mark.parametrize(("code", "advice"), [(0, "Let it train"), (1, "It failed; what it printed"), (-9, "Let it train")])
def test_a_program_that_failed_is_not_told_to_train_for_longer(code: int, advice: str, tmp_path: Path) -> None:
    """As one of a package that was named by its file: its relative import raised."""
    (tmp_path / "__init__.py").touch()
    with pytest.raises(TargetError) as raised:
        in_program.Job(tmp_path).answered(Ended(code, 1.0), [f"{tmp_path}/train.py"])
    assert raised.value.advice is not None and raised.value.advice.startswith(advice)
    assert ("-m PACKAGE.MODULE" in raised.value.advice) is (code == 1)


def test_what_could_not_be_done_in_the_program_is_told(tmp_path: Path) -> None:
    job = in_program.Job(tmp_path)
    with pytest.raises(TargetError, match="before a training loop"):
        job.answered(Ended(0, 1.0), ["train.py"])
    run = _with_probe(Run(program=ProgramFigures(command=["train.py"], exit_code=0, seconds=1.0)), job, Ended(0, 1.0), ["train.py"])
    assert run.program is not None
    (error,) = run.program.errors
    assert error.startswith(NOT_PROBED)
    assert error.endswith("first batches of epochs left out."), "that no loop was seen is told beside"
    known = (0, "train.py:3", "epochs or more data."), (1, "train.py:3", "left out."), (0, "", "none to probe.")
    for code, loader, said in known:
        loops = [LoopFigures(loader=loader, role="training", steps=5)]
        short = Run(program=ProgramFigures(command=["train.py"], exit_code=code, seconds=1.0, loops=loops))
        run = _with_probe(short, job, Ended(code, 1.0), ["train.py"])
        assert run.program is not None and run.program.errors[0].endswith(said)
    limited = Run(program=ProgramFigures(command=["train.py"], exit_code=-2, seconds=1.0, at_limit=True))
    run = _with_probe(limited, job, Ended(-2, 1.0, at_limit=True), ["train.py"])
    assert run.program is not None
    assert run.program.errors[0].endswith("--seconds or --steps ended it before that: give it more of them.")
    for role, steps, advice in (("unknown", 50, "pipefix probe FILE.py:NAME"), ("training", 12, "make the iterator once")):
        loop = LoopFigures(loader="train.py:3", role=role, steps=steps, first_batch_s=[0.1] * 12)
        program = ProgramFigures(command=["train.py"], exit_code=0, seconds=1.0, loops=[loop])
        run = _with_probe(Run(program=program), job, Ended(0, 1.0), ["train.py"])
        assert run.program is not None
        assert advice in run.program.errors[0]
        assert "more epochs" not in run.program.errors[0]
    for verb in ("probe", "fix"):
        job.write(verb, {"out": tmp_path}, ends=True)
        with pytest.raises(Interrupted, match="before there was anything to report"):
            job.answered(Ended(-2, 1.0, interrupted=True), ["train.py"])
    (tmp_path / "pipefix.plan.toml").touch()
    with pytest.raises(Interrupted, match=r"pipefix\.plan\.toml holds the steps that were kept") as held:
        job.answered(Ended(-2, 1.0, interrupted=True), ["train.py"])
    assert f"pipefix fix --undo --out {tmp_path} takes" in held.value.advice
    (tmp_path / "job.json.taken").touch()
    (tmp_path / "job.json.log").write_text("frames")
    with pytest.raises(TargetError, match="was reached, but what was to be done") as told:
        job.answered(Ended(0, 1.0), ["train.py"])
    assert told.value.user_traceback == "frames"


ASKED = """\
    import json, os, signal, sys, threading, types
    os.mkfifo("begun")
    sys.modules["torch.utils.data.dataloader"] = types.SimpleNamespace(DataLoader=object)
    from pipefix.programs.observing.inside import Inside
    job = {"module": "long", "answer": "answer", "patience": 60, "ends": False}
    json.dump(job, open("job.json", "w"))
    inside = Inside(os.path.abspath("job.json"))
"""
LONG = """\
    import signal
    def work(loader, place, step, job):
        try:
            open("begun", "w").close()
            signal.pause()
        except KeyboardInterrupt:
            open(job["answer"], "w").close()
"""


CLOCKS = Verdict(kind="input-bound", stage=None, sentence="Input-bound: it waits.", confidence=1.0)


def with_probe(folder: Path, probed: Run, *, interrupted: bool = False) -> Run:
    """What is told of a program of which the clocks say `CLOCKS`, and the probe in it ``probed``."""
    job = in_program.Job(folder)
    job.answer.write_bytes(pickle.dumps(("returned", probed)))
    run = Run(program=ProgramFigures(command=["train.py"], exit_code=0, seconds=1.0), verdict=CLOCKS)
    return _with_probe(run, job, Ended(0, 1.0, interrupted=interrupted), ["train.py"])


def test_a_probe_that_was_made_is_not_told_as_one_that_was_not(tmp_path: Path) -> None:
    """Ranks on other machines cannot make it."""
    job = in_program.Job(tmp_path)
    job.answer.write_bytes(pickle.dumps(("returned", Run(target="train.py:7"))))
    program = ProgramFigures(command=["train.py"], exit_code=0, seconds=1.0, errors=[ELSEWHERE, "another"])
    told = _with_probe(Run(program=program), job, Ended(0, 1.0), ["train.py"]).program
    assert told is not None
    assert told.errors == ["another"]


def test_experiments_that_another_node_wrote_are_kept(tmp_path: Path) -> None:
    """A node without the first rank, whose command ended later, wrote its figures over them."""
    runfile.write(Run(target="train.py:7", stages=[StageFigures(stage="decode")]), tmp_path / "run.json")
    program = ProgramFigures(command=["train.py"], exit_code=0, seconds=2.0, errors=[f"{NOT_PROBED} it was too short.", "another"])
    told = _probed_elsewhere(Run(program=program), tmp_path / "run.json")
    assert told.program is not None
    assert (told.target, told.program.seconds, told.program.errors) == ("train.py:7", 2.0, ["another"])
    own = Run(program=program, stages=[StageFigures(stage="step")])
    assert _probed_elsewhere(own, tmp_path / "run.json") is own
    assert _probed_elsewhere(Run(program=program), tmp_path / "none.json").program is program


def test_of_a_probe_that_was_interrupted_at_once_the_clocks_say_what_they_know(tmp_path: Path) -> None:
    nothing = Verdict(kind="inconclusive", stage=None, sentence="Nothing was measured.", confidence=0.0)
    told = with_probe(tmp_path, Run(partial=True, verdict=nothing), interrupted=True)
    assert told.verdict == CLOCKS
    assert told.program is not None
    assert "interrupted before the first block" in told.program.errors[0]


def test_what_asks_for_a_longer_probe_names_the_option_of_run(tmp_path: Path) -> None:
    asks = Verdict(kind="inconclusive", stage=None, sentence="Too close. More blocks would settle it: --budget 75.", confidence=0.0)
    caveats = [Caveat(id="inconclusive", sentence="A longer run would narrow the intervals: --budget 75.")]
    told = with_probe(tmp_path, Run(verdict=asks, caveats=caveats, target="train.py:4", stages=[StageFigures(stage="decode")]))
    assert told.verdict is not None
    assert told.verdict.sentence.endswith("settle it: --probe=75.")
    assert told.caveats[0].sentence.endswith("--probe=75.")
    assert card(told).command == "pipefix run --probe=75 train.py"


def test_what_is_proposed_of_a_module_is_a_command_that_is_understood() -> None:
    convert = RemedyFigures(
        id="cache-sample", stage="decode", title="Cache.", status="proposed", why="", command="pipefix convert data.py:4 --to lmdb"
    )
    (told,) = in_program.with_commands(Run(remedies=[convert], target="data.py:4"), ["-m", "proj.train", "--epochs", "2"]).remedies
    assert told.command == "pipefix fix --only cache-sample -m proj.train -- --epochs 2"
    tune = replace(convert, command="pipefix tune data.py:4 --workers 2")
    probed = Run(remedies=[tune], target="data.py:4", given={"workers": 2})
    (told,) = in_program.with_commands(probed, ["train.py", "--epochs", "2"]).remedies
    assert told.command == "pipefix tune train.py --workers 2 -- --epochs 2", "of the loader as it was probed"


class TestSignalsToTheProgram:
    """While it waits for the process that was forked from it."""

    def said(self, light: Place, text: str) -> str:
        light.write(LONG, "long.py")
        light.write(ASKED + text)
        alone = light.alone(start_new_session=True)
        assert not alone.code, alone.err
        return alone.out

    def test_its_handler_is_called_once_and_what_it_asks_for_comes_soon(self, light: Place) -> None:
        text = """\
    def handle(*_): open("handled", "a").write("by the program\\n" if os.getpid() == here else "by the other")
    def send():
        open("begun").read()
        os.killpg(0, signal.SIGTERM)
    here = os.getpid()
    signal.signal(signal.SIGTERM, handle)
    threading.Thread(target=send).start()
    print(inside.do(None, "train.py:3", (0.1, 0.1), []))
    print(open("handled").read())
"""
        assert self.said(light, text) == "None\nby the program\n\n"

    def test_one_that_falls_into_the_fork_is_not_lost(self, light: Place) -> None:
        text = """\
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        inside.do(None, "train.py:3", (0.1, 0.1), [])
    except KeyboardInterrupt:
        print("interrupted")
"""
        assert self.said(light, text) == "interrupted\n"

    def test_one_that_ignores_how_its_children_end_is_told_none(self, light: Place) -> None:
        light.write("def work(loader, place, step, job): open(job['answer'], 'w').close()", "long.py")
        light.write(ASKED + "    signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    print(inside.do(None, '', (0.1, 0.1), []))\n")
        ran = light.alone()
        assert (ran.out, ran.err) == ("None\n", "")


def test_a_program_that_is_killed_leaves_no_probe_behind(light: Place) -> None:
    """The probe went on for its whole budget, with the memory and the cores of what was killed."""
    light.write(LONG, "long.py")
    light.write(
        ASKED
        + """\
    def kill():
        open("begun").read()
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=kill).start()
    inside.do(None, "train.py:3", (0.1, 0.1), [])
"""
    )
    held, holds = os.pipe()
    done = subprocess.run([sys.executable, "train.py"], cwd=light.folder, env=light.environment, start_new_session=True,
                          pass_fds=[holds], timeout=100)  # fmt: skip
    os.close(holds)
    assert done.returncode == -signal.SIGKILL
    assert select.select([held], [], [], 60)[0], "a process holds the other end of the pipe"
    os.close(held)


class TestWork:
    def done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Any, **options: Any) -> Any:
        monkeypatch.setattr("pipefix.api.probe.probe", verb)
        job = in_program.Job(tmp_path)
        job.write("probe", options, ends=True, program=["train.py", "--epochs", "3"])
        threads = torch.get_num_threads()
        in_program.work(
            DataLoader(TensorDataset(torch.ones(8)), batch_size=2),
            "train.py:3",
            (0.0123456, 0.002),
            json.loads(job.file.read_text()),
        )
        torch.set_num_threads(threads)
        return job.answered(Ended(0, 1.0), ["train.py"])

    def test_the_verb_gets_the_loader_and_the_programs_own_step(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def probe(subject: Subject, **options: Any) -> Any:
            options.pop("progress")("measuring", 0.5)
            return subject.target, subject.settings.batch_size, subject.launch_seconds, options

        assert self.done(tmp_path, monkeypatch, probe, budget=3.0) == ("train.py:3", 2, 0.002, {"budget": 3.0, "step_ms": 12.346})
        assert self.done(tmp_path, monkeypatch, probe, batch_size=4, step_ms=5.0) == ("train.py:3", 4, None, {"step_ms": 5.0})
        assert in_program.Job(tmp_path).progress.read_text() == "measuring\t0.5"

    def test_a_cache_for_a_store_is_made_where_the_command_was_typed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hydra gives a program a new directory for each run: there no conversion that was interrupted was gone on with."""
        monkeypatch.setattr(publish, "home", publish.home)
        typed_in = Path.cwd()

        def load(loader: Any, **settings: Any) -> Subject:
            monkeypatch.chdir(tmp_path)
            return real(loader, **settings)

        real = subject_load.load
        monkeypatch.setattr(subject_load, "load", load)
        made_in = self.done(tmp_path, monkeypatch, lambda *_, **__: publish.staging_of("file:///bucket/cache").parent)
        assert made_in == typed_in != Path.cwd()

    def test_what_is_fixed_says_how_the_users_program_uses_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It said ``pipefix run --plan pipefix.plan.toml PROGRAM``."""

        def probe(subject: Subject, **_: Any) -> Any:
            return Fixed(target=subject.target, program=list(subject.program), folder=".", plan="pipefix.plan.toml")

        fixed = self.done(tmp_path, monkeypatch, probe)
        assert "pipefix run --plan pipefix.plan.toml train.py --epochs 3" in "\n".join(terminal.lines(fix_report.report(fixed)))

    def test_its_error_is_raised_where_it_was_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def probe(subject: Subject, **options: Any) -> Any:
            raise TargetError("dataset[3] raised KeyError", advice="Mend it.", user_traceback="frames")

        with pytest.raises(TargetError, match="KeyError") as told:
            self.done(tmp_path, monkeypatch, probe)
        assert (told.value.advice, told.value.user_traceback) == ("Mend it.", "frames")

    def test_options_reach_it_whole(self, tmp_path: Path) -> None:
        given = in_program._given({"write": Path("plan.toml"), "seed": 0, "trace": None}, "probe")
        assert given == {"write": Path("plan.toml").absolute(), "seed": 0}
        assert pickle.loads(pickle.dumps(given)) == given

    @pytest.mark.parametrize(
        ("verb", "options", "out"),
        [
            ("fix", {}, Path.cwd()),
            ("fix", {"out": "fixed"}, Path("fixed").absolute()),
            ("convert", {"to": "lmdb"}, Path("cache-source").absolute()),
            ("convert", {"to": "lmdb", "store": "sample"}, Path("cache-sample").absolute()),
            ("forecast", {"to": "parquet"}, Path("cache-rows").absolute()),
            ("convert", {"out": "s3://bucket/cache"}, "s3://bucket/cache"),
        ],
    )
    def test_what_is_made_lies_where_the_command_was_typed(self, verb: str, options: dict[str, Any], out: Any) -> None:
        """A program that changes its directory (Hydra) took it there, and the report named it as if it were here."""
        assert in_program._given(options, verb)["out"] == out

    def test_a_tokenizer_is_looked_for_where_the_command_was_typed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a program that changes its directory there was no such file; a model's name stays as it is."""
        monkeypatch.chdir(tmp_path)
        Path("mine.json").write_text("{}")
        given = [in_program._given({"to": "parquet", "tokenizer": name}, "convert")["tokenizer"] for name in ("mine.json", "gpt2")]
        assert given == [str(tmp_path / "mine.json"), "gpt2"]

    @pytest.mark.parametrize(
        ("out", "told"),
        [(".", (".", "pipefix.plan.toml", "pipefix.fix.html")), ("a/b", ("a/b", "a/b/pipefix.plan.toml", "a/b/pipefix.fix.html"))],
    )
    def test_a_report_names_what_is_below_as_one_would_type_it(self, tmp_path: Path, out: str, told: tuple[str, str, str]) -> None:
        folder = (tmp_path / out).resolve()
        fixed = Fixed(target="the loader", folder=str(folder), plan=str(folder / "pipefix.plan.toml"))
        report = FixReport(fixed, None, None, folder / "pipefix.fix.html")
        seen = report.seen_from(tmp_path)
        assert (seen.fixed.folder, seen.fixed.plan, str(seen.page)) == told
        assert report.seen_from(tmp_path / "elsewhere") == report


def test_a_trace_is_not_asked_of_a_command_that_makes_none() -> None:
    """``pipefix run --probe`` named the option ``--trace``, which only ``pipefix probe`` has."""
    said = Verdict(kind="inconclusive", stage=None, sentence=f"Inconclusive: it is open. {SEE_IT} --budget 75.", confidence=0.0)
    told = _in_words_of_run(Run(verdict=said)).verdict
    assert told is not None and told.sentence.endswith("seen in a trace: pipefix probe --trace FILE. --probe=75.")
