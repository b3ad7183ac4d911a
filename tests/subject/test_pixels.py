"""What counts as pixels: also subclasses of tensors and arrays, and the frames of libraries that have a kind of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipefix.subject.staging import data_stage
from pipefix.vocabulary.stage import Stage


def foreign(name: str, module: str, *bases: type, **members: object) -> type:
    return type(name, bases or (object,), {"__module__": module, **members})


def test_a_tensor_of_another_librarys_class_is_pixels() -> None:
    meta = torch.zeros(1, 4, 4).as_subclass(foreign("MetaTensor", "monai.data.meta_tensor", torch.Tensor))
    assert data_stage([3, meta]) is Stage.AUGMENT
    assert data_stage([{"image": meta}]) is Stage.AUGMENT
    assert data_stage([np.zeros((4, 4)).view(foreign("Picture", "someone.arrays", np.ndarray))]) is Stage.AUGMENT


@pytest.mark.parametrize(
    ("module", "name"), [("av.video.frame", "VideoFrame"), ("decord.ndarray", "NDArray"), ("SimpleITK.SimpleITK", "Image")]
)
def test_frames_of_decoders_are_pixels(module: str, name: str) -> None:
    assert data_stage([foreign(name, module)()]) is Stage.AUGMENT
    assert data_stage([foreign("Reader", module)()]) is None
    assert data_stage([foreign(name, "someone.else")()]) is None
