"""librosa: loading decodes (and resamples, which is told apart); effects and features work on samples.

Its parts come when they are first asked for, which is after the seams have: they are imported here.
"""

from __future__ import annotations

import contextlib
import importlib
import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "librosa.core.audio"

_AUGMENTING = {
    "core.audio": ("resample", "to_mono", "mu_compress", "mu_expand", "autocorrelate", "lpc", "zero_crossings"),
    "core.spectrum": ("stft", "istft", "griffinlim", "phase_vocoder", "magphase", "power_to_db", "db_to_power", "amplitude_to_db",
                      "db_to_amplitude", "perceptual_weighting", "fmt", "pcen"),
    "core.constantq": ("cqt", "vqt", "icqt"),
    "effects": ("hpss", "harmonic", "percussive", "time_stretch", "pitch_shift", "remix", "trim", "split", "preemphasis",
                "deemphasis"),
    "feature.spectral": ("melspectrogram", "mfcc", "chroma_stft", "chroma_cqt", "spectral_centroid", "spectral_bandwidth",
                         "spectral_contrast", "spectral_rolloff", "rms", "zero_crossing_rate", "tonnetz", "poly_features"),
}  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    audio = sys.modules[LIBRARY]
    patches.replace(audio, "load", whole(tap, audio.load, "librosa.load", ("offset", "duration")), everywhere=True)
    for module, names in _AUGMENTING.items():
        with contextlib.suppress(ImportError):  # of a release that has it elsewhere
            cut_each(tap, patches, importlib.import_module(f"librosa.{module}"), names, Stage.AUGMENT, "librosa")
