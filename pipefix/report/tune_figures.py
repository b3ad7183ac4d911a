"""A tuning told as a report: from the nouns of the tuning room to plain data and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pipefix.report.tunefile import Certificate, TuneReport
from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import ResourceLimits
from pipefix.tuning.results import BatchSize
from pipefix.tuning.space import Settings, Space, said
from pipefix.tuning.tuner import TuneResult
from pipefix.vocabulary.nvml import in_words
from pipefix.vocabulary.quantity import percent, rate, seconds, size
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.version import VERSION

RESTART = 0.005
"""Share of an epoch that starting the workers anew may take before keeping them is worth it."""


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
    start: Settings
    space: Space
    limits: ResourceLimits
    found: TuneResult
    consumer: ConsumerName
    stall: float
    """Share of the time that the consumer may wait."""
    sizes: Sequence[BatchSize] = ()
    dealt: bool = True
    """Every trial read samples of its own."""
    vram: str | None = None
    """What is to be said of the device's memory."""
    ranks: int = 1
    """Of a distributed job, that share the machine."""

    def report(self, *, created: str, written: str | None) -> TuneReport:
        changes, found = self.changes(), self.found
        return TuneReport(
            target=self.target,
            before=self.start,
            after=self._chosen(),
            sentence=self._sentence(changes),
            certificate=self.certificate(),
            trials=list(found.tried),
            pipefix=VERSION,
            created=created,
            changes=changes,
            rate_before=found.before,
            rate_after=found.after,
            kept=found.kept,
            enough=found.enough,
            declined=dict(self.space.declined or {}),
            notes=list(self._notes(changes)),
            batch_sizes=list(self.sizes),
            limits={name: value for name, value in vars(self.limits).items() if value is not None},
            partial=found.partial,
            seconds=found.seconds,
            written=written,
        )

    def changes(self) -> dict[str, object]:
        """Arguments of the loader that are to be others."""
        changes = {name: value for name, value in self.start.changes(self._chosen()).items() if value is not None}
        if not self.found.chosen.workers:
            changes.pop("prefetch_factor", None)
        return changes

    def _chosen(self) -> Settings:
        """The settings chosen, with workers that live on where starting them anew is felt."""
        chosen = self.found.chosen
        return chosen.but(persistent_workers=True) if chosen.workers and self._restart_matters() else chosen.normal()

    def _restart_matters(self) -> bool:
        """Whether starting the workers anew takes a part of an epoch that is worth saving."""
        epoch, after = self.settings.epoch, self.found.after
        if not epoch or after is None or not self.found.started_s:
            return False
        return self.found.started_s > RESTART * epoch / after.value

    def _sentence(self, changes: dict[str, object]) -> str:
        found = self.found
        words = said(found.chosen)
        if not any(one.status == "run" for one in found.tried):
            return "Nothing was tried to its end, so the settings stay as they are."
        if found.kept is not None:
            more = " Workers are to be kept between epochs." if "persistent_workers" in changes else ""
            return f"Keep {words}: {found.kept}.{more}"
        if found.after is None:
            return f"Use {words}."
        if found.before is None:
            return f"Use {words}: {rate(found.after.value)}; the settings as they are could not be run."
        gain = found.after.value / found.before.value
        told = f"{rate(found.after.value)} instead of {rate(found.before.value)}"
        if math.isclose(gain, 1.0, abs_tol=0.02):
            fewer = ", with fewer workers" if found.chosen.workers < self.start.workers else ""
            return f"Use {words}: as fast as before ({rate(found.after.value)}){fewer}."
        return f"Use {words}: {told}."

    def _notes(self, changes: dict[str, object]) -> Iterator[str]:
        if self.start.in_order and not self.found.chosen.in_order:
            yield (
                "With in_order=False batches come as they are made, not in the sampler's order: a run cannot be repeated batch by "
                "batch. --keep-order leaves that out."
            )
        if self.settings.kind == "iterable":
            yield ("A stream begins anew in every trial, so its first samples are read again and again, from a warm cache.")
        elif not self.dealt:
            yield ("The dataset is too small for every trial to read samples of its own; storage is seen from a warm cache.")
        if self.found.started_s and "persistent_workers" in changes:
            yield (f"Starting the workers took {seconds(self.found.started_s)}; kept between epochs, they start once.")
        if self.found.used.memory_bytes:
            yield (f"The loop with these settings took {size(self.found.used.memory_bytes)} of memory.")
        chosen = self.found.chosen
        if self.ranks > 1:
            yield (
                f"{self.ranks} ranks share this machine (LOCAL_WORLD_SIZE), and workers are each rank's own: trials ran with one "
                f"rank's part of its CPUs and memory, and {chosen.workers} workers a rank are {self.ranks * chosen.workers} in all."
            )
        if chosen.engine is not None:
            yield "engine='processes' is FastLoader's: batches lie in reusable shared memory. The plan file asks it for that."
        if self.vram:
            yield self.vram
        sweet = _sweet_spot(self.sizes, self.settings.batch_size)
        if sweet:
            yield (sweet)
        if self.found.partial:
            yield ("It was interrupted: no plan was written.")

    def certificate(self) -> Certificate:
        blocks = self.found.blocks
        emulated = self.consumer.emulated
        base = Certificate(fed=None, emulated=emulated, consumer=self.consumer.name, allowed=self.stall)
        if not blocks:
            return _with(base, sentence="Nothing ran long enough to tell.")
        logs = [math.log(block.rate) for block in blocks]
        delivered = figures.around(math.exp(sum(logs) / len(logs)), figures.doubt(logs))
        batches, spent = sum(len(block.waits) for block in blocks), sum(block.seconds for block in blocks)
        if not self.consumer.present:
            failed = self.consumer.why_none
            why = f", because a training step made around the file's model failed ({failed})" if failed else ""
            told = f"There is no consumer to feed{why}: the loader delivers {rate(delivered.value)}. --step-ms MS emulates one."
            return _with(base, delivered=delivered, batches=batches, seconds=spent, sentence=told)
        waited = figures.stall(blocks)
        demand = blocks[-1].demand
        fed = True if waited.high <= self.stall else False if waited.low > self.stall else None
        who = f"The emulated consumer ({self.consumer.name.removeprefix('emulated: ')})" if emulated else "The consumer"
        verdict = {True: "is fed", False: "is not fed", None: "may or may not be fed"}[fed]
        told = (
            f"{who} {verdict}: it waited {percent(waited.value)} ({percent(waited.low)} to {percent(waited.high)}) of {batches} "
            f"batches' time, and may wait {percent(self.stall)}. It takes {rate(demand or 0.0)}, and {rate(delivered.value)} are "
            "delivered."
        )
        return _with(
            base, fed=fed, stall=waited, delivered=delivered, demand=demand, batches=batches, seconds=spent,
            nvml=figures.nvml(blocks), sentence=told + _device(figures.nvml(blocks)),
        )  # fmt: skip


def _device(nvml: dict[str, float]) -> str:
    """What supports it: the driver's view, which counts a device as busy that does little."""
    said = in_words(nvml, "nvml_")
    return f" The driver says of the device: {said}." if said else ""


def _with(base: Certificate, **values: Any) -> Certificate:
    return msgspec.structs.replace(base, **values)


def _sweet_spot(sizes: Sequence[BatchSize], own: int | None) -> str | None:
    """The smallest batch that delivers nearly the most; never chosen for the user."""
    ran = [one for one in sizes if one.rate is not None]
    if not ran or own is None:
        return None
    most = max(one.rate.value for one in ran if one.rate is not None)
    sweet = min((one for one in ran if one.rate is not None and one.rate.value >= 0.95 * most), key=lambda one: one.batch_size)
    told = (
        f"Of the batch sizes, {sweet.batch_size} is the smallest that delivers within 5 % of the most. The batch size stays {own}."
    )
    ended = [one for one in sizes if one.reason]
    if ended and sweet.batch_size == max(one.batch_size for one in ran):
        told += f" {ended[0].batch_size} was not run: {ended[0].reason}. To train with more, accumulate gradients over several."
    return told
