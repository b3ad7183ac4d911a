"""Constants on the device of the pictures, made once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch


@lru_cache(maxsize=256)
def constant(values: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of a number or of a tuple of some: nobody writes to it, and no step waits for its copy again."""
    with torch.inference_mode(False):  # it may be used in training later
        return torch.tensor(values, dtype=dtype, device=device)
