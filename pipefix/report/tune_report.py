"""The document and the JSON of ``pipefix tune``: the settings, whether the training loop is fed with them, every trial.

`TuneReport` is its JSON (``pipefix.tune/1``), `TuneReporter` makes it, and `report` makes what is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from pipefix.report.document import Bar, Block, CommandLine, Document, Field, Paragraph, Section, Table, chart, field
from pipefix.report.stage_table import dash
from pipefix.tuning import block_figures as figures
from pipefix.tuning.results import FAILED, BatchSize, Trial, TuneResult, TuningPlan
from pipefix.tuning.space import Settings, said
from pipefix.vocabulary.commands import with_plan
from pipefix.vocabulary.nvml import in_words
from pipefix.vocabulary.quantity import Interval, counted, percent, rate, rate_between, seconds, size
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.shards import MAY_REPEAT
from pipefix.vocabulary.version import VERSION

REFUSALS = 4
"""Settings that were never started, of which the table shows so many."""
RESTART = 0.005
"""Share of an epoch that starting the workers anew may take before keeping them is worth it."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the consumer is fed with the settings that are kept, and the figures that show it."""

    fed: bool | None = None
    """None where there is no consumer, or the interval settles neither."""
    emulated: bool
    """The consumer sleeps as long as a step would take: what a real one's CPU use would disturb is not in the figures."""
    consumer: str
    allowed: float
    """Share of the time that it may wait."""
    stall: Interval | None = None
    """Share of the time that it waited."""
    delivered: Interval | None = None
    """Samples a second."""
    demand: float | None = None
    """Samples a second that it takes where nothing keeps it waiting."""
    batches: int = 0
    seconds: float = 0.0
    nvml: dict[str, float] = {}
    """What the driver says of the device meanwhile: supporting evidence."""
    sentence: str = ""


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    program: list[str] = []
    """The program and its arguments, where the target is a loader inside one."""
    before: Settings
    """As found."""
    after: Settings
    """To be used; the same as before where nothing better was found."""
    sentence: str
    certificate: Certificate
    trials: list[Trial]
    format: str = "pipefix.tune/1"
    pipefix: str = ""
    created: str = ""
    changes: dict[str, object] = {}
    rate_before: Interval | None = None
    rate_after: Interval | None = None
    kept: str | None = None
    """Why the settings stay as they are."""
    enough: str = ""
    """Why no more was tried."""
    declined: dict[str, str] = {}
    """What was not searched, and why."""
    notes: list[str] = []
    batch_sizes: list[BatchSize] = []
    limits: dict[str, float] = {}
    partial: bool = False
    seconds: float = 0.0
    written: str | None = None


@dataclass(frozen=True)
class ConsumerName:
    """What takes the batches, in words: made in the trials' own processes, since a real one may wake CUDA up."""

    name: str
    present: bool
    emulated: bool = False
    why_none: str = ""
    """Why the model of the target's file is not the consumer."""


@dataclass(frozen=True)
class TuneReporter:
    """One tuning, and what it was asked to do."""

    target: str
    settings: LoaderSettings
    """As found."""
    plan: TuningPlan
    result: TuneResult
    consumer: ConsumerName
    sizes: Sequence[BatchSize] = ()
    dealt: bool = True
    """Every trial read samples of its own."""
    vram: str | None = None
    """What is to be said of the device's memory."""
    ranks: int = 1
    """Of a distributed job, that share the machine."""
    program: tuple[str, ...] = ()
    """The program and its arguments, where the target is a loader inside one."""
    workers: int | None = None
    """Given in place of the code's own: then the plan says how many are to be used, these ones too."""

    def report(self, *, created: str, written: str | None) -> TuneReport:
        changes, result = self.changes(), self.result
        return TuneReport(
            target=self.target, program=list(self.program), before=self.plan.start, after=self._chosen(),
            sentence=self._sentence(changes), certificate=self.certificate(), trials=list(result.tried), pipefix=VERSION,
            created=created, changes=changes, rate_before=result.before, rate_after=result.after, kept=result.kept,
            enough=result.enough, declined=dict(self.plan.space.declined or {}), notes=list(self._notes(changes)),
            batch_sizes=list(self.sizes),
            limits={name: value for name, value in vars(self.plan.limits).items() if value is not None},
            partial=result.partial, seconds=result.seconds, written=written,
        )  # fmt: skip

    def changes(self) -> dict[str, object]:
        """Arguments of the loader that are to be others."""
        changes = {name: value for name, value in self.plan.start.changes(self._chosen()).items() if value is not None}
        if not self.result.chosen.workers:
            changes.pop("prefetch_factor", None)
        if self.workers is not None and any(trial.status == "run" for trial in self.result.tried):
            changes.setdefault("num_workers", self.result.chosen.workers)
        return changes

    def _chosen(self) -> Settings:
        """The settings chosen, with workers that live on where starting them anew takes a part of an epoch that is worth saving."""
        chosen, epoch, after = self.result.chosen, self.settings.epoch, self.result.after
        is_felt = bool(epoch) and after is not None and self.result.started_s > RESTART * (epoch or 0) / after.value
        return chosen.but(persistent_workers=True) if chosen.workers and is_felt else chosen.normal()

    def _sentence(self, changes: dict[str, object]) -> str:
        result, words = self.result, said(self.result.chosen)
        if not any(trial.status == "run" for trial in result.tried):
            return "Nothing was tried to its end, so the settings stay as they are."
        if result.kept is not None:
            more = " Workers are to be kept between epochs." if "persistent_workers" in changes else ""
            return f"Keep {words}: {result.kept}.{more}"
        assert result.after is not None
        if result.before is None:
            return f"Use {words}: {rate(result.after.value)}; the settings as they are could not be run."
        if math.isclose(result.after.value / result.before.value, 1.0, abs_tol=0.02):
            fewer = ", with fewer workers" if result.chosen.workers < self.plan.start.workers else ""
            return f"Use {words}: as fast as before ({rate(result.after.value)}){fewer}."
        return f"Use {words}: {rate(result.after.value)} instead of {rate(result.before.value)}."

    def _notes(self, changes: dict[str, object]) -> Iterator[str]:
        if self.plan.start.in_order and not self.result.chosen.in_order:
            yield (
                "With in_order=False batches come as they are made, not in the sampler's order: a run cannot be repeated batch by "
                "batch. --keep-order leaves that out."
            )
        if self.settings.kind == "iterable":
            yield "A stream begins anew in every trial, so its first samples are read again and again, from a warm cache."
        elif not self.dealt:
            yield "The dataset is too small for every trial to read samples of its own; storage is seen from a warm cache."
        if self.result.started_s and "persistent_workers" in changes:
            yield f"Starting the workers took {seconds(self.result.started_s)}; kept between epochs, they start once."
        if self.result.used.memory_bytes:
            yield f"The loop with these settings took {size(self.result.used.memory_bytes)} of memory."
        chosen = self.result.chosen
        if self.settings.kind == "iterable" and chosen.workers > max(1, self.plan.start.workers):
            yield MAY_REPEAT
        if self.ranks > 1:
            yield (
                f"{self.ranks} ranks share this machine (LOCAL_WORLD_SIZE), and workers are each rank's own: trials ran with one "
                f"rank's part of its CPUs and memory. {counted(chosen.workers, 'worker')} a rank: "
                f"{self.ranks * chosen.workers} in all."
            )
        if chosen.engine is not None:
            yield "engine='processes' is FastLoader's: batches lie in reusable shared memory. The plan file asks it for that."
        if self.vram:
            yield self.vram
        yield from _sweet_spot(self.sizes, self.settings.batch_size)
        if self.result.partial:
            yield "It was interrupted: no plan was written."

    def certificate(self) -> Certificate:
        blocks = self.result.blocks
        emulated, allowed = self.consumer.emulated, self.plan.goal.stall
        certificate = partial(Certificate, emulated=emulated, consumer=self.consumer.name, allowed=allowed)
        if not blocks:
            return certificate(sentence="Nothing ran long enough to tell.")
        logs = [math.log(block.rate) for block in blocks]
        delivered = figures.around(math.exp(sum(logs) / len(logs)), figures.doubt(logs))
        batches, spent = sum(len(block.waits) for block in blocks), sum(block.seconds for block in blocks)
        if not self.consumer.present:
            failed = self.consumer.why_none
            why = f", because a training step made around the file's model failed ({failed})" if failed else ""
            sentence = f"There is no consumer to feed{why}: the loader delivers {rate(delivered.value)}. --step-ms MS emulates one."
            return certificate(delivered=delivered, batches=batches, seconds=spent, sentence=sentence)
        waited, stepped = figures.stall(blocks), sum(sum(block.steps) for block in blocks)
        demand = sum(block.samples for block in blocks) / stepped if stepped else None
        fed = True if waited.high <= allowed else False if waited.low > allowed else None
        who = f"The emulated consumer ({self.consumer.name.removeprefix('emulated: ')})" if emulated else "The consumer"
        verdict = {True: "is fed", False: "is not fed", None: "may or may not be fed"}[fed]
        sentence = (
            f"{who} {verdict}: it waited {percent(waited.value)} ({percent(waited.low)} to {percent(waited.high)}) of the "
            f"time of {counted(batches, 'batch')}, and may wait {percent(allowed)}. It takes {rate(demand or 0.0)}, and "
            f"{rate(delivered.value)} are delivered."
        )
        # What supports it: the driver's view, which counts a device as busy that does little.
        nvml = figures.nvml(blocks)
        if phrases := in_words(nvml, "nvml_"):
            sentence += f" The driver says of the device: {phrases}."
        return certificate(
            fed=fed, stall=waited, delivered=delivered, demand=demand, batches=batches, seconds=spent, nvml=nvml, sentence=sentence
        )


def _sweet_spot(sizes: Sequence[BatchSize], own: int | None) -> Iterator[str]:
    """The smallest batch that delivers nearly the most; never chosen for the user."""
    rates = {size.batch_size: size.rate.value for size in sizes if size.rate is not None}
    if rates and own is not None:
        sweet = min(size for size, rate in rates.items() if rate >= 0.95 * max(rates.values()))
        sentence = f"Of the batch sizes, {sweet} is the smallest that delivers within 5 % of the most. The batch size stays {own}."
        ended = [f" {size.batch_size} was not run: {size.reason}." for size in sizes if size.reason and size.batch_size > own]
        more = f"{ended[0]} To train with more, accumulate gradients over several." if ended and sweet == max(rates) else ""
        yield sentence + more


def report(tuning: TuneReport) -> Document:
    fed = tuning.certificate.fed
    parts: list[Paragraph | CommandLine] = [Paragraph(tuning.sentence, "strong")]
    arguments = {key: value for key, value in tuning.changes.items() if key != "worker_threads"}
    if arguments:
        kind = "pipefix.FastLoader" if "engine" in arguments else "DataLoader"
        parts.append(CommandLine(f"{kind}(..., {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"))
    card = [Field("RESULT", [*parts]), field("FED", tuning.certificate.sentence, "good" if fed else "warn" if fed is False else "")]
    card += [field("NOTE", note) for note in tuning.notes]
    never = [trial for trial in tuning.trials if trial.status == "refused"]
    card += [field("NOT RUN", f"{said(trial.settings)}: {trial.reason}.") for trial in never[:REFUSALS]]
    if len(never) > REFUSALS:
        card.append(field("NOT RUN", f"{len(never) - REFUSALS} more, for the same kind of reason."))
    card += [field("ENOUGH", f"No more was tried: {tuning.enough}.")] if tuning.enough else []
    card += [field("LEFT", f"{setting}: {why}.") for setting, why in tuning.declined.items()]
    if tuning.written is not None:
        card.append(field("PLAN", f"{tuning.written}: {with_plan(tuning.written, tuning.target, tuning.program)} reads it."))
    sections = [Section(title="Trials", blocks=_trials([trial for trial in tuning.trials if trial.status != "refused"]))]
    sections += [Section(title="Batch sizes", blocks=_sizes(tuning.batch_sizes))] if tuning.batch_sizes else []
    return Document(command="pipefix tune", target=tuning.target, card=card, sections=sections, version=tuning.pipefix)


def _trials(trials: list[Trial]) -> list[Block]:
    rows = []
    for trial in trials:
        why = f"{trial.status}: {trial.reason.removeprefix(FAILED)}" if trial.status != "run" else trial.why + _ALONE * trial.alone
        delivers, waited = "-" if trial.rate is None else rate(trial.rate.value, ""), dash(percent(trial.stall))
        rows.append([said(trial.settings), delivers, waited, dash(size(trial.used.memory_bytes or None)), why])
    table = Table(["trial", "samples/s", "waited", "memory", "why"], rows, "lrrrl", caption="Trials")
    ran = sum(trial.ran for trial in trials)
    return [table, *([Paragraph(f"{_IN_TURN if ran > 1 else ''}{_AT_THE_END}", "soft")] if ran else [])]


_ALONE = " (run by itself: the limits leave no room for both, and its rate is of another moment)"
_IN_TURN = "Each ran in turn with the best settings before it, and is told at the pace that the first one had. "
_AT_THE_END = (
    "What RESULT and FED say was measured at the end, with the settings before and after in turn where they differ: by then the "
    "machine may have become faster or slower."
)


def _sizes(sizes: list[BatchSize]) -> list[Block]:
    on_device = any(tried.used.vram_bytes for tried in sizes)
    columns = ["batch size", "samples/s", "from batch to batch", "waited", "memory", *(["GPU memory"] if on_device else [])]
    bars = [_size(tried, columns) for tried in sizes]
    lead = (
        "Samples a second by batch size, with the interval of a few short blocks; nothing else was changed. The sizes were run one "
        "after the other, not in turn: what the machine did meanwhile is in their differences."
    )
    return [
        chart(columns, bars, "r" * len(columns), "Batch sizes", ["waited"]),
        Paragraph(lead, "soft"),
        *(Paragraph(f"{tried.batch_size}: {tried.reason}.", "soft") for tried in sizes if tried.reason and tried.rate is not None),
    ]


def _size(tried: BatchSize, columns: list[str]) -> Bar:
    name = str(tried.batch_size)
    if tried.rate is None:
        return Bar(cells=[name, *["-"] * (len(columns) - 1)], note=tried.reason)
    used = [dash(size(each or None)) for each in (tried.used.memory_bytes, tried.used.vram_bytes)][: len(columns) - 4]
    waited = dash(percent(tried.stall))
    cells = [name, rate_between(tried.rate, ""), seconds(tried.batch_s), waited, *used]
    return Bar(cells=cells, value=tried.rate, stage="step")
