"""Native code in place of torchvision's slowest operations on pictures (hue, Gaussian blur) while a sample is made.

The user's transforms call torchvision's functions, in whose place others stand meanwhile. These hand on whatever they do not
know, and give what torchvision gives, to the bit: held against it once a process, a blur at the first picture of every size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import _functional_pil, _functional_tensor
from torchvision.transforms.v2 import functional as v2
from torchvision.transforms.v2.functional import _misc, _utils

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel

MOST_SIZES = 64
"""Of blurs that are remembered; where every picture is of another size, torchvision does it."""
Function = Callable[..., Any]
Known = Callable[[], "NativeKernel | None"]
"""The kernel, for the thread that makes a sample; None for all others."""
Place = tuple[dict[Any, Any], Any]
"""Where a function stands: the names of a module, or a table of torchvision's, and the key there."""


def native_operations(kernel: Known) -> Iterator[tuple[Place, Function]]:
    """Where they stand in this torchvision, and what is to stand there."""
    registered = getattr(_utils, "_KERNEL_REGISTRY", {}).get(v2.adjust_hue, {})
    for names, key in ((vars(_functional_pil), "adjust_hue"), (registered, Image.Image)):
        if key in names:
            yield (names, key), _hue(names[key], kernel)
    for names, name in ((vars(_functional_tensor), "gaussian_blur"), (vars(_misc), "gaussian_blur_image")):
        if name in names and "_get_gaussian_kernel2d" in names:
            yield (names, name), _blur(names[name], names["_get_gaussian_kernel2d"], kernel)


def _hue(own: Function, known: Known) -> Function:
    @functools.wraps(own)
    def adjust_hue(img: Any, hue_factor: float) -> Any:
        kernel = known()
        if kernel is None or not isinstance(img, Image.Image) or img.mode != "RGB" or not -0.5 <= hue_factor <= 0.5:
            return own(img, hue_factor)
        return _turned(kernel, img, hue_factor) if agrees(kernel) else own(img, hue_factor)

    @functools.cache
    def agrees(kernel: NativeKernel) -> bool:
        pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        drawn = [Image.fromarray(pixels >> shift) for shift in (0, 5)]  # the second is nearly grey
        factors = (-0.5, -0.11, 0.0, 0.2, 0.5)
        return all(_turned(kernel, picture, by).tobytes() == own(picture, by).tobytes() for picture in drawn for by in factors)

    return adjust_hue


def _turned(kernel: NativeKernel, picture: Image.Image, factor: float) -> Image.Image:
    shift = int(np.int32(factor * 255).astype(np.uint8))
    return Image.frombytes("RGB", picture.size, kernel.hue_turned(np.asarray(picture), shift))


def _blur(own: Function, weights: Function, known: Known) -> Function:
    same: dict[Any, bool] = {}
    """By the size of the kernel and of the picture: torch may add up in another order for each."""

    @functools.wraps(own)
    def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
        kernel = known()
        if kernel is None or not _fits(img, kernel_size, sigma):
            return own(img, kernel_size, sigma)
        size = (*kernel_size, *img.shape)
        if not same.get(size, len(same) < MOST_SIZES):
            return own(img, kernel_size, sigma)
        weight = weights(kernel_size, sigma, dtype=torch.float32, device=img.device)
        pixels = kernel.blurred(img.permute(1, 2, 0).numpy(), weight.numpy())
        blurred = None if pixels is None else torch.from_numpy(pixels).permute(2, 0, 1)
        if size in same:
            return blurred
        torchvisions = own(img, kernel_size, sigma)
        same[size] = blurred is not None and torch.equal(blurred, torchvisions)
        return torchvisions

    return gaussian_blur


def _fits(img: Any, kernel_size: Any, sigma: Any) -> bool:
    """Bytes of a picture in colour, and figures as torchvision's own transforms give them."""
    if type(img) is not torch.Tensor or img.dtype != torch.uint8 or img.ndim != 3 or img.shape[0] != 3 or img.device.type != "cpu":
        return False
    pairs = all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in (kernel_size, sigma))
    if not pairs or not all(isinstance(deviation, float) and deviation > 0 for deviation in sigma):
        return False
    sides = zip(kernel_size, (img.shape[2], img.shape[1]), strict=True)
    return all(isinstance(side, int) and side % 2 == 1 and 1 <= side <= 255 and side // 2 < room for side, room in sides)
