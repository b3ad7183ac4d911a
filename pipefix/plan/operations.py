"""Tells what the operations of a pipeline do, by their names: which decode pictures, which tokenise, which are random."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from pipefix.diagnosis.diagnosis import Diagnosis, OpCost
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Measurement, charges_of
from pipefix.vocabulary.stage import Stage

_PICTURE = re.compile(r"PIL|Image|jpe?g|png|webp|imread|imdecode|decode_image|read_image|imageio|pil_loader", re.IGNORECASE)
_TOKENS = re.compile(
    r"(tokenizers?|tiktoken|sentencepiece)[.(]|.*(tokeni[sz]|encode_plus|encode_batch|bpe|wordpiece|sentencepiece).* at ",
    re.IGNORECASE,
)
"""Of libraries: by the names that hooks give, or called by a line of the user's. One that the user wrote in Python takes what it
takes, of however many texts at once."""
_FIXED = frozenset({
    # Transform objects of torchvision and albumentations.
    "ToTensor", "PILToTensor", "ToTensorV2", "ToImage", "ToPILImage", "ToPureTensor", "ToDtype", "ConvertImageDtype", "ToFloat",
    "FromFloat", "ConvertBoundingBoxFormat", "Normalize", "Resize", "CenterCrop", "FiveCrop", "TenCrop", "Pad", "PadIfNeeded",
    "Grayscale", "ToGray", "LongestMaxSize", "SmallestMaxSize",
    # Functions, whatever module they belong to. Crops and flips are not among them: their arguments may be drawn.
    "to_tensor", "pil_to_tensor", "to_pil_image", "to_image", "to_dtype", "convert_image_dtype", "normalize", "resize",
    "center_crop", "five_crop", "ten_crop", "thumbnail", "to_grayscale", "rgb_to_grayscale", "grayscale_to_rgb", "grayscale",
    "convert", "cvtColor", "contain", "cover", "fit", "asarray", "array", "as_tensor", "from_numpy",
})  # fmt: skip
"""Operations that give the same result for the same sample every time."""
_CONTAINERS = frozenset({"Compose", "Sequential", "StandardTransform", "ModuleList"})
_GLUE = 0.05
"""The user's own code between operations counts as one of them above this part of its stage."""


@dataclass(frozen=True)
class Operations:
    pictures: tuple[str, ...]
    """Names of operations that decode pictures."""
    tokenisers: tuple[OpCost, ...]
    augment: tuple[OpCost, ...]
    """In the order in which a sample meets them."""
    same: bool = False
    """Whether whole samples came out the same again: then none of them is random, whatever its name."""
    kept: frozenset[str] = frozenset()
    """Names of those that a conversion was seen to keep."""

    @property
    def fixed(self) -> tuple[OpCost, ...]:
        """The augmentations whose results can be kept: those before the first one that may be random, and those that were."""
        before = list(takewhile(lambda op: self.same or is_fixed(op.name), self.augment))
        return tuple(op for op in self.augment if op.name not in _CONTAINERS and (op in before or op.name in self.kept))

    @property
    def first_random(self) -> str | None:
        """The first operation that is, or may be, random; None where all are fixed."""
        return next((op.name for op in self.augment if not self.same and not is_fixed(op.name)), None)

    @property
    def same_by_trial(self) -> bool:
        """Whether nothing but that tells that they give the same every time."""
        return self.same and not (self.augment and all(is_fixed(op.name) for op in self.augment))

    @property
    def all_fixed(self) -> bool:
        return self.first_random is None


def is_fixed(name: str) -> bool:
    """Whether the name is known for giving the same every time; an unknown function may be random."""
    return name in _CONTAINERS or name.rpartition(".")[2] in _FIXED


def operations_of(measurement: Measurement, diagnosis: Diagnosis) -> Operations:
    # As they were first met: a batch's charges list them so.
    names = dict.fromkeys(charge.op for charge in charges_of(measurement.rows("real")[:8]))
    order = {name: place for place, name in enumerate(names)}
    met = sorted(diagnosis.stages[Stage.AUGMENT].ops, key=lambda op: order.get(op.name, len(order)))
    whole = sum(op.wall_s for op in met)
    augment = tuple(op for op in met if op.name not in OWN_NAMES or op.wall_s > _GLUE * whole)
    tokenisers = tuple(op for op in (*diagnosis.stages[Stage.DECODE].ops, *augment) if _TOKENS.match(op.name))
    kept = frozenset(name.partition("(")[0] for tried in measurement.tried_caches.values() for name in tried.kept)
    return Operations(pictures_of(diagnosis), tokenisers, augment, measurement.same_every_time, kept)


def pictures_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Names of operations that decode pictures."""
    names = (op.name for op in diagnosis.stages[Stage.DECODE].ops)
    return tuple(name for name in names if _PICTURE.search(name) and not name.startswith("SimpleITK."))  # volumes
