"""What a target can do, and whether it can be had here at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipefix.augment import ops
from pipefix.augment.operation import Op
from pipefix.vocabulary.extras import need

TARGETS = ("kornia", "dali", "tensor")

_KORNIA: dict[type, str] = {
    ops.Jpeg: "Kornia's differentiable codec lies 1.8/255 from libjpeg, and a GPU has no other here",
}
_TENSOR: dict[type, str] = {}


def why_not(op: Op, target: str) -> str | None:
    """Why the target does not do the operation; None where it does."""
    if isinstance(op, ops.Untranslatable):
        return op.why
    for listed in op.within:
        for one in listed:
            why = why_not(one, target)
            if why:
                return f"{type(one).__name__} in it: {why}"
    if target == "dali":
        from pipefix.augment import dali_graph

        # The size is taken as fixed: it is, after a crop.
        return dali_graph.why_not(op, (224, 224))
    return (_KORNIA if target == "kornia" else _TENSOR).get(type(op))


def why_not_any(listed: Sequence[Op], target: str) -> str | None:
    return next((why for op in listed if (why := why_not(op, target))), None)


def check(target: str) -> None:
    """Refuse a target that cannot be had here, with what to install."""
    if target == "kornia":
        need("kornia", extra="all", why="The target kornia")
    elif target == "dali":
        # Its distributions are named for the CUDA that they are built for, which must be torch's.
        need("nvidia.dali", extra="dali-cuda12" if (torch.version.cuda or "").startswith("12.") else "dali", why="The target dali")


def gpu_declined(target: str) -> str | None:
    """Why the target runs on the CPU here."""
    if not torch.cuda.is_available():
        return f"there is no CUDA device here (torch {torch.__version__}): {target} was run on the CPU"
    if target != "dali":
        return None
    from nvidia.dali import backend

    built = str(getattr(backend, "CUDA_VERSION", "") or _dali_cuda())
    driver = (torch.version.cuda or "").split(".")[0]
    if built and driver and built.split(".")[0] != driver:
        return (
            f"DALI here is built for CUDA {built}, PyTorch for {torch.version.cuda}: its batches cannot be handed over. "
            f"Install the DALI of that version: pip install nvidia-dali-cuda{driver}0"
        )
    return None


def _dali_cuda() -> str:
    """The CUDA version in the name of the installed distribution."""
    from importlib.metadata import distributions

    names = [found.metadata["Name"] or "" for found in distributions()]
    found = next((name for name in names if name.startswith("nvidia-dali-cuda")), "")
    digits = found.removeprefix("nvidia-dali-cuda")
    return f"{digits[:2]}.{digits[2:]}" if digits else ""
