"""torchvision.io: ``read_file`` maps the file, so its pages are touched under the storage clock; the decoders get the bytes.

While recording, and where it is answered from a recording, the file is read by Python's ``open``, whose reads are hooked.

Decoders that take a path are split into the read and the decode they consist of (which is how torchvision itself is written).
"""

from __future__ import annotations

import contextlib
from typing import Any

from pipefix.hooks.calls import Patches, SampleTimer, Stage, hook

LIBRARY = "torchvision.io"


def install(timer: SampleTimer, patches: Patches) -> None:
    from torch import Tensor, empty, frombuffer, uint8
    from torchvision.io import image

    from pipefix.hooks.numpy import touch

    read_file, decode_original = image.read_file, image.decode_image

    def read(path: Any) -> Any:
        data = read_file(path)
        touch(data.numpy())
        timer.bytes_read += data.numel()
        return data

    @hook(timer, patches, image, "read_file")
    def timed_read_file(path: Any) -> Any:
        if timer.owns and timer.tapes(Stage.STORAGE):
            with contextlib.suppress(OSError, TypeError), open(path, "rb", buffering=0) as file:  # the original says what is wrong
                data = bytearray(file.read())
                return frombuffer(data, dtype=uint8) if data else empty(0, dtype=uint8)
        return timer.timed_call(Stage.STORAGE, "torchvision.io.read_file", read, (path,))

    @hook(timer, patches, image, "decode_image")
    def decode_image(input: Any, *args: Any, **kwargs: Any) -> Any:
        data = input if isinstance(input, Tensor) else timed_read_file(str(input))
        return timer.timed_call(Stage.DECODE, "torchvision.io.decode_image", decode_original, (data, *args), kwargs)
