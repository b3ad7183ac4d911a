"""The consumer of batches: the user's step, their model, an emulated step, or nothing."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pipefix.hooks.torch_internals import has_compiled
from pipefix.measurement import failing, gpu
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.step_scan import StepScan
from pipefix.subject import failure
from pipefix.subject.subject import Subject
from pipefix.vocabulary import worker_exit
from pipefix.vocabulary.errors import BadUsage, PipefixError, TargetError

PARTS = ("forward", "backward", "optimizer")
"""Of a step, as torch's own hooks tell them apart."""
SPLIT_STEPS = 3


class Consumer:
    """Nothing consumes: the loader runs as fast as it can."""

    name = "none"
    present = False
    why_none = ""
    """Why what the target's file holds could not be made a consumer."""
    way: Any = None
    """What the loader itself does to a batch before its caller has it; None: nothing."""

    def __call__(self, batch: Any) -> None:
        """Take one batch."""

    def try_on(self, batch: Any) -> None:
        """Where this is only a guess at the user's step, see whether it can take such a batch; otherwise be no consumer."""

    def settle(self) -> list[gpu.DeviceTime]:
        """Wait for what the steps left running on a device; the device's times of each step since the last call."""
        return []

    def step_seconds(self, batch: Any) -> float:
        """Of one step, waited for."""
        begun = time.perf_counter()
        self(batch)
        self.settle()
        return time.perf_counter() - begun

    def first_seconds(self, kept_batch: KeptBatch, least: float) -> float:
        """What a first step takes beside what others take (compiling, above all), where it takes ``least`` or more; else 0."""
        took: list[float] = []
        kept_batch.learn(lambda batch: took.append(self.step_seconds(batch)))
        return max(0.0, took[0] - self.step_seconds(kept_batch())) if took[0] > least else 0.0


Way = Callable[[Any], Any]
"""Brings a batch to a device, augments it."""


def as_it_is(batch: Any) -> Any:
    return batch


class Emulated(Consumer):
    """Sleeps as long as a step would take, as storage benchmarks emulate accelerators.

    With ``launch``, the seconds in which the CPU hands a step over, the rest of it is done on a device meanwhile.
    """

    present = True

    def __init__(self, seconds: float, *, name: str, transform: Way = as_it_is, launch: float | None = None) -> None:
        self.seconds, self.name, self.way = seconds, name, transform
        self._launch = launch if launch is not None and launch < seconds else None
        self._done: float | None = None
        """When the device will have done all that it was handed."""
        self._times: list[gpu.DeviceTime] = []

    def __call__(self, batch: Any) -> None:
        self.way(batch)
        if self._launch is None:
            time.sleep(self.seconds)
            return
        begun = time.perf_counter()
        idle = None if self._done is None else max(0, int((begun - self._done) * 1e9))
        self._times.append(gpu.DeviceTime(int(self.seconds * 1e9), idle))
        self._done = max(begun, self._done or begun) + self.seconds
        time.sleep(max(self._launch, self._done - begun - gpu.FURTHEST))

    def settle(self) -> list[gpu.DeviceTime]:
        if self._done is not None:
            time.sleep(max(0.0, self._done - time.perf_counter()))
        times, self._times = self._times, []
        return times


class UserStep(Consumer):
    """``train_step(batch)`` of the target's file; its forward, backward and optimizer parts are timed by torch's own hooks."""

    present = True
    name = "train_step"

    def __init__(self, step: Callable[[Any], object], transform: Way = as_it_is) -> None:
        self._step, self.way = step, transform
        self._events = gpu.StepEvents() if gpu.present() else None
        self._spent_ns = 0
        """Of all calls that returned."""

    def settle(self) -> list[gpu.DeviceTime]:
        try:
            if self._events is None:
                if gpu.other() is not None:
                    torch.accelerator.synchronize()
                return []
            return self._events.take()
        except RuntimeError as error:  # what a kernel did wrong is told where it is waited for
            raise failing.raised(f"The consumer ({self.name})", error) from error

    def __call__(self, batch: Any) -> None:
        begun = time.perf_counter_ns()
        try:
            if self._events is not None:
                self._events.begin()
            self._step(self.way(batch))
            if self._events is not None:
                self._events.end()
        except PipefixError:
            raise
        except (Exception, SystemExit) as error:
            if worker_exit.is_worker_death(error):
                raise  # torch's signal handler speaks of a worker wherever the main thread is
            raise failing.raised(f"The consumer ({self.name})", error) from error
        self._spent_ns += time.perf_counter_ns() - begun

    def split(self, kept_batch: KeptBatch) -> dict[str, float]:
        """Seconds a batch by part of the step, where they can be told apart: of a few steps with hooks in place, apart from the
        measured loop, which those would cost something.

        With a device a part takes as long as it does there: its call returns before.
        """
        clock = gpu.PartTimes(by_events=self._events is not None)
        module = torch.nn.modules.module
        backward: Callable[..., None] = torch.Tensor.backward
        depth = 0

        def enter(*_: Any) -> None:
            nonlocal depth
            if depth == 0:
                clock.begin("forward")
            depth += 1

        def leave(*_: Any) -> None:
            nonlocal depth
            depth -= 1
            if depth == 0:
                clock.end("forward")

        def timed_backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            nonlocal depth
            clock.begin("backward")
            depth += 1  # modules that are called in it compute again what was not kept: no forward pass
            try:
                backward(tensor, *args, **kwargs)
            finally:
                depth -= 1
            clock.end("backward")

        handles = [
            module.register_module_forward_pre_hook(enter),
            module.register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(lambda *_: clock.begin("optimizer")),
            register_optimizer_step_post_hook(lambda *_: clock.end("optimizer")),
        ]
        torch.Tensor.backward = timed_backward  # type: ignore[method-assign,assignment]
        self.settle()
        before = self._spent_ns
        try:
            for _ in range(SPLIT_STEPS):
                self(kept_batch())
        finally:
            torch.Tensor.backward = backward  # type: ignore[method-assign]
            for handle in handles:
                handle.remove()
        total = max(self._spent_ns - before, sum(time.busy for time in self.settle()))
        spent_ns = clock.spent()
        if not any(spent_ns.values()):
            return {}
        each = {part: spent_ns.get(part, 0) / SPLIT_STEPS / 1e9 for part in PARTS}
        return {**each, "other": max(0.0, total / SPLIT_STEPS / 1e9 - sum(each.values()))}

    def scan(self, batch: Any) -> dict[str, Any]:
        """What a step has the host do for a CUDA device; empty without one, and where hooks would have models compiled again."""
        if self._events is None or has_compiled():
            return {}
        step_scan = StepScan()
        step_scan.run(lambda: self(batch))
        self.settle()
        return step_scan.facts


class ModelStep(UserStep):
    """A training step made around ``model``: forward, a loss, backward, and an SGD update on a copy of it.

    It is a guess: nobody said how the model is called. Where the guess fails there is no consumer, with the reason.
    """

    name = "model"

    def __init__(self, model: torch.nn.Module, criterion: Any, transform: Way = as_it_is) -> None:
        super().__init__(self._train, transform)
        model_device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        here = torch.device("cuda") if gpu.present() else torch.device(gpu.other() or "cpu")
        self._device = here if model_device.type == "cpu" else model_device
        self._criterion = criterion
        self._taken: Any = None
        """A batch that it could take."""
        try:
            self._model = copy.deepcopy(model).to(self._device).train()
            if isinstance(criterion, torch.nn.Module):  # which may hold weights of classes
                self._criterion = copy.deepcopy(criterion).to(self._device)
            trained = [weight for weight in self._model.parameters() if weight.requires_grad]
            self._optimizer = torch.optim.SGD(trained, lr=1e-6) if trained else None
        except Exception as error:  # noqa: BLE001 - whatever copying the user's module raises
            self._be_none(f"copying it raised {failure.summary(error)}")

    def try_on(self, batch: Any) -> None:
        if not self.present:
            return
        try:
            super().__call__(batch)
        except TargetError as error:
            self._be_none(str(error).partition(" raised ")[2] or str(error))
        else:
            self._taken = batch

    def _be_none(self, why: str) -> None:
        self.present, self.name, self.why_none = False, Consumer.name, why.rstrip(".")

    def __call__(self, batch: Any) -> None:
        if not self.present:
            return
        try:
            super().__call__(batch)
        except TargetError:
            if self._taken is None:
                raise
            super().__call__(self._taken)

    def _train(self, batch: Any) -> None:
        values = list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, (list, tuple)) else [batch]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if not tensors:
            what = f"The model cannot be fed: the batch is a {type(batch).__name__} without a tensor at its top level."
            advice = "Define train_step(batch) beside the model, so that the probe knows how a batch is used."
            raise TargetError(what, advice=advice)
        output = self._model(tensors[0].to(self._device, non_blocking=True))
        if self._criterion is not None and len(tensors) > 1:
            loss = self._criterion(output, tensors[1].to(self._device, non_blocking=True))
        elif isinstance(output, torch.Tensor):
            loss = output.float().mean()
        else:
            raise TypeError(f"it returns a {type(output).__name__}, and only of a tensor a loss can be made")
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._optimizer.step()


def consumer_for(
    subject: Subject, *, step_ms: float | None = None, target_rate: float | None = None, loader: Any = None
) -> Consumer:
    """The consumer that the user asked for, or the one their file brings.

    ``loader``: whose batches it is to have, where the subject's was made after its likeness; pools make batches, and what a loader
    does to them before the caller has them is done here.
    """
    transform = getattr(subject.loader if loader is None else loader, "on_its_way", None) or as_it_is
    if step_ms is not None and target_rate is not None:
        advice = "Give one: --step-ms MS for the time of a batch's step, or --target-rate N for samples a second."
        raise BadUsage(f"Both a step of {step_ms:g} ms and a target rate of {target_rate:g} samples/s were given.", advice=advice)
    if step_ms is not None:
        if not 0 < step_ms < math.inf:
            raise BadUsage(f"A step of {step_ms:g} ms cannot be emulated.", advice="Give a positive time, such as --step-ms 25.")
        name = f"emulated: {step_ms:g} ms a batch"
        return Emulated(step_ms / 1e3, name=name, transform=transform, launch=subject.launch_seconds)
    if target_rate is not None:
        if not 0 < target_rate < math.inf:
            advice = "Give a positive rate: --target-rate 1000."
            raise BadUsage(f"A target rate of {target_rate:g} samples/s cannot be met.", advice=advice)
        seconds = subject.settings.samples_a_batch / target_rate
        return Emulated(seconds, name=f"emulated: {target_rate:g} samples/s", transform=transform)
    if subject.consumer is not None:
        return UserStep(subject.consumer, transform)
    if subject.model is not None:
        return ModelStep(subject.model, subject.criterion, transform)
    return Consumer()
