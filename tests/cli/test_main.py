"""Whatever happens, a user gets sentences and an exit code, never a traceback of ours."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipefix.cli import main as entry
from pipefix.subject import naming
from pipefix.vocabulary import errors
from pipefix.vocabulary.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Runs a command whose body is the given function."""

    def go(body: Callable[[], Any]) -> int:
        def prepare(parser: ArgumentParser) -> None:
            parser.add_argument("--flag")

        def run(arguments: Namespace) -> int:
            return int(body() or 0)

        stand_in = SimpleNamespace(__doc__="A stand-in.", prepare_parser=prepare, run=run)
        monkeypatch.setattr(entry, "find", lambda: {"act": stand_in})
        return entry.main(["act"])

    return go


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PipefixError)],
    ids=lambda kind: kind.__name__,
)
def test_our_errors_print_what_and_advice_and_give_their_code(
    kind: type[errors.PipefixError], command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(raising(kind("The value 7 was found."))) == kind.exit_code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"pipefix: The value 7 was found.\n  {kind.default_advice}\n"


OTHERS = [
    (errors.TargetError("data.py raised ValueError.", user_traceback="  data.py, line 3\nValueError: \x1b[31mno\x07\n"), 3,
     "  data.py, line 3\nValueError: \\x1b[31mno\\x07\npipefix: data.py raised ValueError.\n"),
    (KeyboardInterrupt(), 130, "pipefix: Interrupted before there was anything to report.\n  Run the same command again.\n"),
    (MemoryError(), 6, "pipefix ran out of memory.\n  Run it where more memory is free, or allowed: ulimit -v\n"),
    (OSError(errno.ENOSPC, "No space left on device", "job/options"), 4,
     ("pipefix: job/options: No space left on device.\n"
      "  Name a folder with room for temporary files: TMPDIR=DIR pipefix ...\n")),
    (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), 4,
     "pipefix: Temporary files: No usable temporary directory found in ['/tmp'].\n  Name a folder"),
    (PermissionError(errno.EACCES, "Permission denied", "/home/other/run.json"), 4,
     "pipefix: /home/other/run.json: Permission denied.\n  Name another place, or change the rights there"),
    (ModuleNotFoundError("No module named 'torch'", name="torch"), 5,
     ("pipefix: The package 'torch', which pipefix stands on, cannot be imported: No module named 'torch'.\n"
      "  Install pipefix again, which brings it: from a checkout, pip install .\n")),
]  # fmt: skip
"""The user's own frames come first."""


@pytest.mark.parametrize(
    ("error", "code", "told"), OTHERS, ids=["frames", "interrupted", "memory", "full", "no place", "denied", "library"]
)
def test_what_is_no_error_of_ours(
    error: BaseException, code: int, told: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(raising(error)) == code
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize("code", [0, None, 3, "enough"])
def test_code_that_leaves_the_program_is_told_whatever_it_says(code: Any, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(raising(SystemExit(code))) == 3
    assert f"called sys.exit({'' if code is None else repr(code)}) before there was a report" in capsys.readouterr().err


def test_the_folder_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert entry.main(["doctor"]) == 4
    assert capsys.readouterr().err == "pipefix: The folder that you are in was removed.\n  Go to one that is there, such as: cd\n"


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202ename"


@pytest.mark.parametrize(
    "arguments",
    [
        ["probe", HOSTILE], ["probe", f"{HOSTILE}.py"], ["probe", "x.py", "--budget", HOSTILE], ["probe", "x.py", f"--{HOSTILE}"],
        ["probe", "x.py", HOSTILE], ["probe", "x.py", "--arg", HOSTILE], ["probe", "x.py", "--fail-on", HOSTILE],
        ["tune", f"{HOSTILE}.py", "--max-cores", HOSTILE], ["fix", "--undo", "--out", HOSTILE], ["fix", "--undo", HOSTILE],
        ["show", HOSTILE], ["compare", HOSTILE, HOSTILE], ["verify", HOSTILE], ["log", HOSTILE],
        ["convert", HOSTILE, "--to", HOSTILE],
        ["run", HOSTILE], ["run", "--plan", HOSTILE, "x.py"], ["swap", f"{HOSTILE}.py", "--to", "kornia"],
        ["watch", HOSTILE, "--once"],
        ["doctor", f"{HOSTILE}.py"], [HOSTILE],
    ],
    ids=lambda words: " ".join(words).replace(HOSTILE, "HOSTILE"),
)  # fmt: skip
def test_no_word_of_a_command_line_commands_the_terminal(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "named", naming.named)
    assert entry.main(arguments) not in (0, entry.BUG)
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()


class TestUnforeseen:
    def test_one_paragraph_and_the_traceback_in_a_file(
        self, command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "traceback.txt"
        monkeypatch.setenv("PIPEFIX_TRACEBACK", str(place))
        assert command(raising(KeyError("stage"))) == 70
        told = capsys.readouterr().err
        assert told.startswith("pipefix: this is a bug in pipefix 0.")
        assert "KeyError: 'stage' (at test_main.py, line " in told
        assert "Traceback" not in told
        assert told.count("\n") == 1
        assert str(place) in told
        assert "Traceback (most recent call last)" in place.read_text()

    def test_a_temporary_file_where_no_place_was_named(
        self, command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert command(raising(RuntimeError("x"))) == 70
        (saved,) = tmp_path.glob("pipefix-traceback-*.txt")
        assert str(saved) in capsys.readouterr().err

    def test_nowhere_to_save_it(
        self, command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIPEFIX_TRACEBACK", str(tmp_path / "absent" / "x.txt"))
        assert command(raising(RuntimeError("x"))) == 70
        assert "could not be saved (No such file or directory); say where with PIPEFIX_TRACEBACK=FILE" in capsys.readouterr().err


def test_what_is_not_there_is_told_before_torch_is_loaded(tmp_path: Path) -> None:
    commands = [[verb, "nothere.py"] for verb in ("probe", "tune", "fix", "doctor")]
    commands += [["swap", "nothere.py:Photos", "--to", "kornia"], ["convert", "nothere.py", "--to", "lmdb"], ["verify", "nothere"]]
    code = f"import sys; from pipefix.cli.main import main; [main(words) for words in {commands}]; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
    assert sum("nothere" in line for line in done.stderr.splitlines() if line.startswith("pipefix: ")) == len(commands)


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([word]) == 0
    assert capsys.readouterr().out == f"pipefix {VERSION}\n"


class TestAsAProcess:
    """What only a real process shows: streams, signals, pipes."""

    def test_what_lies_here_under_a_librarys_name_is_not_imported(self, tmp_path: Path) -> None:
        """``python -m`` puts the working directory first; targets that lie there are found, and what they import from there."""
        for name in ("torch", "msgspec", "PIL"):
            (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n")
        (tmp_path / "mine.py").write_text(
            "import helper\nfrom torch.utils.data import DataLoader\nloader = DataLoader(helper.data)\n"
        )
        (tmp_path / "helper.py").write_text("data = [1, 2]\n")
        command = [sys.executable, "-m", "pipefix", "doctor", "mine.py"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
        assert done.returncode == 0 and "planted" not in done.stderr + done.stdout, done.stderr

    def test_a_reader_that_goes_away_is_no_error(self) -> None:
        line = f"set -o pipefail; {sys.executable} -m pipefix show {RUN} | head -n 1"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0
        assert done.stderr == ""
        assert done.stdout.startswith("pipefix probe train_data.py")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
    @pytest.mark.parametrize("words", [["show", RUN], ["--help"], ["--version"]])
    def test_a_full_disk_behind_stdout(self, words: list[str]) -> None:
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "pipefix", *words]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        assert done.returncode == 4
        assert done.stderr == (
            "pipefix: The results could not be written to standard output: No space left on device.\n"
            "  Send them to a place with room: > DIR/results.txt\n"
        )

    def test_a_closed_stdout(self) -> None:
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m pipefix show {RUN} >&-"], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 4)

    def test_streams_that_are_not_utf8(self) -> None:
        command = [sys.executable, "-m", "pipefix", "show", RUN, "--full"]
        env = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
        assert done.returncode == 0
        assert "us" in done.stdout

    def acting(self, tmp_path: Path, body: str) -> subprocess.Popen[str]:
        """A command whose body is this line; its process is a module's, as that of ``python -m pipefix`` is."""
        (tmp_path / "acting.py").write_text(
            "import pathlib, signal, sys\nfrom types import SimpleNamespace\nfrom pipefix.cli import main\n"
            f"def run(arguments):\n    {body}\n"
            "act = SimpleNamespace(__doc__='A.', prepare_parser=lambda p: None, run=run)\n"
            "main.find = lambda: {'act': act}\nsys.argv = ['pipefix', 'act']\nmain.run()\n"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "acting"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env)

    def test_ctrl_c_inside_exec_still_gives_our_code(self, tmp_path: Path) -> None:
        """As it strikes while PyTorch is imported."""
        process = self.acting(tmp_path, "exec('raise KeyboardInterrupt')")
        process.communicate()
        assert process.returncode == 130

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_signals(self, number: signal.Signals, tmp_path: Path) -> None:
        """Wherever the signal strikes, here while the target's own code sleeps."""
        process = self.acting(tmp_path, "pathlib.Path('begun').touch(); signal.pause()")
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate()
        assert process.returncode == 130
        assert out == ""
        assert "Interrupted" in err
        assert "Traceback" not in err

    def test_workers_that_the_same_signal_ends_are_no_crash(self, tmp_path: Path) -> None:
        """``timeout`` and batch systems send it to them as well; torch tells the death of a worker by an error in this process."""
        process = self.acting(
            tmp_path,
            "import os\n    def crash(*_): raise RuntimeError('DataLoader worker is killed by signal: Terminated')\n    "
            "signal.signal(signal.SIGCHLD, crash); both = {signal.SIGTERM, signal.SIGCHLD}\n    "
            "signal.pthread_sigmask(signal.SIG_BLOCK, both); [os.kill(os.getpid(), number) for number in both]\n    "
            "signal.pthread_sigmask(signal.SIG_UNBLOCK, both); signal.pause()",
        )
        _, err = process.communicate()
        assert process.returncode == 130
        assert "Interrupted" in err and "RuntimeError" not in err

    @pytest.mark.parametrize(
        "loses",
        [
            "os.register_at_fork(before=lambda: [press(), None]); os.fork() or os._exit(0)",
            "type('Lost', (), {'__del__': lambda self: [press(), None]})()",
        ],
        ids=["at a fork", "in a destructor"],
    )
    def test_an_interrupt_that_python_only_prints_is_sent_again(self, loses: str, tmp_path: Path) -> None:
        process = self.acting(tmp_path, f"import os; press = lambda: os.kill(os.getpid(), signal.SIGINT); {loses}; signal.pause()")
        _, err = process.communicate()
        assert process.returncode == 130
        assert "Interrupted" in err
        assert "ignored" not in err and "Traceback" not in err

    def test_a_forked_child_is_terminated_as_ever(self) -> None:
        program = (
            "import os, signal\nfrom pipefix.cli import main\nmain._treat_termination_as_interrupt()\n"
            "ready, told = os.pipe()\nchild = os.fork()\n"
            "if child == 0:\n    os.write(told, b'.')\n    signal.pause()\n    os._exit(0)\n"
            "os.read(ready, 1)\nos.kill(child, signal.SIGTERM)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
        assert (done.stdout, done.stderr) == (f"-{signal.SIGTERM.value}\n", "")
