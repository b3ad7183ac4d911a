"""Chooses the kernel: native code, or its twin (torchvision, torch, Pillow) where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel
    from pipefix.kernels.twin import TwinKernel

Kernel: TypeAlias = "NativeKernel | TwinKernel"
"""Makes one sample of a batch in one call. Both give the same answer, and raise the same errors (`kernels.errors`)."""


def native() -> NativeKernel | None:
    """The native kernel; where there is none, `build.why_not_loaded` says why, and asks a compiler for that."""
    try:
        from pipefix.kernels.native import NativeKernel
    except ImportError:
        return None
    return NativeKernel()


def best() -> Kernel:
    """Native code where it is there, else its twin."""
    from pipefix.kernels.twin import TwinKernel

    return native() or TwinKernel()
