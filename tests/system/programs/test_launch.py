"""Programs that pipefix ends after seconds and steps of a real clock."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from tests.programs.conftest import Place


def test_it_is_ended_after_a_time_however_it_takes_that(looping: Callable[..., Place]) -> None:
    place = looping("time.sleep(60)")
    begun = time.monotonic()
    ran = place.run(options=["--seconds", "4"])  # in which even a machine that stands still for a while comes through the loop
    assert time.monotonic() - begun < 55
    assert "KeyboardInterrupt" in ran.err
    assert (ran.code, ran.program.exit_code, ran.program.at_limit) == (0, -signal.SIGINT, True)
    assert ran.program.loops[0].steps == 20


def test_it_is_ended_after_so_many_steps(looping: Callable[..., Place]) -> None:
    # The long sleeps come after steps enough: however late pipefix looks, the program is still at work.
    ran = looping(inside="time.sleep(0.05 if batch < 8 else 20)").run(options=["--steps", "3"])
    assert (ran.code, ran.program.exit_code, ran.program.at_limit) == (0, -signal.SIGINT, True)
    assert 3 <= ran.program.loops[0].steps < 20
