"""fix: from what the probe proposes to what is proven to help, one step at a time; and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipefix.fixes import outcome
from pipefix.fixes import undo as undoing
from pipefix.fixes.choice import Wishes
from pipefix.fixes.outcome import Fixed, Undone
from pipefix.fixes.session import RUN_FILE, Seen, Session
from pipefix.measurement.consumer import Consumer, consumer_for
from pipefix.measurement.machine import look
from pipefix.plan import planfile
from pipefix.report import fix_html, runfile
from pipefix.report.runfile import Run
from pipefix.subject.subject import Subject
from pipefix.verbs.probe import look_at
from pipefix.verbs.target import Progress, load_target, silent
from pipefix.vocabulary.errors import UnreadableFile

BEFORE_FILE, REPORT = "pipefix.before.json", "pipefix.fix.html"


@dataclass(frozen=True)
class Report:
    """What `fix` did, and the probes before and after it."""

    fixed: Fixed
    before: Run | None
    after: Run | None
    page: Path | None = None
    """The HTML report, where one was written."""


def fix(
    target: Any,
    *,
    budget: float = 40.0,
    min_gain: float = 0.05,
    only: str | None = None,
    yes: bool = False,
    dry_run: bool = False,
    out: str | Path | None = None,
    step_ms: float | None = None,
    target_rate: float | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    ask: Callable[[str], bool] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Report:
    """Probe ``target``, apply the best remedy, verify it, keep it or take it back, and again until it is good enough.

    ``out`` is the folder of the plan, its log and its caches (default: where you are). ``budget`` is the time to measure in each
    round. Steps that change what training sees, or take much disk or time, are made with ``yes``, or where ``ask`` says so.
    """
    say = progress or silent
    say("loading the target", 0.0)
    subject = load_target(target, batch_size=batch_size, workers=workers)
    consumer = consumer_for(subject, step_ms=step_ms, target_rate=target_rate)
    folder = Path(out) if out is not None else Path()

    def seen(subject: Subject, consumer: Consumer, seconds: float) -> Seen:
        looked = look_at(subject, consumer, budget=seconds, progress=lambda words, done: say(f"probing: {words}", done), seed=seed)
        return Seen(looked.plan, looked.run, whole=not looked.run.partial)

    wishes = Wishes(budget=budget, min_gain=min_gain, only=only, yes=yes, dry_run=dry_run)
    session = Session(subject, consumer, look(), folder.absolute(), wishes, seen, say, ask)
    fixed = session.run()
    # Told as the user named it.
    fixed = msgspec.structs.replace(fixed, folder=str(folder), plan=str(folder / planfile.NAME) if fixed.plan else None)
    runs = [one.run for one in session.seen]
    before, after = (runs[0], runs[-1]) if runs else (None, None)
    if after is not None:
        after = msgspec.structs.replace(after, outcomes=outcome.as_dicts(fixed))
    report = Report(fixed, before, after)
    return report if dry_run else _written(report, folder)


def _written(report: Report, folder: Path) -> Report:
    """The probes and the page beside the plan. They tell what was done, and a full disk does not undo it."""
    try:
        if report.before is not None and report.after is not None:
            runfile.write(report.before, folder / BEFORE_FILE)
            runfile.write(report.after, folder / RUN_FILE)
        page = fix_html.page(report.fixed, report.before, report.after)
        runfile.write_whole(page.encode("utf-8", "backslashreplace"), folder / REPORT, what="report")
    except UnreadableFile as error:
        error.known = report
        raise
    return Report(report.fixed, report.before, report.after, folder / REPORT)


def undo(out: str | Path | None = None) -> Undone:
    """Take back the last step that `fix` kept in this folder, or what an interrupted one left."""
    return undoing.undo((Path(out) if out is not None else Path()).absolute())
