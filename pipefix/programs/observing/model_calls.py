"""Whether models are called without gradients in a loop: it evaluates where it enters ``torch.no_grad()`` for each batch anew.

So Hugging Face's Trainer and Accelerate's examples have it; when a batch is handed out, gradients are computed there.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from .loops import Loop
from .steps import compiles

TRIES = 3
"""Steps of a loop that are looked into."""


class ModelCalls:
    """Looks at the first call of a model in a step. Its hook is gone with that call, or with the next step."""

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
