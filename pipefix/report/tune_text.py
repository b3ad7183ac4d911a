"""What a tuning found, as lines for the terminal: the settings, the certificate, and what became of every trial."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.report.columns import Paint, for_terminal
from pipefix.report.tunefile import BatchSize, TrialFigures, TuneReport
from pipefix.vocabulary.commands import with_plan
from pipefix.vocabulary.quantity import percent, rate, seconds, size

REFUSALS = 4
"""Settings that were never started, of which the table shows so many."""


@for_terminal
def lines(report: TuneReport, paint: Paint) -> Iterator[str]:
    yield paint.ink(f"pipefix tune {paint.text(report.target)}", "bold")
    yield paint.rule()
    yield from paint.labelled("RESULT", report.sentence, "bold")
    arguments = {key: value for key, value in report.changes.items() if key not in ("worker_threads", "sharing", "batched_fetch")}
    if arguments:
        kind = "pipefix.FastLoader" if "engine" in arguments else "DataLoader"
        told = {"multiprocessing_context" if key == "start_method" else key: value for key, value in arguments.items()}
        yield from paint.command(f"{kind}(..., {', '.join(f'{key}={value!r}' for key, value in told.items())})")
    fed = report.certificate.fed
    yield from paint.labelled("FED", report.certificate.sentence, *(["green"] if fed else ["yellow"] if fed is False else []))
    for note in report.notes:
        yield from paint.labelled("NOTE", note)
    yield paint.rule()
    yield from _table(report, paint)
    if report.enough:
        yield from paint.labelled("ENOUGH", f"No more was tried: {report.enough}.")
    for what, why in report.declined.items():
        yield from paint.labelled("LEFT", f"{what}: {why}.")
    if report.batch_sizes:
        yield paint.rule()
        yield from _sizes(report.batch_sizes, paint)
    if report.written is not None:
        yield paint.rule()
        yield from paint.labelled("PLAN", f"{report.written}: {with_plan(report.written, report.target)} reads it.")
    yield paint.rule()


def _table(report: TuneReport, paint: Paint) -> Iterator[str]:
    ran = [trial for trial in report.trials if trial.status != "refused"]
    never = [trial for trial in report.trials if trial.status == "refused"]
    with_stall = any(trial.stall is not None for trial in ran)
    head = ["TRIAL", "SAMPLES/S", *(["WAITED"] if with_stall else []), "MEMORY", "WHY"]
    rows = [head, *(_row(trial, with_stall) for trial in ran)]
    align = "lrrrl" if with_stall else "lrrl"
    yield from paint.table(rows, align, stretch=len(align) - 1)
    for trial in never[:REFUSALS]:
        yield from paint.labelled("NOT RUN", f"{trial.said}: {trial.reason}.")
    if len(never) > REFUSALS:
        yield from paint.labelled("NOT RUN", f"{len(never) - REFUSALS} more, for the same kind of reason.")


def _row(trial: TrialFigures, with_stall: bool) -> list[str]:
    told = "-" if trial.rate is None else rate(trial.rate.value, "").strip()
    memory = size(trial.used.memory_bytes) if trial.used is not None and trial.used.memory_bytes else "-"
    stall = [percent(trial.stall) if trial.stall is not None else "-"] if with_stall else []
    why = trial.why if trial.status == "run" else f"{trial.status}: {trial.reason}"
    return [trial.said, told, *stall, memory, why]


def _sizes(sizes: list[BatchSize], paint: Paint) -> Iterator[str]:
    rows = [["BATCH", "SAMPLES/S", "A BATCH", "WAITED"]]
    for one in sizes:
        if one.rate is None:
            rows.append([str(one.batch_size), "-", "-", one.reason])
            continue
        waited = percent(one.stall) if one.stall is not None else "-"
        rows.append([str(one.batch_size), rate(one.rate.value, "").strip(), seconds(one.batch_s or 0.0), waited])
    yield from paint.table(rows, "rrrl", stretch=3)
