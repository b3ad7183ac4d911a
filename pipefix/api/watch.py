"""Names pipefix.watch (monitor a loader while a job trains) and follow (from outside the job); both live in `pipefix.watching`."""

from __future__ import annotations

from pipefix.watching.follow import follow as follow
from pipefix.watching.watch import Watch as Watch
from pipefix.watching.watch import watch as watch
