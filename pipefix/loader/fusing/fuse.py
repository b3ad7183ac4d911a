"""Compiles a list of transforms with decoding into one native call a sample, which writes into the batch without the GIL.

Random choices are those that the list itself makes when torch's generator is seeded with the same key. What the kernel does not
decode (CMYK, other formats, damage) is decoded by the library whose pictures enter the list, with its own errors; what it cannot
follow (a crop that pads) is for the list itself to make, with the same key.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Kernel, best
from pipefix.kernels.request import Data, Target
from pipefix.loader.fusing.errors import CannotFollow, NotFused
from pipefix.loader.fusing.picture_loading import BY_PILLOW, PictureLoading, by_pillow, by_torchvision
from pipefix.loader.fusing.pixel_difference import KEYS, PixelDifference, difference, pictures
from pipefix.loader.fusing.recipe import FusedRecipe
from pipefix.loader.fusing.recognise import recognise
from pipefix.loader.fusing.sample_random import seeded
from pipefix.vocabulary.quantity import counted


def fuse(transform: Any, loading: PictureLoading = BY_PILLOW, *, mode: str = "close", kernel: Kernel | None = None) -> Fused:
    """Compile a transform list, or raise `NotFused`. The outcome has been tried, and carries its measured ``difference``.

    ``loading``: how pictures enter the list.
    ``mode``: ``exact`` gives the list's own pixels to the bit or declines; ``close`` may differ a little where that is quicker.
    """
    recipe = recognise(transform, source=loading.source)
    exact = mode == "exact"
    if exact and recipe.inexact:
        raise NotFused(f"{recipe.inexact}, so that pixels would not be equal to the bit")
    fused = Fused(transform, recipe, loading, exact=exact, kernel=kernel or best())
    fits = [picture for picture in pictures() if fused.size_of(picture)]
    if not fits:
        raise NotFused("no drawn picture is large enough to try it on")
    tried = [(picture, key) for picture in fits for key in KEYS]
    apart = difference([fused.sample(*each) for each in tried], [fused.own(*each) for each in tried], recipe.finish.level())
    if (exact and apart.max > 0) or not apart.close:
        raise NotFused(f"tried on drawn pictures, {apart.sentence()}")
    fused.difference = apart
    fused.elsewhere.clear()
    return fused


class Fused:
    """A compiled list. Calls may come from any number of threads."""

    def __init__(self, transform: Any, recipe: FusedRecipe, loading: PictureLoading, *, exact: bool, kernel: Kernel) -> None:
        self.transform = v2.Compose(list(transform)) if isinstance(transform, (list, tuple)) else transform
        self.recipe, self.finish, self.loading = recipe, recipe.finish, loading
        self.exact, self.kernel = exact, kernel
        self.difference: PixelDifference | None = None
        """From the list's own pixels, as measured when it was compiled."""
        self.elsewhere: Counter[str] = Counter()
        """Samples that the kernel did not decode, or not make at all, by why."""

    def jpeg_into(self, data: Data, target: Target, index: int, key: int) -> None:
        """Make sample ``index`` of the batch from an encoded picture. Raises `CannotFollow` where the list itself has to make it.

        Nothing here touches the process's random numbers.
        """
        loading = self.loading
        try:
            header = self.kernel.header(data)
            header.refuse()
            if loading.upright and header.orientation != 1:
                raise BadPicture("unsupported", "it is to be turned upright")
            if loading.source == "pil" and header.width * header.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise BadPicture("too-large", "Pillow warns of as many pixels, or refuses them")
            if not loading.grey and header.components != 3:
                raise CannotFollow("a grey picture")
            cut = self.recipe.cut(header.width, header.height, key, exact=self.exact)
            self.kernel.jpeg_into(data, cut, self.finish, target, index)
        except BadPicture as reason:
            if not loading.every_kind:
                raise CannotFollow(str(reason)) from reason
            picture = self._decoded(data)
            pixels = np.asarray(picture) if loading.source == "pil" else picture.permute(1, 2, 0).numpy()
            if pixels.dtype != np.uint8:
                raise CannotFollow("a picture of more than 8 bits") from reason
            self.pixels_into(pixels, target, index, key)
            self.elsewhere[str(reason)] += 1

    def pixels_into(self, pixels: np.ndarray[Any, Any], target: Target, index: int, key: int) -> None:
        """The same from RGB pixels, height x width x 3 bytes."""
        cut = self.recipe.cut(pixels.shape[1], pixels.shape[0], key, exact=self.exact)
        self.kernel.pixels_into(pixels, cut, self.finish, target, index)

    def sample(self, data: Data, key: int) -> torch.Tensor:
        """One sample by itself, in memory of its own."""
        size = self.size_of(data, key)
        if size is None:
            return self.own(data, key)
        batch = torch.empty((1, 3, *size[::-1]), dtype=torch.uint8 if self.finish.table is None else torch.float32, device="cpu")
        self.jpeg_into(data, Target(batch), 0, key)
        return batch[0]

    def size_of(self, data: Data, key: int = 0) -> tuple[int, int] | None:
        """Width and height of the sample that this picture becomes; None where one call cannot do for it what the list does."""
        try:
            header = self.kernel.header(data)
            window = self.recipe.cut(header.width, header.height, key, exact=self.exact).window
        except (BadPicture, CannotFollow):
            return None
        return window.width, window.height

    def size(self) -> tuple[int, int] | None:
        """Width and height of every sample, where they do not depend on the picture."""
        sizes = {self.size_of(picture, key) for picture in pictures() for key in (0, 1)} - {None}
        return sizes.pop() if len(sizes) == 1 else None

    def own(self, data: Data, key: int) -> torch.Tensor:
        """The same sample as the list itself makes it."""
        picture = self._decoded(data)
        with seeded(key):
            sample: torch.Tensor = self.transform(picture)
        return sample

    def _decoded(self, data: Data) -> Any:
        """What enters the list, decoded as its users do. Raises what their decoder raises."""
        upright = self.loading.upright
        return by_pillow(data, upright) if self.loading.source == "pil" else by_torchvision(data, upright)

    def explain(self) -> str:
        """One sentence: by what, how close, and how many samples went another way."""
        how = "exact" if self.exact else "close"
        measured = f": {self.difference.sentence()}" if self.difference else ""
        others, why = sum(self.elsewhere.values()), self.elsewhere.most_common(1)
        rest = f" {counted(others, 'sample')} went another way, most of them because: {why[0][0]}" if why else ""
        return f"Decode, resize, crop, flip and normalise in one {self.kernel.name} call ({how}){measured}.{rest}"
