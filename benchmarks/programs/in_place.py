"""A pytest plugin: ``torch.utils.data.DataLoader`` is `FastLoader` for whatever is imported after it."""

import torch.utils.data

from pipefix import FastLoader

torch.utils.data.DataLoader = FastLoader  # type: ignore[misc]
