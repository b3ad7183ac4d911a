"""Hooks on the models of a program: seconds of a few steps outside of their calls, and calls without gradients.

In a program that trains without a DataLoader nothing tells the making of a batch from logging. But both lie outside of the models'
calls, the backward passes and the optimizers' steps, and where that is little, making batches takes no more.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from .loops import Loop, clock

TRIES = 3
"""Steps of a loop in which it is looked how a model is called."""


class StepLook:
    """One step. Hooks are set on the models that it calls, and are gone when it ends."""

    def __init__(self, modules: Any) -> None:
        self._modules = modules
        self._thread = threading.get_ident()
        self._worked: list[tuple[float, float]] = []
        self._hooks = [modules.register_module_forward_pre_hook(self._called)]
        self._begun = clock()

    def worked(self, begun: float, ended: float) -> None:
        """A model, a backward pass or an optimizer did, in these seconds."""
        self._worked.append((begun, ended))

    def end(self, now: float) -> tuple[float, float]:
        """Seconds of the step, and of those the seconds in which none of them worked."""
        self._unhook()
        outside, reached = 0.0, self._begun
        for begun, ended in sorted(self._worked):
            outside += max(0.0, begun - reached)
            reached = max(reached, ended)
        return now - self._begun, outside + max(0.0, now - reached)

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _called(self, module: Any, inputs: Any) -> None:
        """Modules without parameters that get no gradients may be the making of a batch: torchvision's transforms are modules."""
        if threading.get_ident() != self._thread:
            return
        if next(module.parameters(), None) is None and not any(getattr(tensor, "requires_grad", False) for tensor in inputs):
            return
        self._unhook()  # of the modules within this one nothing is to be known
        begun = clock()

        def returned(*_: Any) -> None:
            self.worked(begun, clock())
            self._unhook()
            self._hooks.append(self._modules.register_module_forward_pre_hook(self._called))

        self._hooks.append(module.register_forward_hook(returned, always_call=True))


def compiles() -> bool:
    """Whether the program has had anything compiled: that may look at what is patched, and begin again."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return compiler is not None and bool(getattr(compiler, "counters", {}).get("frames", {}).get("total"))


class ModelCalls:
    """Looks at the first call of a model in a step. Its hook is gone with that call, or with the next step.

    A loop evaluates as well where it enters ``torch.no_grad()`` for each batch anew, as Hugging Face's Trainer and Accelerate's
    examples have it; when a batch is handed out, gradients are computed there.
    """

    def __init__(self) -> None:
        self._hook: Any = None

    def look_into_step(self, loop: Loop) -> None:
        """Of a loop that has begun one and did not train in the one before; not in programs that compile their models."""
        self.end()
        modules, torch = sys.modules.get("torch.nn.modules.module"), sys.modules.get("torch")
        if modules is None or torch is None or loop.model_looks >= TRIES or compiles():
            return
        loop.model_looks += 1
        thread, gradients = threading.get_ident(), torch.is_grad_enabled

        def called(module: Any, *_: Any) -> None:
            if threading.get_ident() == thread and next(module.parameters(), None) is not None:
                self.end()
                if not gradients():
                    loop.calls_without_gradients += 1
                    loop.model_looks = TRIES

        self._hook = modules.register_module_forward_pre_hook(called)

    def end(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
