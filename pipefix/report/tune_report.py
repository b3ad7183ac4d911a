"""What a tuning found as a document: the settings, the certificate, and what became of every trial."""

from __future__ import annotations

from pipefix.report.document import Block, CommandLine, Document, Field, Paragraph, Section, Table, field
from pipefix.report.tunefile import TuneReport
from pipefix.tuning.results import BatchSize, Trial
from pipefix.tuning.space import said
from pipefix.vocabulary.commands import with_plan
from pipefix.vocabulary.quantity import percent, rate, seconds, size

REFUSALS = 4
"""Settings that were never started, of which the table shows so many."""


def report(tuning: TuneReport) -> Document:
    fed = tuning.certificate.fed
    found: list[Paragraph | CommandLine] = [Paragraph(tuning.sentence, "strong")]
    arguments = {key: value for key, value in tuning.changes.items() if key != "worker_threads"}
    if arguments:
        kind = "pipefix.FastLoader" if "engine" in arguments else "DataLoader"
        found.append(CommandLine(f"{kind}(..., {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"))
    card = [Field("RESULT", [*found]), field("FED", tuning.certificate.sentence, "good" if fed else "warn" if fed is False else "")]
    card += [field("NOTE", note) for note in tuning.notes]
    never = [trial for trial in tuning.trials if trial.status == "refused"]
    card += [field("NOT RUN", f"{said(trial.settings)}: {trial.reason}.") for trial in never[:REFUSALS]]
    if len(never) > REFUSALS:
        card.append(field("NOT RUN", f"{len(never) - REFUSALS} more, for the same kind of reason."))
    card += [field("ENOUGH", f"No more was tried: {tuning.enough}.")] if tuning.enough else []
    card += [field("LEFT", f"{what}: {why}.") for what, why in tuning.declined.items()]
    if tuning.written is not None:
        card.append(field("PLAN", f"{tuning.written}: {with_plan(tuning.written, tuning.target)} reads it."))
    sections = [Section(title="Trials", blocks=_trials([trial for trial in tuning.trials if trial.status != "refused"]))]
    sections += [Section(title="Batch sizes", blocks=_sizes(tuning.batch_sizes))] if tuning.batch_sizes else []
    return Document(command="pipefix tune", target=tuning.target, card=card, sections=sections, version=tuning.pipefix)


def _trials(trials: list[Trial]) -> list[Block]:
    rows = [
        [
            said(trial.settings),
            "-" if trial.rate is None else rate(trial.rate.value, "").strip(),
            percent(trial.stall) if trial.stall is not None else "-",
            size(trial.used.memory_bytes) if trial.used.memory_bytes else "-",
            trial.why if trial.status == "run" else f"{trial.status}: {trial.reason}",
        ]
        for trial in trials
    ]
    return [Table(["TRIAL", "SAMPLES/S", "WAITED", "MEMORY", "WHY"], rows, "lrrrl", caption="Trials")]


def _sizes(sizes: list[BatchSize]) -> list[Block]:
    rows = [
        [str(tried.batch_size), "-", "-", tried.reason]
        if tried.rate is None
        else [
            str(tried.batch_size),
            rate(tried.rate.value, "").strip(),
            seconds(tried.batch_s or 0.0),
            percent(tried.stall) if tried.stall is not None else "-",
        ]
        for tried in sizes
    ]
    return [Table(["BATCH", "SAMPLES/S", "A BATCH", "WAITED"], rows, "rrrl", caption="Batch sizes")]
