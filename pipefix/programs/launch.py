"""Starts the user's program as they would, and waits for it: same arguments, folder, streams, terminal, signals and exit code."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psutil

from pipefix.programs.merge_notes import notes_in, still_noting
from pipefix.programs.observing.inside import ENOUGH, HOOK, without_hooks
from pipefix.vocabulary import commands, files
from pipefix.vocabulary.errors import BadUsage

T = TypeVar("T")
_HERE = Path(__file__).parent
_HOOK_FILES = re.compile(r"(asked|sitecustomize\..*)\Z")
_ASKS_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (*_ASKS_TO_END, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGCONT)
_HARDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_LOOK = 0.1
"""Seconds between two looks for it."""
_STEP_MS = 1000
"""Milliseconds of each wait for the program's end."""
_PATIENCE = 10.0
"""Seconds between asking a program to end and asking it harder."""
_ARRIVES = 0.05
"""Seconds until what is sent to all has surely reached each of them."""
_AGAIN = 0.5
"""Seconds within which the same signal is of the same sender: ``timeout`` sends to its child, and then to all."""


@dataclass(frozen=True)
class Ended:
    exit_code: int | None
    """As `subprocess` gives it: a signal that ended the program is negative. None where nobody saw it end."""
    seconds: float
    began: float | None = None
    """As `time.time` gives it."""
    at_limit: bool = False
    """It was asked to end, because its ``seconds`` or ``steps`` were over."""
    interrupted: bool = False
    """Somebody pressed Ctrl-C, or asked this process to end."""


def command_line(words: Sequence[str]) -> list[str]:
    """The command to start: a Python file or ``-m`` is run by this Python, anything else is a program by its own name."""
    words = list(words)
    if words in ([], ["-m"]):
        raise BadUsage("No program was named.", advice="Write it as you would without pipefix: pipefix run train.py --epochs 3")
    if words[0] == "-m" or words[0].endswith(".py"):
        if words[0] != "-m" and not Path(words[0]).exists():
            advice = "Name a Python file, -m MODULE, or a program: pipefix run train.py"
            raise BadUsage(f"There is no file {words[0]}.", advice=advice)
        return [sys.executable, *words]
    if shutil.which(words[0]) is None:
        problem = f"There is no program {words[0]!r} on the PATH."
        advice = "Name a Python file, -m MODULE, or a program, such as: pipefix run torchrun --nproc-per-node 2 train.py"
        if words[0].endswith(".ipynb"):
            advice = commands.of_a_notebook(words[0])
        elif Path(f"{words[0]}.py").is_file():
            advice = f"Did you mean: {commands.command('pipefix', 'run', f'{words[0]}.py')}?"
        elif Path(words[0]).is_file():
            here, by_shell = (commands.command("pipefix", "run", *how, *words[1:]) for how in ([f"./{words[0]}"], ["sh", words[0]]))
            advice = f"As in a shell, the one here is named by its folder: {here}, or {by_shell}"
            if os.sep in words[0]:
                problem = f"{words[0]} is a file that may not be executed."
                advice = f"Allow it with {commands.command('chmod', '+x', words[0])}, or name what runs it: {by_shell}"
        raise BadUsage(problem, advice=advice)
    return words


def launch(
    command: Sequence[str], folder: Path, *, seconds: float | None = None, steps: int | None = None, job: Path | None = None,
    plan: Path | None = None, stages: bool = True,
) -> Ended:  # fmt: skip
    """Run the command, as `command_line` gives it, to its end; options are those of `run_program`.

    ``folder``: an existing one, that the program's processes write their notes into. ``job``: a file that says what is to be done
    inside the program when its loop is warm. After ``seconds`` or ``steps`` it is ended as by Ctrl-C, then SIGTERM, then SIGKILL.
    """
    wishes = {"steps": steps, "job": job, "plan": plan, "blind": None if stages else 1}
    began, begun = time.time(), time.monotonic()
    over = threading.Event()
    asked: list[int] = []
    with hooked(folder, wishes) as environment, _signals_passed_on(asked) as started:
        child = start(command, lambda words: subprocess.Popen(words, env=environment))
        started(child)
        if seconds is not None or steps is not None or job is not None:
            ending = threading.Thread(target=_end, args=(child, begun + (seconds or float("inf")), folder, over), daemon=True)
            ending.start()
        code = _ended(child)
        if over.is_set():
            ending.join()
    return Ended(code, time.monotonic() - begun, began, at_limit=over.is_set(), interrupted=bool(asked))


@contextlib.contextmanager
def hooked(folder: Path, wishes: Mapping[str, Any] = MappingProxyType({})) -> Iterator[dict[str, str]]:
    """The environment of a program that is looked into. It differs by one entry of ``PYTHONPATH``: a folder made for this program,
    with our ``sitecustomize`` and a file of what it is to do. Where that cannot be made, no notes could be written either."""
    environment = {name: value for name, value in os.environ.items() if name != "PIPEFIX"}  # =0 switches off what is asked for now
    folder, hook = folder.resolve(), None
    asked = {"folder": folder, "observing": _HERE / "observing", **wishes, "look_after": environment.get("PIPEFIX_RUN_LOOK_AFTER")}
    known = [(name, value.resolve() if isinstance(value, Path) else value) for name, value in asked.items() if value is not None]
    try:
        with contextlib.suppress(OSError):
            # An entry of the path holds no colon, as names with a time of day do.
            place = tempfile.gettempdir() if os.pathsep in str(folder) else folder
            hook = Path(tempfile.mkdtemp("", f"{HOOK}-{platform.node()}-{os.getpid()}-", place))
            (hook / "asked").write_bytes(b"\0".join(os.fsencode(str(word)) for pair in known for word in pair))
            shutil.copyfile(_HERE / "startup" / "sitecustomize.py", hook / "sitecustomize.py")
            path = without_hooks(environment.get("PYTHONPATH", ""))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hook), path]))
        yield environment
    finally:
        if hook is not None:
            _remove_hook(hook)


def remove_old_hooks(folder: Path) -> None:
    """Those of a pipefix that was killed on this machine."""
    for hook in folder.glob(f"{glob.escape(f'{HOOK}-{platform.node()}')}-*-*"):
        number = hook.name.split("-")[-2]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            _remove_hook(hook)


def _remove_hook(hook: Path) -> None:
    with contextlib.suppress(OSError):
        for place in (hook / "__pycache__", hook):
            for file in place.glob("*"):
                files.remove(file, _HOOK_FILES)
            files.remove_empty_folder(place)


def start(command: Sequence[str], begin: Callable[[Sequence[str]], T]) -> T:
    """``begin`` with the command; with a shell that runs it where it is a script without ``#!``, as shells do."""
    try:
        try:
            return begin(command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return begin(["/bin/sh", shutil.which(command[0]) or command[0], *command[1:]])
    except OSError as error:
        message = f"{command[0]} could not be started: {error.strerror or error}."
        raise BadUsage(message, advice=f"It has to start by itself: {commands.command(*command)}") from error


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for its exit code, in steps: a signal that comes just before the kernel waits is heard when that wait is over."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(child.pid)
            try:
                ending = select.poll()
                ending.register(descriptor, select.POLLIN)
                while not ending.poll(_STEP_MS):
                    pass
            finally:
                os.close(descriptor)
    return child.wait()


@contextlib.contextmanager
def _signals_passed_on(asked: list[int]) -> Iterator[Any]:
    """What is sent to pipefix goes to the program. What was sent to both is not sent twice.

    ``asked`` gets those that ask for an end. It is no event, whose lock a second signal would wait for in the handler of the first.
    """
    running: list[subprocess.Popen[bytes]] = []

    def handle(number: int, _frame: Any) -> None:
        if number in _ASKS_TO_END:
            asked.append(number)
        both = companion.got(number)
        if both is None:
            both = number in _FROM_TERMINAL and _in_foreground()
        for child in running:
            if not both and child.poll() is None:
                child.send_signal(number)

    before = {number: signal.getsignal(number) for number in _PASSED_ON}
    companion = Companion(_PASSED_ON)
    # A handler is not inherited by what is started, as an ignored signal would be; what is ignored here stays ignored there.
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield running.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        companion.end()


class Companion:
    """Tells whether a signal that came was sent to this process alone, or to all that run with it: a process beside this one keeps
    those that it gets.

    ``timeout``, Slurm and systemd send to all processes of a job, and so does a terminal. The program has such a signal already,
    and a second one would interrupt what it does about the first: writing a checkpoint.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = set(numbers)
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: dict[int, float] = {}
        """When a signal last came here, by its number."""
        self._begin()

    def _begin(self) -> None:
        before, quiet = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers), subprocess.DEVNULL
        try:
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def got(self, number: int) -> bool | None:
        """Whether a signal that came just now came here as well; None where that cannot be told."""
        time.sleep(_ARRIVES)
        known = self._has(number)
        if known:
            self._heard[number] = time.monotonic()
            self.end()
            self._begin()
        elif time.monotonic() - self._heard.get(number, -_AGAIN) < _AGAIN:
            return True
        return known

    def _has(self, number: int) -> bool | None:
        with contextlib.suppress(AttributeError, OSError):  # it could not be started, or there is no /proc
            status = Path(f"/proc/{self._process.pid}/status").read_text()  # type: ignore[union-attr]
            waiting = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("ShdPnd:")), None)
            return None if waiting is None else bool(waiting >> (number - 1) & 1)
        return None

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
                process.communicate()


def _in_foreground() -> bool:
    with contextlib.suppress(OSError), open("/dev/tty", "rb") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def _end(child: subprocess.Popen[bytes], until: float, folder: Path, over: threading.Event) -> None:
    """When its time is over, or one of its processes has said that it took its steps."""
    enough = folder / ENOUGH
    while time.monotonic() < until and not enough.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(min(_LOOK, max(0.0, until - time.monotonic())))
            return
    over.set()
    started = _at_work_below(child, folder)
    for number in _HARDER:
        child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE)
            break
    for number in _HARDER:  # what a shell started goes on when that has ended
        for process in filter(_runs, started):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        until = time.monotonic() + _PATIENCE
        while any(map(_runs, started)) and time.monotonic() < until:
            time.sleep(_LOOK)


def _at_work_below(child: subprocess.Popen[bytes], folder: Path) -> list[psutil.Process]:
    """Processes that it started, or these, and that note what they do."""
    noting = {still_noting(notes) for notes in notes_in(folder)}
    with contextlib.suppress(psutil.Error):
        return [process for process in psutil.Process(child.pid).children(recursive=True) if process.pid in noting]
    return []


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
