"""The verbs under one roof: the command line and the library make the same calls."""

from __future__ import annotations

from pipefix.verbs.convert import Converted as Converted
from pipefix.verbs.convert import Forecast as Forecast
from pipefix.verbs.convert import convert as convert
from pipefix.verbs.convert import forecast as forecast
from pipefix.verbs.doctor import Finding as Finding
from pipefix.verbs.doctor import doctor as doctor
from pipefix.verbs.fix import FixReport as FixReport
from pipefix.verbs.fix import Undone as Undone
from pipefix.verbs.fix import fix as fix
from pipefix.verbs.fix import undo as undo
from pipefix.verbs.inside import in_program as in_program
from pipefix.verbs.probe import Run as Run
from pipefix.verbs.probe import probe as probe
from pipefix.verbs.runs import Comparison as Comparison
from pipefix.verbs.runs import compare as compare
from pipefix.verbs.runs import load as load
from pipefix.verbs.swap import Swapped as Swapped
from pipefix.verbs.swap import swap as swap
from pipefix.verbs.tune import Tuned as Tuned
from pipefix.verbs.tune import tune as tune
from pipefix.verbs.verify import Checked as Checked
from pipefix.verbs.verify import verify as verify
from pipefix.verbs.watch import Watch as Watch
from pipefix.verbs.watch import follow as follow
from pipefix.verbs.watch import watch as watch
