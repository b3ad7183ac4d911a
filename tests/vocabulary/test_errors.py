"""What an error says to people who call pipefix from Python, in the traceback that they see."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from pipefix.vocabulary.errors import BadUsage, CacheDamaged

ADVICE = "Give at least one: trials=8."
NOTED = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 shows no notes")


@NOTED
def test_a_traceback_says_what_to_type_next() -> None:
    program = "import pipefix; pipefix.tune([1, 2], trials=0)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr
    assert told.splitlines()[-2:] == ["pipefix.vocabulary.errors.BadUsage: With 0 trials nothing is tried.", ADVICE]


def test_advice_crosses_processes_and_may_come_later() -> None:
    error = BadUsage("No.", advice="Say yes.")
    error.advise(ADVICE)
    sent = pickle.loads(pickle.dumps(error))
    assert sent.advice == ADVICE and sent.__notes__ == [ADVICE]
    assert str(sent) == "No."


def test_what_is_advised_by_default_is_for_the_command_line() -> None:
    error = CacheDamaged("A record is too short to be one.")
    assert error.advice == CacheDamaged.default_advice and not hasattr(error, "__notes__")
