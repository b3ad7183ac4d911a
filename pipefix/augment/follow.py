"""Boxes, points and masks do what their picture did."""

from __future__ import annotations

from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.augment.batch import ImageBatch
from pipefix.augment.single import SINGLE
from pipefix.augment.steps import GEOMETRIC, DrawnStep


def follow(batch: ImageBatch, steps: list[DrawnStep]) -> Any:
    """The whole batch, with what follows the pictures moved as they were."""
    programs: dict[int, list[tuple[DrawnStep, int]]] = {}
    for step in steps:
        if step.name in GEOMETRIC or step.name == "of_boxes":
            for position, row in enumerate(step.rows):
                programs.setdefault(int(row), []).append((step, position))
    for place, sample in batch.followers:
        old = batch.leaves[place]
        if sample is not None:
            batch.leaves[place] = _moved(old, programs.get(sample, []))
        else:
            each = [tv_tensors.wrap(one, like=old) for one in old.as_subclass(torch.Tensor)]
            moved = [_moved(one, programs.get(row, [])) for row, one in enumerate(each)]
            whole = torch.stack([one.as_subclass(torch.Tensor) for one in moved])
            # One box or point a picture: what torchvision made a row of one is a row of all again.
            whole = whole if isinstance(old, tv_tensors.Mask) else whole.reshape(old.shape)
            batch.leaves[place] = tv_tensors.wrap(whole, like=moved[0])
    given = batch.whole()
    for step in steps:
        if step.name == "of_boxes" and step.fixed["kind"].startswith("Sanitize"):
            given = _sanitized(given, step)
    return given


def _moved(leaf: Any, program: list[tuple[DrawnStep, int]]) -> Any:
    for step, position in program:
        if step.name == "of_boxes":
            leaf = _of_boxes(leaf, **step.fixed)
        else:
            leaf = SINGLE[step.name](leaf, **step.scalars(position))
    return leaf


def _of_boxes(leaf: Any, kind: str, settings: dict[str, Any]) -> Any:
    if kind == "mask_dtype":
        return leaf.to(getattr(torch, settings["dtype"])) if isinstance(leaf, tv_tensors.Mask) else leaf
    if kind.startswith("Sanitize") or isinstance(leaf, tv_tensors.Mask):
        return leaf
    return getattr(v2, kind)(**settings)(leaf)


def _sanitized(whole: Any, step: DrawnStep) -> Any:
    """The batch without boxes or points that are empty by now. Each sample has them, and its labels, in a dictionary of its own."""
    clean = getattr(v2, step.fixed["kind"])(**step.fixed["settings"])
    kind = getattr(tv_tensors, step.fixed["kind"].removeprefix("Sanitize"))

    def visit(part: Any) -> Any:
        if isinstance(part, dict):
            return clean(part) if any(isinstance(value, kind) for value in part.values()) else part
        if isinstance(part, (list, tuple)):
            return type(part)(visit(one) for one in part)
        return part

    return visit(whole)
