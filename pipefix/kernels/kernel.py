"""What every kernel does, and which one is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pipefix.kernels import build
from pipefix.kernels.header import Header
from pipefix.kernels.picture import Box, Data, Finish, PictureCut, Target


class Kernel(Protocol):
    """Makes one sample of a batch in one call. All of them give the same answer, and raise the same errors (`kernels.errors`)."""

    name: str

    def header(self, data: Data) -> Header: ...

    def jpeg_region(self, data: Data, box: Box) -> np.ndarray[Any, Any]: ...

    def jpeg_into(self, data: Data, cut: PictureCut, finish: Finish, target: Target, index: int) -> None: ...

    def pixels_into(self, pixels: np.ndarray[Any, Any], cut: PictureCut, finish: Finish, target: Target, index: int) -> None: ...

    def hue_turned(self, pixels: np.ndarray[Any, Any], shift: int) -> np.ndarray[Any, Any]: ...

    def blurred(self, pixels: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None: ...


@dataclass(frozen=True)
class Absent:
    """Why there is no native kernel, and what to type."""

    why: str
    advice: str


def native() -> Kernel | Absent:
    """The native kernel, or why there is none."""
    try:
        from pipefix.kernels.native import NativeKernel
    except ImportError as error:
        return Absent(*build.diagnosis(error))
    return NativeKernel()


def best(name: str = "auto") -> Kernel:
    """``auto``: native code where it is there, else its twin. ``native`` and ``twin`` insist."""
    if name not in ("auto", "native", "twin"):
        raise ValueError(f"A kernel is auto, native or twin, not {name!r}.")
    found = native() if name != "twin" else None
    if isinstance(found, Absent) and name == "native":
        raise ImportError(f"There is no native kernel: {found.why} {found.advice}")
    if found is None or isinstance(found, Absent):
        from pipefix.kernels.twin import TwinKernel

        return TwinKernel()
    return found
