"""Whether the targets of a swap (Kornia, DALI) can be had here, and what to install where they cannot."""

from __future__ import annotations

from importlib.metadata import distributions

import torch

from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.extras import need


def check(target: str) -> None:
    """Refuse a target that there is not, or that cannot be had here, with what to install. Kornia comes with pipefix."""
    if target not in ("kornia", "dali"):
        raise BadUsage(f"There is no {target!r} to choose.", advice="Choose one of kornia, dali.")
    if target == "dali":
        # Its distributions are named for the CUDA that they are built for, which must be torch's.
        cuda = 120 if (torch.version.cuda or "").startswith("12.") else 130
        need("nvidia.dali", package=f"nvidia-dali-cuda{cuda}", why="The target dali")


def gpu_declined(target: str) -> str | None:
    """Why the target runs on the CPU here."""
    if not torch.cuda.is_available():
        return f"there is no CUDA device here (torch {torch.__version__}): {target} runs on the CPU"
    if target != "dali":
        return None
    # The major version of CUDA stands in the name of the distribution, if it is one of these.
    names = [distribution.metadata["Name"] or "" for distribution in distributions()]
    built = next((name.removeprefix("nvidia-dali-cuda")[:2] for name in names if name.startswith("nvidia-dali-cuda")), "")
    driver = (torch.version.cuda or "").split(".")[0]
    if built and driver and built != driver:
        return (
            f"DALI here is built for CUDA {built}, PyTorch for {torch.version.cuda}: its batches cannot be handed over. "
            f"Install the DALI of that version: pip install nvidia-dali-cuda{driver}0"
        )
    return None
