"""``import pipefix.auto`` at the top of a notebook, or of a program that `pipefix run` cannot start, notes what its loops wait for.

`report` says what was seen so far. When the program has ended, ``pipefix show pipefix-run`` says it.
"""

from __future__ import annotations

from pipefix.api.observe import begin
from pipefix.api.observe import report as report

begin()
