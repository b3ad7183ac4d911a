"""The first transforms of a list, as many as DALI's graph can do, and the numbers that it takes for each picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pipefix.augment.batched import BY_NAME
from pipefix.augment.geometry import mode_name, pair
from pipefix.augment.record import RecordedCall, RecordedImage
from pipefix.augment.transforms import SIZES, TRIALS, ListedTransform, possible_calls
from pipefix.vocabulary.random_state import seeded

INTERPOLATIONS = {"nearest-exact": "INTERP_NN", "bilinear": "INTERP_LINEAR", "bicubic": "INTERP_CUBIC"}
_RANKS = {"resized_crop": 1, "resize": 1, "crop": 2, "center_crop": 2, "horizontal_flip": 3, "to_dtype": 4, "normalize": 5}


@dataclass(frozen=True)
class Front:
    """The beginning of a list as DALI's graph: decode a window, resize, crop, flip, convert. Each is there or not."""

    count: int = 0
    """How many transforms of the list it does."""
    window: bool = False
    """Whether only a window of the file is decoded."""
    resize: tuple[str, bool] | None = None
    """Interpolation and antialiasing."""
    crop: bool = False
    flip: bool = False
    to_float: bool = False
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def numbers(self) -> list[str]:
        """What it is given for each picture, by the names in `numbers_of`."""
        stages = {"start": self.window, "shape": self.window, "size": self.resize is not None}
        stages |= {"corner": self.crop, "extent": self.crop, "mirror": self.flip}
        return [name for name, used in stages.items() if used]


def front_of(parts: Sequence[ListedTransform]) -> Front | str:
    """As many transforms from the front as the graph has, tried on pictures without pixels; or why that is no batch."""
    images = [RecordedImage.of((3, *SIZES[trial % len(SIZES)]), torch.uint8) for trial in range(TRIALS)]
    front, rank, one_size = Front(), 0, False
    for place, part in enumerate(parts):
        called = []
        after = []
        for trial, image in enumerate(images):
            begun = len(image.calls)
            with seeded(trial + 101 * place):
                after.append(part.recorded(image))  # type: ignore[misc]
            called.append(image.calls[begun:])
        called += possible_calls(part.recorded, images[0])
        changed = _with(front, rank, called)
        if changed is None:
            break
        front, rank = replace(changed[0], count=place + 1), changed[1]
        images = after
        one_size = len({tuple(image.shape) for image in images}) == 1
    if not one_size:
        done = ", ".join(part.name for part in parts[: front.count]) or "to decode"
        return f"DALI's part of the list ({done}) leaves pictures of several sizes, which make no batch"
    return front


def _with(front: Front, rank: int, called: Sequence[Sequence[RecordedCall]]) -> tuple[Front, int] | None:
    """The front with one transform more; None where the graph does not have what it calls."""
    names = {call.name for calls in called for call in calls}
    if not names:
        return front, rank
    call = next(call for calls in called for call in calls)
    often = {len(calls) for calls in called}
    if len(names) > 1 or _RANKS.get(call.name, 0) <= rank or often - {0, 1} or (0 in often and call.name != "horizontal_flip"):
        return None
    arguments = call.arguments
    if call.name in ("resized_crop", "resize"):
        mode = mode_name(arguments["interpolation"])
        if mode not in INTERPOLATIONS:
            return None
        resize = (mode, bool(arguments["antialias"]) and mode != "nearest-exact")
        return replace(front, resize=resize, window=front.window or call.name == "resized_crop"), 1
    if call.name in ("crop", "center_crop"):
        first = front.resize is None and call.name == "crop"
        return replace(front, window=front.window or first, crop=front.crop or not first), 2
    if call.name == "horizontal_flip":
        return replace(front, flip=True), 3
    if call.name == "to_dtype":
        return (replace(front, to_float=True), 4) if arguments["dtype"] == torch.float32 and arguments["scale"] else None
    usual = front.to_float and len(arguments["mean"]) == 3
    return (replace(front, mean=tuple(arguments["mean"]), std=tuple(arguments["std"])), 5) if usual else None


def numbers_of(front: Front, calls: Sequence[RecordedCall], height: int, width: int) -> dict[str, Any]:
    """What the graph is given for one picture of these calls: its size is followed on the way."""
    now: Any = (height, width)
    fed: dict[str, Any] = {"start": (0, 0), "shape": now, "size": now, "corner": (0, 0), "mirror": 0}
    for call in calls:
        arguments = call.arguments
        if call.name in ("resized_crop", "crop"):
            corner, extent = (arguments["top"], arguments["left"]), (arguments["height"], arguments["width"])
            if call.name == "resized_crop":
                now = pair(arguments["size"])
                fed |= {"start": corner, "shape": extent, "size": now}
            else:
                now = extent
                fed |= {"start": corner, "shape": extent} if front.resize is None else {"corner": corner}
        elif call.name == "resize":
            row = BY_NAME["resize"]
            assert row.size_after is not None
            now = fed["size"] = row.size_after((3, *now), arguments)[1:]
        elif call.name == "center_crop":
            wanted = pair(arguments["output_size"])
            # A crop larger than the picture is padded first, the smaller half before it.
            fed["corner"] = tuple(
                -((want - side) // 2) if want > side else round((side - want) / 2) for want, side in zip(wanted, now, strict=True)
            )
            now = wanted
        elif call.name == "horizontal_flip":
            fed["mirror"] = 1
    return {**fed, "extent": now}
