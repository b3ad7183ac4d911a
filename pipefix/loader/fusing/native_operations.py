"""Native code in place of torchvision's slowest operations on pictures (hue, Gaussian blur) while a sample is made.

The user's transforms call torchvision's functions, in whose place others stand meanwhile. These hand on whatever they do not
know, and give what torchvision gives, to the bit: held against it once a process, a blur at the first picture of every size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def native_operations(kernel: Known) -> list[tuple[Place, Function]]:
    """Where they stand in this torchvision, and what is to stand there."""
    operations: list[tuple[Place, Function]] = []
    registered = getattr(_utils, "_KERNEL_REGISTRY", {}).get(v2.adjust_hue, {})
    places: list[Place] = [(vars(_functional_pil), "adjust_hue"), (registered, Image.Image)]
    operations += [((names, key), _hue(names[key], kernel)) for names, key in places if key in names]
    places = [(vars(_functional_tensor), "gaussian_blur"), (vars(_misc), "gaussian_blur_image")]
    for names, key in places:
        weights = names.get("_get_gaussian_kernel2d")
        if weights is not None and key in names:
            operations.append(((names, key), _blur(names[key], weights, kernel)))
    return operations


def _hue(own: Function, known: Known) -> Function:
    @functools.wraps(own)
    def adjust_hue(img: Any, hue_factor: float) -> Any:
        kernel = known()
        if kernel is None or not isinstance(img, Image.Image) or img.mode != "RGB" or not -0.5 <= hue_factor <= 0.5:
            return own(img, hue_factor)
        return _turned(kernel, img, hue_factor) if agrees(kernel) else own(img, hue_factor)

    verdict: list[bool] = []

    def agrees(kernel: NativeKernel) -> bool:
        if not verdict:
            pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            drawn = [Image.fromarray(pixels >> shift) for shift in (0, 5)]  # the second is nearly grey
            factors = (-0.5, -0.11, 0.0, 0.2, 0.5)
            same = (_turned(kernel, picture, by).tobytes() == own(picture, by).tobytes() for picture in drawn for by in factors)
            verdict.append(all(same))
        return verdict[0]

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
        if size not in same:
            torchvisions = own(img, kernel_size, sigma)
            if len(same) < MOST_SIZES:
                blurred = _blurred(kernel, img, weights(kernel_size, sigma, dtype=torch.float32, device=img.device))
                same[size] = blurred is not None and torch.equal(blurred, torchvisions)
            return torchvisions
        if not same[size]:
            return own(img, kernel_size, sigma)
        return _blurred(kernel, img, weights(kernel_size, sigma, dtype=torch.float32, device=img.device))

    return gaussian_blur


def _fits(img: Any, kernel_size: Any, sigma: Any) -> bool:
    """Bytes of a picture in colour, and figures as torchvision's own transforms give them."""
    if type(img) is not torch.Tensor or img.dtype != torch.uint8 or img.ndim != 3 or img.shape[0] != 3 or img.device.type != "cpu":
        return False
    pairs = all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in (kernel_size, sigma))
    return (
        pairs
        and all(isinstance(side, int) and side % 2 == 1 and 1 <= side <= 255 for side in kernel_size)
        and all(isinstance(deviation, float) and deviation > 0 for deviation in sigma)
        and kernel_size[0] // 2 < img.shape[2]
        and kernel_size[1] // 2 < img.shape[1]
    )


def _blurred(kernel: NativeKernel, img: torch.Tensor, weights: torch.Tensor) -> torch.Tensor | None:
    blurred = kernel.blurred(img.permute(1, 2, 0).numpy(), weights.numpy())
    return None if blurred is None else torch.from_numpy(blurred).permute(2, 0, 1)
