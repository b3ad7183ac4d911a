"""Every error a user can meet. A class owns its exit code and its advice; the message says what happened and the value found."""

from __future__ import annotations


class PipefixError(Exception):
    """Something the user can act on. ``str(error)`` says what happened; ``advice`` what to type next."""

    exit_code = 1
    default_advice = "Run the command again with --help to see what it takes."

    def __init__(self, message: str, *, advice: str | None = None, user_traceback: str | None = None) -> None:
        super().__init__(message)
        self.advice = self.default_advice
        if advice:
            self.advise(advice)
        self.user_traceback = user_traceback
        """The user's own frames, where their code raised."""
        self.known: object = None
        """A run that was complete when something after it failed."""

    def advise(self, advice: str) -> None:
        """Say what to type next. From Python 3.11 on a traceback of the error shows it below the message."""
        self.advice = advice
        self.__notes__ = [advice]


class GateFailed(PipefixError):
    """A limit that the user asked to be enforced was crossed."""

    exit_code = 1
    default_advice = "This exit code (1) is what you asked for; the figures are on standard output."


class BadUsage(PipefixError):
    """The command line or the arguments of a call do not fit together."""

    exit_code = 2
    default_advice = "Run the command again with --help to see what it takes."


class TargetError(PipefixError):
    """The target could not be found, loaded or run."""

    exit_code = 3
    default_advice = "A target is FILE.py, FILE.py:name, package.module:name, a directory of class folders or a cache."


class NothingToProbe(TargetError):
    """A file that hands over no dataset and no loader when it is imported."""

    exit_code = 3
    default_advice = "Name what to probe: FILE.py:NAME, where NAME is a dataset, a loader or a callable that returns one."


class UnreadableFile(PipefixError):
    """A run file, plan file or cache cannot be read or written."""

    exit_code = 4
    default_advice = "Make a fresh run file with: pipefix probe TARGET --out run.json"


class CacheDamaged(UnreadableFile):
    """A cache is not what was written: a checksum, a size or a figure does not fit."""

    exit_code = 4
    default_advice = (
        "See what is damaged with: pipefix verify CACHE. Mend it from its source with the command that made it, and --update"
    )


class MissingExtra(PipefixError):
    """An optional package is needed and absent."""

    exit_code = 5
    default_advice = "Install the package that the message names."


class OutOfMemory(PipefixError):
    """More memory was asked for than there is."""

    exit_code = 6
    default_advice = "Run it where more memory is free, or allowed: ulimit -v"


class Interrupted(PipefixError):
    """The user pressed Ctrl-C; what was known so far has been kept."""

    exit_code = 130
    default_advice = "Run the command again to start over; a smaller --budget ends sooner."
