"""torchaudio: loading decodes, and its functions work on samples. Transforms that a dataset holds are cut as the user's own are."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "torchaudio"

_PARTS = ("frame_offset", "num_frames")
_FUNCTIONS = (
    "resample", "spectrogram", "inverse_spectrogram", "griffinlim", "amplitude_to_DB", "DB_to_amplitude", "compute_deltas",
    "create_dct", "melscale_fbanks", "mu_law_encoding", "mu_law_decoding", "phase_vocoder", "pitch_shift", "speed", "fftconvolve",
    "sliding_window_cmn", "spectral_centroid", "apply_codec", "vad", "gain", "dither", "fade", "lfilter", "filtfilt", "biquad",
    "highpass_biquad", "lowpass_biquad", "bandpass_biquad", "equalizer_biquad", "treble_biquad", "bass_biquad", "overdrive",
    "contrast", "convolve", "add_noise", "preemphasis", "deemphasis", "loudness", "mask_along_axis", "mask_along_axis_iid",
    "detect_pitch_frequency",
)  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    torchaudio = sys.modules[LIBRARY]
    patches.replace(torchaudio, "load", whole(tap, torchaudio.load, "torchaudio.load", _PARTS), everywhere=True)
    cut_each(tap, patches, torchaudio, ("info",), Stage.DECODE, "torchaudio")
    for module, names in (("functional", _FUNCTIONS), ("compliance.kaldi", ("fbank", "mfcc", "spectrogram"))):
        owner = sys.modules.get(f"torchaudio.{module}")
        if owner is not None:
            cut_each(tap, patches, owner, names, Stage.AUGMENT, f"torchaudio.{module}")
