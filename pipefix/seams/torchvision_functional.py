"""torchvision's functional transforms, old and new, called outside any transform object. Inside one they belong to it."""

from __future__ import annotations

import functools
import sys
from typing import Any

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "torchvision.transforms"

_BOTH = (
    "to_tensor", "pil_to_tensor", "to_pil_image", "normalize", "resize", "pad", "crop", "center_crop", "resized_crop", "hflip",
    "vflip", "perspective", "five_crop", "ten_crop", "adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue",
    "adjust_gamma", "adjust_sharpness", "rotate", "affine", "to_grayscale", "rgb_to_grayscale", "erase", "gaussian_blur", "invert",
    "posterize", "solarize", "autocontrast", "equalize", "elastic_transform", "convert_image_dtype",
)  # fmt: skip
_NEW = ("to_image", "to_dtype", "elastic", "gaussian_noise", "horizontal_flip", "vertical_flip", "grayscale_to_rgb", "jpeg",
        "permute_channels", "uniform_temporal_subsample", "sanitize_bounding_boxes", "clamp_bounding_boxes",
        "convert_bounding_box_format")  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    import torchvision.transforms.functional as functional

    for name in _BOTH:
        cut(tap, patches, functional, name, Stage.AUGMENT, f"F.{name}")
    second = sys.modules.get("torchvision.transforms.v2.functional")
    if second is not None:
        _install_v2(tap, patches, second)


def _install_v2(tap: Tap, patches: Patches, functional: Any) -> None:
    """The new transforms look kernels up by function, so a replaced function is entered beside the one it stands for."""
    from torchvision.transforms.v2.functional import _utils

    kernels: dict[Any, Any] = _utils._KERNEL_REGISTRY
    for name in (*_BOTH, *_NEW):
        original = getattr(functional, name, None)
        if original is None:
            continue
        cut(tap, patches, functional, name, Stage.AUGMENT, f"v2.F.{name}")
        if original in kernels:
            wrapper = getattr(functional, name)
            kernels[wrapper] = kernels[original]
            patches.on_undo(functools.partial(kernels.pop, wrapper, None))
