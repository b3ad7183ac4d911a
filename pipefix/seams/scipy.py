"""SciPy's signal and image functions: they work on values. What a program has not imported is not there to be cut."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "scipy"

_AUGMENTING = {
    "signal": ("resample", "resample_poly", "decimate", "lfilter", "filtfilt", "sosfilt", "sosfiltfilt", "savgol_filter", "medfilt",
               "medfilt2d", "wiener", "hilbert", "detrend", "fftconvolve", "oaconvolve", "convolve", "convolve2d", "correlate",
               "correlate2d", "spectrogram", "stft", "istft", "periodogram", "welch", "find_peaks"),
    "ndimage": ("zoom", "rotate", "shift", "affine_transform", "geometric_transform", "map_coordinates", "spline_filter",
                "gaussian_filter", "gaussian_filter1d", "uniform_filter", "median_filter", "maximum_filter", "minimum_filter",
                "percentile_filter", "sobel", "laplace", "convolve", "convolve1d", "correlate", "correlate1d", "label",
                "binary_erosion", "binary_dilation", "binary_fill_holes", "grey_erosion", "grey_dilation",
                "distance_transform_edt"),
    "fft": ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "fftn", "ifftn", "dct", "idct", "dctn", "idctn"),
}  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    for module, names in _AUGMENTING.items():
        owner = sys.modules.get(f"scipy.{module}")
        if owner is not None:
            cut_each(tap, patches, owner, names, Stage.AUGMENT, f"scipy.{module}")
