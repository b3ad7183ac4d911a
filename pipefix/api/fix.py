"""pipefix.fix and undo: apply remedies one by one, keep those that are proven to help, take the last one back."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pipefix.api.probe import look_at
from pipefix.api.target import Progress, check_followed, consumed, loaded, silent
from pipefix.fixes import fix_log, outcome
from pipefix.fixes.attempt import ProbeResult
from pipefix.fixes.choice import Wishes
from pipefix.fixes.choice import check_only as check_only
from pipefix.fixes.fix import RUN_FILE, Session
from pipefix.measurement.consumer import Consumer, consumer_for
from pipefix.plan import planfile
from pipefix.report import fix_report, runfile
from pipefix.report.document import Document
from pipefix.report.fix_report import ShownUndone
from pipefix.report.shown import Shown, shown_as
from pipefix.subject.subject import Subject
from pipefix.system.machine import look
from pipefix.vocabulary import amounts, files
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, PipefixError, UnreadableFile

BEFORE_FILE, REPORT = "pipefix.before.json", "pipefix.fix.html"
_RUN = b'"format": "pipefix.run/'
_MARKS = {BEFORE_FILE: _RUN, RUN_FILE: _RUN, REPORT: b'<meta name="generator" content="pipefix">'}
"""What files of ours, beside the plan, say near their beginning, and no file of anybody else's."""
_HEAD = 65536
Undone = ShownUndone
"""As users name it."""


@dataclass(frozen=True, repr=False)
class FixReport(Shown):
    """What `fix` did, and the probes before and after it."""

    fixed: outcome.Fixed
    before: runfile.Run | None
    after: runfile.Run | None
    page: Path | None = None
    """The HTML report, where one was written."""

    def document(self, *, full: bool = False) -> Document:
        page = None if full or self.page is None else str(self.page)
        return fix_report.report(self.fixed, self.before, self.after, page=page)

    def seen_from(self, folder: Path) -> FixReport:
        """With paths relative to ``folder`` where they are below it: it was made in a program, which may work elsewhere."""

        def near(path: str) -> str:
            return os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else path

        plan, page = self.fixed.plan, self.page
        fixed = msgspec.structs.replace(self.fixed, folder=near(self.fixed.folder), plan=near(plan) if plan else plan)
        return replace(self, fixed=fixed, page=Path(near(str(page))) if page is not None else None)

    def figures(self) -> Any:
        """The last probe's run file, with what became of each step; without a probe, the steps alone."""
        return self.after if self.after is not None else self.fixed


def fix(
    target: Any,
    *,
    budget: float | str = 40.0,
    min_gain: float | str = 0.05,
    only: str | None = None,
    yes: bool = False,
    dry_run: bool = False,
    out: str | Path | None = None,
    step: Any = None,
    step_ms: float | str | None = None,
    target_rate: float | str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    ask: Callable[[str], bool] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> FixReport:
    """Probe ``target``, apply the best remedy, verify it, keep it or take it back, and again until it is good enough.

    Args:
        target: what `pipefix.probe` takes.
        budget: seconds to measure in each round; text may have a unit, such as ``"2m"``.
        min_gain: stop where the next gain is predicted to be less: 0.05, or ``"5%"``.
        only: this remedy alone, by its id, such as ``"cache-source"``.
        yes: make steps that change what training sees, or take over 1 GB of disk or ten minutes, without asking.
        dry_run: say what would be tried, in which order; change nothing.
        out: folder of the plan, its log and its caches (default: where you are).
        step: what consumes the batches, instead of the target file's own: a model, of which a copy is trained, or a function that
            takes one and trains on it, and is called as it is: have it train a copy.
        step_ms: milliseconds that an emulated training step takes a batch, in place of the target's own.
        target_rate: samples a second that an emulated consumer takes.
        batch_size: instead of the loader's.
        workers: worker processes, instead of the loader's.
        ask: called with a question about such a step; True makes it. Without it, and without ``yes``, they are left.
        progress: called with a phase and the part that is done, 0 to 1.
        seed: of the probe's own choices.

    Returns:
        What was kept and what was left, with reasons and measured gains, and the probes before and after.
    """
    round_seconds, least = amounts.taken("budget", budget, amounts.seconds), amounts.taken_share("min_gain", min_gain)
    check_only(only)
    say = progress or silent
    folder = Path(out) if out is not None else Path()
    place = folder.absolute()  # the target's code may change the working directory
    if not dry_run:
        _check_own(place)
    subject = loaded(target, say, batch_size=batch_size, workers=workers, step=step)
    check_followed(subject.loader, place / planfile.NAME, _go_on_from)
    consumer = consumer_for(subject, **consumed(step_ms, target_rate, step))

    def seen(subject: Subject, consumer: Consumer, seconds: float) -> ProbeResult:
        run, _, advice = look_at(
            subject, consumer, budget=seconds, progress=lambda words, done: say(f"probing: {words}", done), seed=seed
        )
        return ProbeResult(advice, run, whole=not run.partial)

    wishes = Wishes(budget=round_seconds, min_gain=least, only=only, yes=yes, dry_run=dry_run)
    session = Session(subject, consumer, look(), place, wishes, seen, say, ask)
    failed: PipefixError | None = None
    try:
        fixed = session.run()
    except PipefixError as error:  # of a later look, where a sample raises or a worker dies: what was kept is told all the same
        if not session.applied:
            raise
        failed, fixed = error, session.held_after(error)
    # Told as the user named it.
    fixed = msgspec.structs.replace(fixed, folder=str(folder), plan=str(folder / planfile.NAME) if fixed.plan else None)
    runs = [probed.run for probed in session.seen]
    before, after = (runs[0], next((run for run in reversed(runs) if run.stages), runs[0])) if runs else (None, None)
    if after is not None:
        kept = map(msgspec.to_builtins, fixed.outcomes)
        ahead = ({**msgspec.to_builtins(step), "outcome": "ahead"} for step in fixed.ahead)
        after = msgspec.structs.replace(after, outcomes=[*kept, *ahead])
    report = FixReport(fixed, before, after)
    if not (dry_run or (fixed.interrupted and (before is None or not before.stages))):  # else an earlier fix's files stay
        _write(report, place)
        report = replace(report, page=folder / REPORT)
    if failed is not None:
        failed.known = report
        raise failed
    return report


def _check_own(folder: Path) -> None:
    """Refuse a folder where a file of somebody else's has a name that `fix` gives: that would be lost."""
    for name, mark in _MARKS.items():
        path = folder / name
        head = b""
        with suppress(OSError):
            head = b"" if path.is_symlink() else files.read_regular(path, _HEAD)
        if mark not in head and os.path.lexists(path):
            raise BadUsage(
                f"{path} is there and is not a file that pipefix fix wrote; it will not be replaced.",
                advice=f"Move it away, or name another folder: {command('pipefix', 'fix', 'TARGET', '--out', 'DIR')}",
            )


def _go_on_from(plan: Path) -> str:
    renamed = f"call it {planfile.NAME}, in the code too, and type " if plan.name != planfile.NAME else ""
    there = command("pipefix", "fix", "TARGET", "--out", plan.parent)
    return f"Go on from that one: {renamed}{there}; or take plan= out of the code."


def _write(report: FixReport, folder: Path) -> None:
    """The probes and the page beside the plan. They tell what was done, and a full disk does not undo it."""
    try:
        if report.before is not None and report.after is not None:
            runfile.write(report.before, folder / BEFORE_FILE)
            runfile.write(report.after, folder / RUN_FILE)
        report.html(folder / REPORT)
    except UnreadableFile as error:
        error.known = report
        raise


def undo(out: str | Path | None = None) -> Undone:
    """Take back the last step that `fix` kept in this folder, or what an interrupted one left.

    Args:
        out: the folder of the plan and its log (default: where you are).

    Returns:
        Which step was taken back, and what was removed with it.
    """
    return shown_as(Undone, fix_log.undo((Path(out) if out is not None else Path()).absolute()))
