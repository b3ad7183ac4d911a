"""Names pipefix.watch: monitor a loader while a job trains; it lives in `pipefix.watching`."""

from __future__ import annotations

from pipefix.watching.watch import Watch as Watch
from pipefix.watching.watch import watch as watch
