"""A subject with a plan applied: the same target, consumer and samplers, and a loader that reads the plan."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from pipefix.loader.planning import as_planned, planned
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.gpu import DeviceTime
from pipefix.plan.planfile import BeforeAfter, PlanFile, TunedOn
from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine
from pipefix.vocabulary.nested import map_leaves


def fixed(subject: Subject, plan: PlanFile, folder: Path) -> Subject:
    """The subject with a loader that the plan is applied to; the one given stays as it is."""
    return replace(subject, loader=as_planned.loader(subject.loader, plan, folder))


def consumer(of: Consumer, subject: Subject, plan: PlanFile, folder: Path) -> Consumer:
    """What takes the batches of the fixed pipeline: what took them before, behind the operations that moved to the batch."""
    module = planned.module(subject.dataset, plan, folder)
    return of if module is None else _Behind(of, module)


class _Behind(Consumer):
    """A module's work on the device, and then the consumer's."""

    present = True

    def __init__(self, consumer: Consumer, module: Any) -> None:
        self.name = consumer.name
        self._consumer, self._module = consumer, module
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, batch: Any) -> None:
        self._consumer(self._moved(batch))

    def try_on(self, batch: Any) -> None:
        self._consumer.try_on(self._moved(batch))
        self.name, self.why_none = self._consumer.name, self._consumer.why_none

    def _moved(self, batch: Any) -> Any:
        return self._module(map_leaves(self._on_device, batch))

    def _on_device(self, leaf: Any) -> Any:
        return leaf.to(self._device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    def settle(self) -> list[DeviceTime]:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        # Before a step's begin lies the module's work here, which is not idle time.
        return [DeviceTime(time.busy) for time in self._consumer.settle()]


def tuned_on(machine: Machine) -> TunedOn:
    """What a plan says of the machine that its figures come from."""
    return TunedOn(
        cores=machine.effective_cores,
        cpu_model=machine.cpu_model,
        memory_bytes=machine.memory_limit_bytes or machine.memory_bytes,
        gpus=[gpu.name for gpu in machine.gpus],
    )


def with_evidence(plan: PlanFile, before: PlanFile, evidence: BeforeAfter) -> PlanFile:
    """The plan of now, with the reason beside each of its parts that ``before`` had not, or had otherwise."""
    parts = {name: getattr(plan, name) for name in ("loader", "cache", "augmentation")}
    changed: dict[str, Any] = {
        name: msgspec.structs.replace(part, evidence=evidence)
        for name, part in parts.items()
        if part is not None and part != getattr(before, name)
    }
    return msgspec.structs.replace(plan, created=datetime.datetime.now().astimezone().isoformat(timespec="seconds"), **changed)
