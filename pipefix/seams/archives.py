"""zip and tar files: finding and unpacking a member is decoding, with the reads inside it charged to storage."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = ""
OPAQUE = {"ZipFile.open": "a member read as a stream is timed, but cannot be replaced by a recording; ZipFile.read can"}


def install(tap: Tap, patches: Patches) -> None:
    import tarfile
    import zipfile

    cut(tap, patches, zipfile.ZipFile, "read", Stage.DECODE, "zipfile.ZipFile.read")
    for name in ("read", "read1", "readline", "peek"):
        cut(tap, patches, zipfile.ZipExtFile, name, Stage.DECODE, "zip member stream", replayable=False)
    cut(tap, patches, zipfile.ZipFile, "_RealGetContents", Stage.DECODE, "zip directory", replayable=False)
    cut(tap, patches, tarfile.TarFile, "next", Stage.DECODE, "tar header", replayable=False)
