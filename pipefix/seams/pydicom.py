"""pydicom: parsing a file and unpacking its pixels are decoding; its files are read through Python's, and seen there."""

from __future__ import annotations

import functools
import sys
from typing import Any

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "pydicom"


def install(tap: Tap, patches: Patches) -> None:
    pydicom = sys.modules[LIBRARY]
    cut_each(tap, patches, pydicom, ("dcmread", "read_file"), Stage.DECODE, "pydicom")
    kind = pydicom.Dataset
    unpacked = kind.pixel_array.fget

    @functools.wraps(unpacked)
    def pixels(self: Any) -> Any:
        return tap.through(Stage.DECODE, "pydicom.Dataset.pixel_array", unpacked, (self,))

    patches.replace(kind, "pixel_array", property(pixels, doc=kind.pixel_array.__doc__))
    for module in ("pixels", "pixel_data_handlers.util"):
        owner = sys.modules.get(f"pydicom.{module}")
        if owner is not None:
            cut_each(tap, patches, owner, ("pixel_array",), Stage.DECODE, f"pydicom.{module}")
            cut_each(tap, patches, owner, ("apply_modality_lut", "apply_voi_lut", "apply_windowing"), Stage.AUGMENT, "pydicom")
