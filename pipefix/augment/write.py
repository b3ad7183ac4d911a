"""Writes a swap as a short file that imports pipefix: the list of operations, to be read and edited, and what makes it run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pprint import pformat
from typing import Any

from pipefix.augment.split import Split

_WIDTH = 120
_MODULE = '''"""The augmentation of {name} as one module for whole batches, on any device. Written by `pipefix swap`.
{stays}
Use it so:

    augment = augmentation()

    for images, labels in loader:
        images, labels = augment((images.to(device), labels.to(device)))
"""

from pipefix.augment import swap
from pipefix.augment.ops import {names}

OPS = {ops}


def augmentation(seed={seed}, **settings):
    """The module. Its numbers belong to each sample: call set_epoch(epoch) on it at the beginning of every epoch."""
    return swap.build({target!r}, OPS, seed=seed, first={first}, **settings)
'''
_LOADER = '''"""The pipeline of {name} in DALI, from files to batches. Written by `pipefix swap`.

Use it so:

    loader = batches(files, labels=labels, batch_size=256, shuffle=True, device="cuda")

    for epoch in range(90):
        loader.set_epoch(epoch)
        for images, labels in loader:
            ...
"""

from pipefix.augment import swap
from pipefix.augment.ops import {names}

OPS = {ops}


def batches(source, seed={seed}, **settings):
    """Batches of an epoch, again and again; what DALI does not compute is done to them by Kornia's module."""
    return swap.dali_loader(source, OPS, seed=seed, **settings)
'''


def code(split: Split, *, seed: int = 0, name: str = "your dataset") -> str:
    """The text of the file for a split.

    Args:
        split: What moves (the file's operations) and what stays in the dataset (named in its docstring).
        seed: Of the random numbers; the file's function takes another.
        name: What the transforms were read from, for the docstring.

    Raises:
        ValueError: An operation holds something that cannot be written down, such as a function.
    """
    stays = "".join(f"    {read.name}\n" for read in split.stays)
    text = (_LOADER if split.target == "dali" else _MODULE).format(
        name=name.replace("\\", "/").replace('"""', "'''"),
        stays=f"\nIn the dataset these stay, followed by the step to a tensor of bytes:\n\n{stays}" if stays else "",
        names=_sorted_names(split.ops),
        ops=pformat(split.ops, width=_WIDTH),
        seed=seed,
        target=split.target,
        first=sum(len(read.ops) for read in split.stays),
    )
    for op in split.ops:
        try:
            compile(repr(op), "op", "eval")
        except SyntaxError as error:
            raise ValueError(f"{type(op).__name__} has settings that cannot be written down: {op!r}.") from error
    return text


def _sorted_names(listed: Any) -> str:
    return ", ".join(sorted({type(op).__name__ for op in _every(listed)}))


def _every(value: Any) -> Iterator[Any]:
    """Every operation, and what its settings hold that has a class of ours."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _every(getattr(value, field.name))
    elif isinstance(value, tuple):
        for member in value:
            yield from _every(member)
