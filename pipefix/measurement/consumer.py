"""What takes the batches: the user's step, their model, an emulated step, or nothing."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pipefix.measurement import failing, gpu
from pipefix.subject.subject import Subject
from pipefix.vocabulary import death
from pipefix.vocabulary.errors import BadUsage, PipefixError, TargetError


class Consumer:
    """Nothing consumes: the loader runs as fast as it can."""

    name = "none"
    present = False

    def __call__(self, batch: Any) -> None:
        """Take one batch."""

    def settle(self) -> list[int]:
        """Wait for what the steps left running on a device; device nanoseconds of each step since the last call."""
        return []

    def split(self) -> dict[str, float]:
        """Seconds a batch by part of the step, where the parts can be told apart."""
        return {}


class Emulated(Consumer):
    """Sleeps as long as a step would take, as storage benchmarks emulate accelerators."""

    present = True

    def __init__(self, seconds: float, *, name: str) -> None:
        self.seconds = seconds
        self.name = name

    def __call__(self, batch: Any) -> None:
        time.sleep(self.seconds)


class UserStep(Consumer):
    """``train_step(batch)`` of the target's file; its forward, backward and optimizer parts are timed by torch's own hooks."""

    present = True
    name = "train_step"

    def __init__(self, step: Callable[[Any], object]) -> None:
        self._step = step
        self._calls = 0
        self._parts = {"forward": 0, "backward": 0, "optimizer": 0}
        self._total = 0
        self._depth = 0
        self._begun = 0
        self._events = gpu.StepEvents() if gpu.present() else None

    def settle(self) -> list[int]:
        return self._events.busy() if self._events is not None else []

    def __call__(self, batch: Any) -> None:
        begun = time.perf_counter_ns()
        if self._events is not None:
            self._events.begin()
        try:
            self._step(batch)
        except PipefixError:
            raise
        except Exception as error:
            if death.is_told_of(error):
                raise  # torch's signal handler speaks of a worker wherever the main thread is
            raise failing.raised(f"The consumer ({self.name})", error) from error
        if self._events is not None:
            self._events.end()
        self._total += time.perf_counter_ns() - begun
        self._calls += 1

    def split_step(self, batch: Any, repeats: int = 3) -> None:
        """Run a few steps with hooks in place. Apart from the measured loop, so that the hooks cost it nothing."""
        module = torch.nn.modules.module
        handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]
        backward: Callable[..., None] = torch.Tensor.backward
        self._parts = dict.fromkeys(self._parts, 0)
        parts = self._parts

        def timed_backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            begun = time.perf_counter_ns()
            backward(tensor, *args, **kwargs)
            parts["backward"] += time.perf_counter_ns() - begun

        marks: dict[int, int] = {}
        pre = register_optimizer_step_pre_hook(lambda opt, *_: marks.__setitem__(id(opt), time.perf_counter_ns()))
        post = register_optimizer_step_post_hook(
            lambda opt, *_: parts.__setitem__("optimizer", parts["optimizer"] + time.perf_counter_ns() - marks[id(opt)])
        )
        torch.Tensor.backward = timed_backward  # type: ignore[method-assign,assignment]
        self._calls, self._total = 0, 0
        try:
            for _ in range(repeats):
                self(batch)
        finally:
            torch.Tensor.backward = backward  # type: ignore[method-assign]
            for handle in (*handles, pre, post):
                handle.remove()

    def split(self) -> dict[str, float]:
        if not self._calls or not any(self._parts.values()):
            return {}
        each = {key: spent / self._calls / 1e9 for key, spent in self._parts.items()}
        return {**each, "other": max(0.0, self._total / self._calls / 1e9 - sum(each.values()))}

    def _enter(self, *_: Any) -> None:
        if self._depth == 0:
            self._begun = time.perf_counter_ns()
        self._depth += 1

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._parts["forward"] += time.perf_counter_ns() - self._begun


class ModelStep(UserStep):
    """A training step made around ``model``: forward, a loss, backward, and an SGD update on a copy of it."""

    name = "model"

    def __init__(self, model: torch.nn.Module, criterion: Any) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = copy.deepcopy(model).to(self._device).train()
        self._criterion = criterion
        trained = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.SGD(trained, lr=1e-6) if trained else None
        super().__init__(self._train)

    def _train(self, batch: Any) -> None:
        inputs, wanted = _first_two(batch)
        inputs = inputs.to(self._device, non_blocking=True)
        output = self._model(inputs)
        if self._criterion is not None and wanted is not None:
            loss = self._criterion(output, wanted.to(self._device, non_blocking=True))
        else:
            loss = output.float().mean()
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._optimizer.step()


def _first_two(batch: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    values = list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, (list, tuple)) else [batch]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        raise TargetError(
            f"The model cannot be fed: the batch is a {type(batch).__name__} without a tensor at its top level.",
            advice="Define train_step(batch) beside the model, so that the probe knows how a batch is used.",
        )
    return tensors[0], tensors[1] if len(tensors) > 1 else None


def consumer_for(subject: Subject, *, step_ms: float | None = None, target_rate: float | None = None) -> Consumer:
    """The consumer that the user asked for, or the one their file brings."""
    if step_ms is not None and target_rate is not None:
        raise BadUsage(
            f"Both a step of {step_ms:g} ms and a target rate of {target_rate:g} samples/s were given.",
            advice="Give one: --step-ms MS for the time of a batch's step, or --target-rate N for samples a second.",
        )
    if step_ms is not None:
        if step_ms <= 0:
            raise BadUsage(f"A step of {step_ms:g} ms cannot be emulated.", advice="Give a positive time, such as --step-ms 25.")
        return Emulated(step_ms / 1e3, name=f"emulated: {step_ms:g} ms a batch")
    if target_rate is not None:
        if target_rate <= 0:
            raise BadUsage(
                f"A target rate of {target_rate:g} samples/s cannot be met.", advice="Give a positive rate: --target-rate 1000."
            )
        batch = subject.settings.batch_size or 1
        return Emulated(batch / target_rate, name=f"emulated: {target_rate:g} samples/s")
    if subject.consumer is not None:
        return UserStep(subject.consumer)
    if subject.model is not None:
        return ModelStep(subject.model, subject.extras.get("criterion"))
    return Consumer()
