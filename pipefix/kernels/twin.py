"""The same kernel without native code: torchvision decodes, torch or Pillow resizes, with the same pixels.

Every call lets go of the interpreter's lock for nearly all of its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torchvision  # noqa: F401 - registers its operators
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.header import lacks_scans, read_header
from pipefix.kernels.request import Arithmetic, Box, Data, Finish, PictureCut, Target, require_inside, require_rgb

END = b"\xff\xd9"


class TwinKernel:
    """Decodes whole pictures, then crops. Damage that the decoder passes over in silence is not noticed, other than by `native`."""

    name = "twin"
    header = staticmethod(read_header)

    def jpeg_region(self, data: Data, box: Box) -> np.ndarray[Any, Any]:
        """The pixels of a box as they are, height x width x 3."""
        picture = _decoded(data)
        require_inside(box, picture.shape[2], picture.shape[1])
        part = picture[:, box.y : box.y + box.height, box.x : box.x + box.width]
        return np.ascontiguousarray(part.permute(1, 2, 0).numpy())

    def jpeg_into(self, data: Data, cut: PictureCut, finish: Finish, target: Target, index: int) -> None:
        """Decode a JPEG and write sample ``index``."""
        target.require(cut, finish, index)
        _write(_decoded(data), cut, finish, target.tensor[index])

    def pixels_into(self, pixels: np.ndarray[Any, Any], cut: PictureCut, finish: Finish, target: Target, index: int) -> None:
        """Write sample ``index`` from RGB pixels, height x width x 3 bytes."""
        target.require(cut, finish, index)
        require_rgb(pixels)
        _write(_tensor(pixels).permute(2, 0, 1), cut, finish, target.tensor[index])


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A copy where it may not be written to (bytes, or a file that is mapped): torch has no notion of such memory."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _decoded(data: Data) -> torch.Tensor:
    """3 x height x width of uint8."""
    encoded = np.frombuffer(data, dtype=np.uint8)
    header = read_header(encoded)
    header.refuse()
    if END not in bytes(encoded[-1024:]) and END not in bytes(encoded):
        raise BadPicture("truncated", "the end of the picture is missing")
    if header.progressive and lacks_scans(encoded.data):
        raise BadPicture("unsupported", "its last scans are missing")
    try:
        # torchvision's operator holds no lock.
        return torch.as_tensor(torch.ops.image.decode_jpeg(_tensor(encoded), 3, False), device="cpu")  # 3: ImageReadMode.RGB
    except (RuntimeError, OSError) as error:
        raise BadPicture("corrupt", str(error).split("\n", 1)[0].rstrip(".")) from error


def _write(picture: torch.Tensor, cut: PictureCut, finish: Finish, out: torch.Tensor) -> None:
    box, window = cut.box, cut.window
    require_inside(box, picture.shape[2], picture.shape[1])
    require_inside(window, *cut.full)
    part = picture[:, box.y : box.y + box.height, box.x : box.x + box.width]
    if cut.arithmetic is Arithmetic.TORCH:
        mode = cut.filter.name.lower()
        whole = torch.nn.functional.interpolate(part[None], size=cut.full[::-1], mode=mode, antialias=True)[0]
    else:
        whole = _by_pillow(part, cut)
    wanted = whole[:, window.y : window.y + window.height, window.x : window.x + window.width]
    turned = [axis for axis, yes in ((2, cut.mirrored), (1, cut.upside_down)) if yes]
    _finish(wanted.flip(turned) if turned else wanted, finish, out)


def _by_pillow(part: torch.Tensor, cut: PictureCut) -> torch.Tensor:
    """One axis after the other, in the order that is asked for: which one Pillow itself takes first depends on its version."""
    image = Image.fromarray(np.ascontiguousarray(part.permute(1, 2, 0).numpy()))
    width, height = cut.full
    between = (image.width, height) if cut.down_first else (width, image.height)
    resample = Image.Resampling[cut.filter.name]
    return torch.from_numpy(np.array(image.resize(between, resample).resize(cut.full, resample))).permute(2, 0, 1)


def _finish(picture: torch.Tensor, finish: Finish, out: torch.Tensor) -> None:
    if finish.table is None:
        out.copy_(picture)
    elif finish.ramp is None or finish.rows is None:
        levels = picture.numpy()
        for channel in range(3):
            out[channel].copy_(torch.from_numpy(finish.table[channel][levels[channel]]))
    else:
        _, mean, deviation = torch.from_numpy(finish.rows).T[:, :, None, None]
        out.copy_(picture)  # and then in place: half the time of dividing bytes into floats
        (out.div_ if finish.ramp.divides else out.mul_)(finish.ramp.factor).sub_(mean).div_(deviation)
