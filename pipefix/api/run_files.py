"""pipefix.load and compare: read run files again, without PyTorch."""

from __future__ import annotations

from pathlib import Path

from pipefix.report import runfile
from pipefix.report.compare import Comparison as Comparison
from pipefix.report.compare import compare as compared
from pipefix.report.shown import ShownRun, shown
from pipefix.vocabulary import amounts

Run = ShownRun
"""As users name it."""


def load(path: str | Path) -> Run:
    """Read a run file that ``pipefix probe --out`` or ``Run.save`` wrote.

    Args:
        path: the file, or the folder that ``pipefix run --out`` named.

    Returns:
        The run, as `pipefix.probe` returned it.
    """
    return shown(_read(path))


def _read(place: str | Path) -> runfile.Run:
    """A run by its file, or by the folder of a program that was run."""
    if not Path(place).is_dir():
        return runfile.read(Path(place))
    from pipefix.api.run import from_folder

    return from_folder(Path(place))


def compare(
    before: str | Path | runfile.Run,
    after: str | Path | runfile.Run,
    *,
    force: bool = False,
    max_regression: float | str | None = None,
) -> Comparison:
    """What changed from one run to another, and whether it is more than noise and more than the machine.

    Args:
        before: a run, or the path of its file or of a folder that ``pipefix run --out`` named.
        after: another one.
        force: compare runs of different machines or targets all the same.
        max_regression: the loss that is allowed, 0.05 or ``"5%"``; the answer's ``regressed`` and ``gate`` say whether it is more.

    Returns:
        The ratio of what they delivered, each stage before and after, and doubts; printed, it is what ``pipefix compare`` prints.
    """
    old, new = (run if isinstance(run, runfile.Run) else _read(run) for run in (before, after))
    limit = None if max_regression is None else amounts.taken_share("max_regression", max_regression)
    return compared(old, new, force=force, max_regression=limit)
