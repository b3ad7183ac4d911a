"""A plan applied to a subject: the same target, consumer and samplers, with the plan in place."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pipefix.loader import as_planned, planned
from pipefix.measurement.consumer import Consumer
from pipefix.plan.planfile import PlanFile
from pipefix.subject.subject import Subject


def fixed(subject: Subject, plan: PlanFile, folder: Path) -> Subject:
    """The subject with a loader that the plan is applied to; the one given stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores: what that brings is about to be measured
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
        self._consumer(self._module(_on(batch, self._device)))

    def settle(self) -> list[int]:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return self._consumer.settle()

    def split(self) -> dict[str, float]:
        return self._consumer.split()


def _on(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: _on(one, device) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        moved = [_on(one, device) for one in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value
