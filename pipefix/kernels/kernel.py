"""Chooses the kernel: native code, or its twin (torchvision, torch, Pillow) where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pipefix.kernels import build

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel
    from pipefix.kernels.twin import TwinKernel

Kernel: TypeAlias = "NativeKernel | TwinKernel"
"""Makes one sample of a batch in one call. Both give the same answer, and raise the same errors (`kernels.errors`)."""


@dataclass(frozen=True)
class Absent:
    """Why there is no native kernel, and what to type."""

    why: str
    advice: str


def native() -> NativeKernel | Absent:
    """The native kernel, or why there is none."""
    try:
        from pipefix.kernels.native import NativeKernel
    except ImportError as error:
        return Absent(*build.diagnosis(error))
    return NativeKernel()


def best(name: str = "auto") -> Kernel:
    """``auto``: native code where it is there, else its twin. ``native`` and ``twin`` insist."""
    if name not in ("auto", "native", "twin"):
        raise ValueError(f"A kernel is auto, native or twin, not {name!r}.")
    kernel = native() if name != "twin" else None
    if isinstance(kernel, Absent) and name == "native":
        raise ImportError(f"There is no native kernel: {kernel.why} {kernel.advice}")
    if kernel is None or isinstance(kernel, Absent):
        from pipefix.kernels.twin import TwinKernel

        return TwinKernel()
    return kernel
