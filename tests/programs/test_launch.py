"""A program that pipefix runs is itself: arguments, streams, signals, exit code, and what else it finds in its process."""

from __future__ import annotations

import ast
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipefix.programs import launch
from pipefix.programs.launch import command_line
from pipefix.vocabulary.errors import BadUsage
from tests.programs.conftest import Place

SHOWS = """\
import os, sys
print(sys.argv, __name__, __file__, os.getcwd())
print([place for place in sys.path], sys.flags, sys.stdin.read())
print({name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
print(sorted(name for name in sys.modules if "pipefix" in name), sys.orig_argv[1:], file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("before", "words", "code"),
    [
        ([sys.executable], ["package/train.py", "--out", "x", "--", "-m", "--help"], 3),
        ([sys.executable], ["-m", "package.train", "-x"], 3),
        ([], [sys.executable, "-X", "utf8", "package/train.py"], 3),
        ([], ["sh", "-c", "exit 5"], 5),
    ],
)
def test_it_finds_what_it_would_find(before: list[str], words: list[str], code: int, light: Place) -> None:
    light.write(SHOWS, "package/train.py")
    ran, alone = light.run(*words, options=["--quiet"], input="text"), light.started([*before, *words], input="text")
    assert (ran.code, ran.out, ran.err) == (alone.returncode, alone.stdout, alone.stderr)
    assert ran.code == code


def test_its_path_has_one_more_entry_in_whatever_folder(light: Place) -> None:
    """A folder that is named by the time of day is no two entries, and a program within a program is looked into once."""
    light.write("import os\nprint(os.environ['PYTHONPATH'])")
    for words in (["train.py"], [*light.command(["train.py"], ["-q", "--out", "inner"])]):
        ran = light.run(*words, options=["-q", "--out", "at 12:30"])
        hook, rest = ran.out.strip().split(os.pathsep, 1)
        assert (ran.code, rest) == (0, light.environment["PYTHONPATH"])
        assert not Path(hook).exists()


def test_what_a_killed_pipefix_left_is_removed(light: Place) -> None:
    light.write("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    assert light.run().code == -signal.SIGKILL
    assert list(light.folder.glob("pipefix-run/pipefix-hook-*"))
    light.write("")
    assert light.run().code == 0
    assert not list(light.folder.glob("pipefix-run/pipefix-hook-*"))


def begun(place: Place) -> subprocess.Popen[bytes]:
    """The program, which says that it is ready and waits for the end of its input."""
    process = subprocess.Popen(
        place.command(["train.py"]), cwd=place.folder, env=place.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_the_folder_of_a_program_that_still_runs_is_left_alone(looping: Callable[..., Place]) -> None:
    place = looping("print('ready', flush=True); sys.stdin.read()")
    with begun(place) as process:
        second = place.run(stdin=subprocess.DEVNULL)
        assert (second.code, second.out) == (2, "")
        assert "another program notes there and still runs" in second.err
        of_a_rank = place.run(stdin=subprocess.DEVNULL, env={"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"})
        assert len(of_a_rank.program.loops) == 2, "of the first, too"
        process.communicate()
    assert len(place.run(stdin=subprocess.DEVNULL).program.loops) == 1


def test_the_folder_of_a_program_that_notes_nothing_yet_is_left_alone(light: Place) -> None:
    """Of several that a shell starts beside each other (a sweep), each told the loops of all as its own."""
    light.write("import sys\nprint('ready', flush=True)\nsys.stdin.read()\n")
    with begun(light) as process:
        second = light.run(stdin=subprocess.DEVNULL)
        assert (second.code, second.out) == (2, "")
        assert "--out pipefix-run: another program notes there and still runs." in second.err
        of_one = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "PMI_RANK": "0", "PMI_SIZE": "1"}
        alone = light.run(stdin=subprocess.DEVNULL, env=of_one)
        assert alone.code == 2, "in a batch script, or under srun --mpi=pmi2 -n1, which have a rank as well"
        step = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
        assert light.run(stdin=subprocess.DEVNULL, env=step).code == 0, "another rank of it"
        process.communicate()
    assert light.run(stdin=subprocess.DEVNULL).code == 0
    assert sorted(path.name for path in (light.folder / "pipefix-run").iterdir()) == ["report.html", "run.json"]


def test_a_python_that_pipefix_does_not_enter_is_told_as_a_reason(looping: Callable[..., Place]) -> None:
    place = looping()
    place.write(f"PYTHONPATH=library {sys.executable} train.py\n", "job.sh")
    ran = place.run("sh", "job.sh")
    assert (ran.code, ran.program.loops) == (0, [])
    assert "a script gives a PYTHONPATH without $PYTHONPATH in it" in " ".join(ran.err.split())


def test_a_program_without_torch_loads_nothing(light: Place) -> None:
    light.write("import sys\nprint(sorted(sys.modules))")
    ran, alone = light.run(), light.alone()
    assert set(ast.literal_eval(ran.out)) - set(ast.literal_eval(alone.out)) <= {"sitecustomize"}
    assert "No loop over a DataLoader" in ran.err


def test_its_own_sitecustomize_is_imported(light: Place) -> None:
    light.write("import sys\n'pipefix' in sys.orig_argv or print('own')", "library/sitecustomize.py")
    light.write("import sitecustomize\nprint(sitecustomize.__file__)")
    assert (ran := light.run(options=["-q"])).out == light.alone().out
    assert ran.out.startswith("own\n")
    light.write("import sys\nif 'pipefix' not in sys.orig_argv: raise KeyError('broken')", "library/sitecustomize.py")
    light.write("print('on')")
    assert light.run(options=["-q"]).err == light.alone().err
    light.write("import sys\nif 'pipefix' not in sys.orig_argv: import nowhere_at_all", "library/sitecustomize.py")
    assert light.run(options=["-q"]).err == light.alone().err


def test_a_finder_of_its_own_that_answers_for_torch_hides_nothing(looping: Callable[..., Place]) -> None:
    """As tracers have it that are put in by a ``sitecustomize``."""
    place = looping()
    place.write(
        """
        import sys
        from importlib.machinery import PathFinder
        class First:
            def find_spec(self, name, path=None, target=None):
                return PathFinder.find_spec(name, path, target) if name.startswith("torch") else None
        sys.meta_path.insert(0, First())
        """,
        "library/sitecustomize.py",
    )
    (loop,) = place.run().program.loops
    assert (loop.loader, loop.role, loop.steps) == ("train.py:3", "training", 20)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_that_ends_it_ends_pipefix(number: int, looping: Callable[..., Place]) -> None:
    ran = looping(f"import os, time; time.sleep(0.1); os.kill(os.getpid(), {int(number)})").run()
    assert ran.code == -number
    assert ran.program.exit_code == -number
    assert ran.program.loops[0].loader == "train.py:3"
    assert "did not come to its end" in ran.err


@pytest.mark.parametrize("to_all", [False, True])  # as timeout, Slurm and systemd send it
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_it_once(number: int, to_all: bool, light: Place) -> None:
    light.write(
        f"""\
        import signal, sys, time
        def handle(number, frame):
            print("heard", number, flush=True)
        def end(*_):
            sys.exit(9)
        signal.signal({int(number)}, handle)
        signal.signal(signal.SIGTERM, end)
        print("ready", flush=True)
        while True: time.sleep(60)
        """
    )
    with subprocess.Popen(
        light.command(["train.py"]), cwd=light.folder, env=light.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        send = os.killpg if to_all else os.kill
        send(process.pid, number)
        assert process.stdout.readline() == f"heard {int(number)}\n".encode()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=80)
        assert (out, process.returncode) == (b"", 9)


class Child:
    """Takes some signals before it ends."""

    pid = 0

    def __init__(self, takes: int) -> None:
        self.takes, self.sent = takes, list[int]()

    def send_signal(self, number: int) -> None:
        self.sent.append(number)

    def wait(self, seconds: float) -> None:
        if len(self.sent) < self.takes:
            raise subprocess.TimeoutExpired("train.py", seconds)


@pytest.mark.parametrize("takes", [1, 2, 3])
@pytest.mark.parametrize("steps", [False, True])
def test_it_is_ended_after_a_time_or_so_many_steps_however_it_takes_that(steps: bool, takes: int, tmp_path: Path) -> None:
    child = Child(takes)
    if steps:
        (tmp_path / launch.ENOUGH).touch()
    over = threading.Event()
    launch._end(child, math.inf if steps else 0.0, tmp_path, over)  # type: ignore[arg-type]
    assert over.is_set()
    assert child.sent == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL][:takes]


def test_what_a_script_started_is_ended_with_it(looping: Callable[..., Place]) -> None:
    """The script ended, and the training that it had started went on when pipefix was through."""
    place = looping(inside="if batch == 3:\n    import signal; signal.pause()\n")
    place.write("import os, subprocess, sys; subprocess.Popen([sys.executable, 'train.py']); os.wait()", "job.py")
    ran = place.run("job.py", options=["--steps", "3"])
    assert (ran.program.at_limit, ran.program.loops[0].steps) == (True, 3)


def test_a_program_that_becomes_another_is_seen_as_both(looping: Callable[..., Place]) -> None:
    place = looping(
        "import os\nif len(sys.argv) == 1: time.sleep(0.6); os.execv(sys.executable, [sys.executable, 'train.py', 'again'])"
    )
    place.write((place.folder / "train.py").read_text().replace("range(1, 21)", "range(1, 21 if len(sys.argv) == 1 else 11)"))
    assert sorted(loop.steps for loop in place.run().program.loops) == [10, 20]


def test_children_without_exec_count_for_themselves(looping: Callable[..., Place]) -> None:
    ran = looping("import os\nif not os.fork():\n    for _ in loader: optimizer.step()\n    sys.exit()\nos.wait()").run()
    assert sorted(loop.steps for loop in ran.program.loops) == [20, 20]


def test_it_goes_on_where_nothing_can_be_noted(looping: Callable[..., Place]) -> None:
    place = looping("print('end')")
    place.write("import shutil\nshutil.rmtree('pipefix-run')\n" + (place.folder / "train.py").read_text())
    ran = place.run(options=["--steps", "3"])
    assert (ran.code, ran.out) == (0, "end\n"), "nor can it be said that its steps are taken"
    assert "run file" in ran.err
    assert "Traceback" not in ran.err


def test_an_error_of_ours_is_told_and_ends_nothing(looping: Callable[..., Place]) -> None:
    place = looping("print('end')")
    place.write("class DataLoader:\n    __slots__ = ()\n", "library/torch/utils/data/dataloader.py")
    place.write("import torch.utils.data, torch.optim.optimizer as o\ndel o.hooks\nprint('end')")
    place.write("hooks = []\nclass Optimizer: pass\n", "library/torch/optim/optimizer.py")
    ran = place.run()
    assert (ran.code, ran.out) == (0, "end\n")
    assert "could not look into a process of the program: AttributeError" in ran.err


def test_standard_error_may_be_closed(looping: Callable[..., Place]) -> None:
    place = looping("import os; os.close(2); print('end')")
    assert place.run().out == "end\n"
    done = place.started(["sh", "-c", " ".join(place.command(["train.py"])) + " 2>&-"])
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_the_terminal_stays_a_terminal(light: Place) -> None:
    light.write("import sys\nprint(*(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)))")
    import pty

    ours, theirs = pty.openpty()
    try:
        subprocess.run(light.command(["train.py"], ["-q"]), cwd=light.folder, env=light.environment, stdin=theirs, stdout=theirs,
                       stderr=theirs, check=True)  # fmt: skip
        assert os.read(ours, 100) == b"True True True\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("words", "message", "advice"),
    [
        ([], "No program was named", "pipefix run train.py"),
        (["gone.py"], r"There is no file gone\.py", "Name a Python file"),
        (["torchrum", "train.py"], "There is no program 'torchrum'", "torchrun"),
        (["job.sh"], r"There is no program 'job\.sh' on the PATH", "pipefix run ./job.sh"),
        (["./job.sh", "3"], r"\./job\.sh is a file that may not be executed", "pipefix run sh ./job.sh 3"),
    ],
)
def test_commands_that_are_none(
    words: list[str], message: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").touch()
    with pytest.raises(BadUsage, match=message) as told:
        command_line(words)
    assert advice in str(told.value.advice)


def test_a_script_that_says_no_interpreter_is_run_as_a_shell_does(light: Place) -> None:
    """The kernel refuses it, and that was told as a bug of pipefix's."""
    light.write("echo it ran $1\nexit 3\n", "job").chmod(0o755)
    ran = light.run("./job", "twice")
    assert (ran.code, ran.out) == (3, "it ran twice\n")


def test_a_program_that_cannot_be_started_is_told(light: Place) -> None:
    light.write("#!/of/nothing\n", "job").chmod(0o755)
    ran = light.run("./job")
    assert (ran.code, ran.out) == (2, "")
    assert "./job could not be started: No such file or directory." in ran.err


def test_the_traceback_of_an_import_of_torch_has_no_frame_of_ours(light: Place) -> None:
    light.write("raise ValueError('of the library')\n", "library/torch/optim/optimizer.py")
    light.write("import torch")
    assert (ran := light.run(options=["-q"])).err == light.alone().err
    assert ran.code == 1


def test_a_program_that_patches_the_loader_itself(looping: Callable[..., Place]) -> None:
    """What it puts over ours stays, and what it puts in the place of the class is a loader like any other."""
    place = looping("print(type(loader).__name__, type(iter(loader)).__name__)")
    text = (place.folder / "train.py").read_text(encoding="utf-8")
    patching = """\
import torch.utils.data
from torch.utils.data import DataLoader

class Mine(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print("made")

begin = DataLoader.__iter__
def again(self):
    print("begun")
    return begin(self)
DataLoader.__iter__ = again
torch.utils.data.DataLoader = Mine
"""
    place.write(patching + text)
    ran, alone = place.run(), place.alone()
    assert (ran.code, ran.out) == (0, alone.out), ran.err
    assert alone.out.startswith("made\nbegun\n")
    assert [(loop.steps, loop.role) for loop in ran.program.loops] == [(20, "training")]


def test_a_class_of_loaders_goes_to_other_machines_as_without_pipefix(light: Place) -> None:
    """submitit, Ray and joblib pickle what the program's own file defines by value, and met the observer's locks."""
    light.write("""\
        import io, pickle
        from types import FunctionType
        from torch.utils.data import DataLoader

        class Own(DataLoader):
            def __init__(self, *args): super().__init__(*args)
            def __iter__(self): return super().__iter__()

        class ByValue(pickle.Pickler):
            def reducer_override(self, value):
                if isinstance(value, FunctionType) and value.__module__ == "__main__":
                    return list, ([value.__name__, [cell.cell_contents for cell in value.__closure__]],)
                return NotImplemented

        held = io.BytesIO()
        ByValue(held).dump([vars(Own)[name] for name in ("__init__", "__iter__")])
        print(pickle.loads(held.getvalue()), [*Own(range(3))])
        """)
    ran, alone = light.run(), light.alone()
    assert (ran.code, ran.out) == (0, alone.out), ran.err
    assert "Own" in alone.out and [loop.steps for loop in ran.program.loops] == [3]


@pytest.mark.parametrize("of", ["the program", "both"])
def test_the_disk_of_out_may_be_full(of: str, looping: Callable[..., Place]) -> None:
    """A limit of 0 bytes a file: every write to one fails, as on a full disk."""
    no_room = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
    place = looping("print('trained'); sys.exit(3)")
    alone = place.alone()
    if of == "both":
        ran = place.run(
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        )
        assert ran.run is None
        assert "run.json" in ran.err
        assert "File too large" in ran.err
    else:
        place.write(no_room + (place.folder / "train.py").read_text(encoding="utf-8"))
        ran = place.run()
        assert ran.program.exit_code == 3
    assert (ran.code, ran.out) == (alone.code, alone.out) == (3, "trained\n")


def test_a_rank_that_is_killed_is_told_by_what_it_had_noted(looping: Callable[..., Place]) -> None:
    place = looping(
        "print('trained')", inside="time.sleep(0.07)\nif os.environ['RANK'] == '1' and batch >= 12: os.kill(os.getpid(), 9)\n"
    )
    starts = """\
import os, subprocess, sys
if "RANK" not in os.environ:
    started = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": rank}) for rank in "01"]
    sys.exit(max(abs(one.wait()) for one in started))
"""
    place.write(starts + (place.folder / "train.py").read_text(encoding="utf-8"))
    ran, alone = place.run(), place.alone()
    assert (ran.code, ran.out) == (alone.code, alone.out) == (9, "trained\n")
    steps = {loop.rank: loop.steps for loop in ran.program.loops}
    assert steps[0] == 20
    assert 5 <= steps[1] <= 12
    assert "A process that did not come to its end counts up to what it had noted by then." in " ".join(ran.err.split())


@pytest.mark.parametrize("before", ["import os; os.environ.clear()", "import os; os.closerange(3, 64)"])
def test_a_program_that_clears_what_it_was_given(before: str, looping: Callable[..., Place]) -> None:
    """Its environment: `import torch` ended with a KeyError. Descriptors, as a daemon closes them: notes went on into the file that
    the program opened next."""
    again = """
        files = [open(f"own{number}.txt", "w+") for number in range(8)]
        for batch in loader: optimizer.step()
        for file in files:
            file.seek(0)
            print(repr(file.read()))
    """
    place = looping(f"\n{before}\n{textwrap.dedent(again)}")
    if "environ" in before:
        text = (place.folder / "train.py").read_text(encoding="utf-8")
        place.write(f"{before}\n{text}")
    ran, alone = place.run(), place.alone()
    assert (ran.code, ran.out) == (alone.code, alone.out) == (0, "''\n" * 8)
    assert sum(loop.steps for loop in ran.program.loops) == 40


def test_what_was_asked_for_outlives_the_environment(looping: Callable[..., Place]) -> None:
    place = looping(inside="if batch == 3:\n    import signal; signal.pause()\n")
    place.write("import os; os.environ.clear()\n" + (place.folder / "train.py").read_text(encoding="utf-8"))
    ran = place.run(options=["--steps", "3"])
    assert (ran.program.at_limit, ran.program.loops[0].steps) == (True, 3)


def test_the_variable_that_switches_run_off_does_not_reach_a_program_that_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pipefix probe train.py -- ...` let it train to its end unseen, and said that it should train for longer."""
    monkeypatch.setenv("PIPEFIX", "0")
    words = [sys.executable, "-c", "import os, sys; sys.exit('PIPEFIX' in os.environ)"]
    assert launch.launch(words, tmp_path).exit_code == 0
