"""soundfile: libsndfile reads and decodes. A file that is read whole is brought in first; of a part of one all is decoding."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "soundfile"
OPAQUE = {"soundfile.SoundFile.read": "a part of a file is read and decoded in one call; all of it is charged to decode"}


def install(tap: Tap, patches: Patches) -> None:
    soundfile = sys.modules[LIBRARY]
    read = whole(tap, soundfile.read, "soundfile.read", ("frames", "start", "stop"))
    patches.replace(soundfile, "read", read, everywhere=True)
    kind = soundfile.SoundFile
    cut_each(tap, patches, kind, ("__init__", "buffer_read_into"), Stage.DECODE, "soundfile.SoundFile", replayable=False)
    cut_each(tap, patches, kind, ("read", "buffer_read"), Stage.DECODE, "soundfile.SoundFile")
    cut_each(tap, patches, soundfile, ("info",), Stage.DECODE, "soundfile")
