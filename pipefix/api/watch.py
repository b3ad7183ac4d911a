"""watch: figures of a loader while a job runs, and word of what drifts; follow: the same, seen from outside the job."""

from __future__ import annotations

from pipefix.watching.follow import follow as follow
from pipefix.watching.watch import Watch as Watch
from pipefix.watching.watch import watch as watch
