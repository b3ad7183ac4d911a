"""Entry point: runs a command and turns errors into messages and exit codes; the only place that catches them all."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pipefix.cli.command import find
from pipefix.cli.console import ask_color, note, results, tolerate_any_encoding
from pipefix.cli.end_notice import watched
from pipefix.cli.parser import command_first, parse
from pipefix.subject.naming import named, with_arguments
from pipefix.vocabulary.errors import BadUsage, Interrupted, MissingExtra, OutOfMemory, PipefixError, TargetError, UnreadableFile
from pipefix.vocabulary.version import VERSION

BUG = 70
"""Exit code of a mistake of ours (EX_SOFTWARE)."""
SOON = 0.05
"""Seconds after which a lost interrupt is sent again: by then whatever lost it has returned."""


def run() -> NoReturn:
    _treat_termination_as_interrupt()
    _deliver_lost_interrupts()
    with watched("".join(command_first(sys.argv[1:])[:1])):
        code = main()
    with suppress(OSError):
        os.dup2(2, 1)  # what the target's code prints while the interpreter ends is no result
    sys.exit(code)


def _treat_termination_as_interrupt() -> None:
    """``timeout`` and batch systems send SIGTERM, and kill some seconds later: time enough to report what is known. A terminal that
    is closed sends SIGHUP, and its shell sends it once more."""
    owner = os.getpid()

    def interrupt(number: int, _frame: object) -> None:
        if os.getpid() == owner:
            if number != signal.SIGTERM:
                signal.signal(number, signal.SIG_IGN)
            # They send it to the workers as well, whose end torch's handler would raise as an error, in the middle of anything.
            signal.signal(signal.SIGCHLD, lambda *_: None)
            raise KeyboardInterrupt
        # A process forked from this one ends as if nobody had set a handler.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:  # as nohup has it
            signal.signal(getattr(signal, name), interrupt)


def _deliver_lost_interrupts() -> None:
    """A Ctrl-C that falls into a destructor, or into what is called at a fork, is only printed by Python: it is sent once more."""
    owner, print_it = os.getpid(), sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is not KeyboardInterrupt or os.getpid() != owner:
            print_it(lost)
            return
        again = threading.Timer(SOON, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    tolerate_any_encoding()
    arguments: Namespace | None = None
    try:
        commands = find()
        try:
            arguments = parse(sys.argv[1:] if argv is None else argv, commands)
        except SystemExit as leaving:  # --help, --version and what argparse refuses
            return leaving.code if isinstance(leaving.code, int) else 0
        ask_color(arguments.color)
        target, given = getattr(arguments, "target", None), getattr(arguments, "arg", ())
        if given and (target is None or arguments.program is not None):
            raise BadUsage(f"--arg {given[0]}: there is no class or function that TARGET names.", advice="Leave --arg away.")
        if target is not None and arguments.program is None:
            arguments.target = with_arguments(target, given)
            named(arguments.target)  # a file that is not there is told before PyTorch is loaded, which takes seconds
        code: int = commands[arguments.command].run(arguments)
        results(())
    except PipefixError as error:
        return _tell(error)
    except KeyboardInterrupt:
        # An interrupt that passed through exec() (imports do that) leaves a mark by which the interpreter ends itself with the
        # signal instead of our exit code. Another exec() wipes it out.
        exec("")
        advice = None if hasattr(arguments, "budget") else "Run the same command again."
        return _tell(Interrupted("Interrupted before there was anything to report.", advice=advice))
    except BrokenPipeError:
        return 0
    except OSError as error:
        try:
            os.getcwd()
        except OSError:
            return _tell(UnreadableFile("The folder that you are in was removed.", advice="Go to one that is there, such as: cd"))
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "usable temporary directory" in str(error):
            full = f"{error.filename or 'Temporary files'}: {error.strerror}."
            return _tell(UnreadableFile(full, advice="Name a folder with room for temporary files: TMPDIR=DIR pipefix ..."))
        if isinstance(error, PermissionError) and error.filename is not None:
            denied = f"{error.filename}: {error.strerror}."
            return _tell(UnreadableFile(denied, advice="Name another place, or change the rights there: ls -ld FOLDER shows them"))
        if error.errno != errno.ENAMETOOLONG:
            return unforeseen(error)
        from pipefix.vocabulary.versioned import short

        return _tell(BadUsage(f"{short(error.filename)}: {error.strerror}.", advice="Choose a shorter name."))
    except MemoryError:
        advice = "A smaller --recording-budget needs less, such as 100MB." if hasattr(arguments, "recording_budget") else None
        return _tell(OutOfMemory("pipefix ran out of memory.", advice=advice))
    except Exception as error:  # noqa: BLE001 - the border: a traceback of ours never reaches a user
        return unforeseen(error)
    except BaseException as leaving:  # noqa: BLE001 - sys.exit(), or what the user's code raises to pass every handler of errors
        return _tell(_left(leaving))
    return code


def _tell(error: PipefixError) -> int:
    if error.user_traceback:
        note(error.user_traceback.rstrip("\n"))
    note(f"pipefix: {error}" if not str(error).startswith("pipefix") else str(error))
    note(f"  {error.advice}")
    return error.exit_code


def _left(leaving: BaseException) -> TargetError:
    """Whatever calls ``sys.exit()`` while a command is at work, the command has not done what it was asked to."""
    if not isinstance(leaving, SystemExit):
        return TargetError(
            f"Code of the target raised {type(leaving).__name__}, which is no Exception, before there was a report.",
            advice="Derive it from Exception: then it is told with the sample that raised it.",
        )
    return TargetError(
        f"Something called sys.exit({'' if leaving.code is None else repr(leaving.code)}) before there was a report.",
        advice="Code of the target does: leave the call out, or put it under if __name__ == '__main__':.",
    )


def unforeseen(error: Exception) -> int:
    package = error.name.partition(".")[0] if isinstance(error, ImportError) and error.name else "pipefix"
    if package != "pipefix":  # a library; one of our own modules that is not there is a bug
        missing = f"The package {package!r}, which pipefix stands on, cannot be imported: {error}."
        return _tell(MissingExtra(missing, advice="Install pipefix again, which brings it: from a checkout, pip install ."))
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    note(
        f"pipefix: this is a bug in pipefix {VERSION}, not in your pipeline: {type(error).__name__}: {error} "
        f"(at {Path(place.filename).name}, line {place.lineno}). {_save_traceback(error)}"
    )
    return BUG


def _save_traceback(error: Exception) -> str:
    import tempfile
    import traceback

    text = f"pipefix {VERSION}, Python {sys.version}\n{sys.argv}\n" + "".join(traceback.format_exception(error))
    place = os.environ.get("PIPEFIX_TRACEBACK")
    try:
        if place is None:
            handle, place = tempfile.mkstemp(prefix="pipefix-traceback-", suffix=".txt")
            os.close(handle)
        Path(place).write_text(text, encoding="utf-8", errors="replace")
    except OSError as failure:
        return f"The traceback could not be saved ({failure.strerror}); say where with PIPEFIX_TRACEBACK=FILE and run it again."
    return f"The traceback is in {place}; a report of the bug that includes it can be acted on."
