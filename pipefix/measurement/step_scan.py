"""What a training step makes the host do for the device, by line of code: waits, copies from pageable memory, float32 products."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pipefix.hooks.patches import Patches
from pipefix.measurement.own_lines import users_line

TENSOR_CORES = (8, 0)
"""CUDA capability from which products of float32 can be computed in TF32."""


class StepScan:
    """Runs one step as it is, with ears. Apart from the measured ones, which they would slow down."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"waits": Counter(), "blocking": Counter(), "pageable": Counter(), "full_precision": 0}
        """As the audit tells them (`StepFacts`)."""
        self._copies = 0

    def run(self, step: Callable[[], object]) -> None:
        mode = torch.cuda.get_sync_debug_mode()
        patches = Patches()
        hook = nn.modules.module.register_module_forward_pre_hook(self._called)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = self._warned
                for name in ("to", "cuda"):
                    patches.replace(torch.Tensor, name, self._heard(getattr(torch.Tensor, name)))
                torch.cuda.set_sync_debug_mode("warn")
                step()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            patches.undo()
            hook.remove()

    def _warned(self, message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchronizing CUDA operation" not in str(message):
            return
        if (line := users_line(sys._getframe(1))) is not None:
            self.facts["blocking" if self._copies else "waits"][line] += 1

    def _heard(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        def heard(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.is_cuda:
                return copy(tensor, *args, **kwargs)
            self._copies += 1
            try:
                there = copy(tensor, *args, **kwargs)
            finally:
                self._copies -= 1
            pageable = kwargs.get("non_blocking") and there.is_cuda and tensor.layout is torch.strided and not tensor.is_pinned()
            if pageable and (line := users_line(sys._getframe(1))) is not None:
                self.facts["pageable"][line] += 1
            return there

        return heard

    def _called(self, module: nn.Module, inputs: Any) -> None:
        if not isinstance(module, nn.Linear) or module.weight.dtype is not torch.float32 or not module.weight.is_cuda:
            return
        capable = torch.cuda.get_device_capability(module.weight.device) >= TENSOR_CORES
        if capable and not torch.is_autocast_enabled("cuda") and torch.get_float32_matmul_precision() == "highest":
            self.facts["full_precision"] += module.weight.numel()
