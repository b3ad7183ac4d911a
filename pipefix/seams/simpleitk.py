"""SimpleITK: reading an image decodes it, as does turning it into an array; its filters work on pixels."""

from __future__ import annotations

import sys

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "SimpleITK"
OPAQUE = {"SimpleITK.ImageFileReader.Execute": "reading and decoding are one call; all of it is charged to decode"}

_PIXELS = ("Resample", "RescaleIntensity", "IntensityWindowing", "Normalize", "Clamp", "Cast", "DiscreteGaussian",
           "SmoothingRecursiveGaussian", "CurvatureFlow", "CurvatureAnisotropicDiffusion", "N4BiasFieldCorrection",
           "HistogramMatching", "AdaptiveHistogramEqualization", "Median", "Crop", "ConstantPad", "MirrorPad", "Flip",
           "PermuteAxes", "DICOMOrient", "RegionOfInterest", "OtsuThreshold", "BinaryThreshold", "Expand", "Shrink",
           "BinShrink")  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    itk = sys.modules[LIBRARY]
    fresh.register(itk.Image, itk.Image, _bytes)
    patches.replace(itk, "ReadImage", whole(tap, itk.ReadImage, "SimpleITK.ReadImage"), everywhere=True)
    cut_each(tap, patches, itk, ("GetArrayFromImage",), Stage.DECODE, "SimpleITK")
    for name in ("ImageFileReader", "ImageSeriesReader"):
        cut_each(tap, patches, getattr(itk, name), ("Execute",), Stage.DECODE, f"SimpleITK.{name}")
    cut_each(tap, patches, itk, _PIXELS, Stage.AUGMENT, "SimpleITK")
    cut_each(tap, patches, itk.ResampleImageFilter, ("Execute",), Stage.AUGMENT, "SimpleITK.ResampleImageFilter")


def _bytes(image: object) -> int:
    count = image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel()  # type: ignore[attr-defined]
    return int(count) * int(image.GetSizeOfPixelComponent())  # type: ignore[attr-defined]
