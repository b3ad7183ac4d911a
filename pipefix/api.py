"""The verbs under one roof: the command line and the library make the same calls."""

from __future__ import annotations

from pipefix.verbs.convert import convert as convert
from pipefix.verbs.convert import forecast as forecast
from pipefix.verbs.doctor import doctor as doctor
from pipefix.verbs.fix import fix as fix
from pipefix.verbs.fix import undo as undo
from pipefix.verbs.probe import probe as probe
from pipefix.verbs.swap import swap as swap
from pipefix.verbs.tune import tune as tune
from pipefix.verbs.verify import verify as verify
from pipefix.verbs.watch import follow as follow
from pipefix.verbs.watch import watch as watch
