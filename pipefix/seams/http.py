"""HTTP of the standard library: the connections and responses of `http.client`. Timed only; clients above it can be replayed."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "http.client"


def install(tap: Tap, patches: Patches) -> None:
    import http.client

    for name in ("request", "getresponse"):
        cut(tap, patches, http.client.HTTPConnection, name, Stage.STORAGE, f"http.client.{name}", replayable=False)
    for name in ("read", "readinto", "read1", "readline", "peek"):
        cut(tap, patches, http.client.HTTPResponse, name, Stage.STORAGE, f"http.client.HTTPResponse.{name}", replayable=False)
