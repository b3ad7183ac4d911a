"""The tuner on a machine that is made up: its limits, its interrupts, and what it leaves running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipefix.report.tune_report import ConsumerName, TuneReporter
from pipefix.tuning.block_figures import TrialBlock
from pipefix.tuning.limits import BatchCost, Footprint, ResourceLimits, StartTimes, Usage, ending, refusal
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialEnded, Watch
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.settings import LoaderSettings
from tests.tuning import grids
from tests.tuning.grids import Grid
from tests.tuning.limited import made_up
from tests.tuning.machine import Appetite, FakeTrial, Machine, breaches, planned, tuned

BY_NAME = {grid.name: grid for grid in grids.every()}
EIGHT = BY_NAME["eight-cores"]


def test_the_winner_is_confirmed_and_nothing_is_left_running() -> None:
    machine = Machine(EIGHT)
    result = tuned(machine)
    assert result.kept is None
    assert 6 <= result.chosen.workers <= 16
    assert result.before is not None and result.after is not None
    assert result.after.value / result.before.value > 5
    assert result.before.low < result.before.value < result.before.high
    assert machine.started[-1] == Settings(1), "the start runs once more beside the winner"
    assert not machine.running
    assert result.blocks


def test_steps_that_are_compiled_first_do_not_eat_the_budget() -> None:
    """Each trial is a process of its own, in which the step is compiled anew."""
    plain, compiling = Machine(EIGHT), Machine(EIGHT, compiling=40.0)
    without_compiling, with_compiling = tuned(plain), tuned(compiling)
    assert len(compiling.started) == len(plain.started) > 3
    assert with_compiling.chosen == without_compiling.chosen


@pytest.mark.parametrize("workers", [0, 2])
def test_settings_that_would_take_the_budget_to_start_are_not_tried(workers: int) -> None:
    """Of a pipeline that waits, 104 workers were the second trial of 12 s on two cores, and took 40 s."""
    machine = Machine(BY_NAME["far-store-wide"], starting=lambda count: 0.1 + 0.1 * count)
    result = tuned(machine, Settings(workers), budget=12.0)  # fake clock
    assert machine.now < 14
    assert result.chosen.workers >= 4, "more workers were tried all the same"
    assert any("starting its workers would take about" in trial.reason for trial in result.tried if trial.status == "refused")


def test_slow_batches_are_no_slow_start() -> None:
    """Batches of 0.8 s: with a budget of 8 s not even one worker was tried."""
    slow = Grid("slow-batches", 8, lambda count: 20.0 * max(1, min(count, 8)))
    machine = Machine(slow, starting=lambda count: 0.8 + 0.02 * count)
    result = tuned(machine, Settings(0), budget=8.0)  # fake clock
    assert [trial for trial in result.tried if trial.ran and trial.settings.workers]


def test_a_trial_that_starts_slower_than_anybody_could_foresee_is_ended() -> None:
    machine = Machine(EIGHT, starting=lambda count: 0.5 if count < 5 else 500.0)
    result = tuned(machine, Settings(4), budget=30.0)  # fake clock
    assert machine.now < 36
    slow = [trial for trial in result.tried if trial.status == "ended"]
    assert slow and all("not measured by the time that the budget of 30 s leaves it" in trial.reason for trial in slow)
    assert not machine.running and result.chosen.workers <= 4


def test_the_start_itself_is_always_measured() -> None:
    """It is what the user has, however long its workers take to start."""
    machine = Machine(EIGHT, starting=lambda _: 20.0)
    result = tuned(machine, Settings(4), budget=10.0)  # fake clock
    assert [trial.settings.workers for trial in result.tried if trial.ran][:1] == [4]
    assert result.before is not None


class Unfed(Machine):
    """A machine whose trials could not feed the model of the target's file."""

    def look(self, settings: Settings, watch: Watch) -> BatchCost:
        return replace(super().look(settings, watch), why_none="TypeError: no")


def test_where_the_model_cannot_be_fed_the_loader_alone_is_tuned() -> None:
    machine = Unfed(grids.FED[0])
    result, plan = tuned(machine, most_trials=2), planned(machine)
    consumer = ConsumerName("none", present=False, why_none="TypeError: no")
    certificate = TuneReporter("data.py", LoaderSettings(), plan, result, consumer).certificate()
    assert (certificate.fed, certificate.stall, certificate.demand) == (None, None, None)
    assert (
        "no consumer to feed, because a training step made around the file's model failed (TypeError: no)" in certificate.sentence
    )


def test_the_certificate_tells_the_pace_of_all_blocks() -> None:
    """One slow step at the end was told as a consumer that takes less than it was given."""
    machine = Machine(grids.FED[0])
    fast, slow = (TrialBlock(5 * step, 40, (0.0,) * 5, (step,) * 5, (), None, 2, 0.1) for step in (0.01, 0.02))
    result = replace(tuned(machine, most_trials=2), blocks=(fast, fast, fast, slow))
    certificate = TuneReporter("d", LoaderSettings(), planned(machine), result, ConsumerName("step", present=True)).certificate()
    assert certificate.delivered is not None and certificate.demand is not None
    assert certificate.demand == pytest.approx(4 * 40 / 0.25) and certificate.delivered.value < 1.1 * certificate.demand


def test_the_budget_is_kept() -> None:
    machine = Machine(BY_NAME["noisy-usl"])
    tuned(machine, budget=30.0)
    assert machine.now < 36


def test_settings_that_would_break_a_limit_are_told_and_never_started() -> None:
    machine = Machine(EIGHT, Appetite(worker=100e6))
    result = tuned(machine, limits=ResourceLimits(memory_bytes=1.2e9))
    refused = [trial for trial in result.tried if trial.status == "refused"]
    assert refused
    assert all("the limit is 1.20 GB of memory" in trial.reason for trial in refused)
    assert not {trial.settings for trial in refused} & set(machine.started)
    assert breaches(ResourceLimits(memory_bytes=1.2e9), machine.highest) == []


def test_a_trial_that_comes_near_a_limit_is_ended_and_larger_ones_are_left() -> None:
    limits = ResourceLimits(memory_bytes=3e9)
    machine = Machine(EIGHT, Appetite(worker=60e6, crowd=5))
    result = tuned(machine, limits=limits)
    ended = [trial for trial in result.tried if trial.status == "ended"]
    assert ended
    assert "the limit" in ended[0].reason
    assert "3.00 GB of memory" in ended[0].reason
    assert breaches(limits, machine.highest) == []
    assert not machine.running


@pytest.mark.parametrize("seed", range(5))
def test_limits_drawn_at_random(seed: int) -> None:
    facts = made_up(seed, grids.SHAPES)
    assert facts["breaches"] == []
    assert facts["orphans"] == 0


@pytest.mark.parametrize("moment", [0.1, 3.0, 25.0])
def test_an_interrupt_keeps_what_is_known_and_closes_everything(moment: float) -> None:
    machine = Machine(EIGHT, break_at=moment)
    result = tuned(machine)
    assert result.partial
    assert result.chosen == Settings(1)
    assert not machine.running
    assert len([trial for trial in result.tried if trial.status == "run"]) == len(result.tried)


class Failing(Machine):
    """Settings whose trials fail."""

    fails: Callable[[Settings], bool]

    def start(self, settings: Settings, watch: Watch) -> FakeTrial:
        trial = super().start(settings, watch)
        if self.fails(settings) and self.now > 0.2:

            def block(seconds: float) -> object:
                trial.close()
                raise TrialEnded("it failed: dataset[3] raised OSError", error=TargetError("dataset[3] raised OSError"))

            trial.block = block  # type: ignore[method-assign,assignment]
        return trial


def test_a_trial_that_fails_is_told_and_the_others_go_on() -> None:
    machine = Failing(EIGHT)
    machine.fails = lambda settings: settings.workers > 6  # type: ignore[method-assign]
    result = tuned(machine)
    assert "it failed: dataset[3] raised OSError" in [trial.reason for trial in result.tried if trial.status == "failed"]
    assert 1 < result.chosen.workers <= 6
    assert not machine.running


@pytest.mark.parametrize(("most", "says"), [(1, "the trial of 1 worker failed"), (8, "all others failed")])
def test_where_all_others_fail_the_start_is_kept_for_that_reason(most: int, says: str) -> None:
    machine = Failing(EIGHT)
    machine.fails = lambda settings: settings.workers > 0  # type: ignore[method-assign]
    result = tuned(machine, Settings(0), space=replace(EIGHT.space, most_workers=most, open=False))
    assert result.chosen == Settings(0)
    assert result.kept == f"{says} (dataset[3] raised OSError)"


def test_no_more_workers_run_than_may_be_tried() -> None:
    """With --max-workers 4 the eight of the loader ran, and could be kept."""
    machine = Machine(EIGHT)
    result = tuned(machine, Settings(8), space=replace(EIGHT.space, most_workers=4))
    assert max(settings.workers for settings in machine.started) <= 4
    assert 0 < result.chosen.workers <= 4 and result.before is None
    assert [trial.reason for trial in result.tried if trial.settings == Settings(8)] == ["no more than 4 workers may be tried"]


def test_where_nothing_else_was_tried_that_is_why_the_start_is_kept() -> None:
    result = tuned(Machine(EIGHT), most_trials=1)
    assert [trial.settings for trial in result.tried if trial.ran] == [Settings(1)]
    assert result.kept == "no other settings were tried"


def test_a_trial_that_had_no_room_beside_the_best_is_told_as_one_of_another_moment() -> None:
    machine = Machine(EIGHT, Appetite(process=1e9, worker=1e8))
    result = tuned(machine, limits=ResourceLimits(memory_bytes=2.6e9))
    ran = [trial for trial in result.tried if trial.ran]
    assert not ran[0].alone
    assert ran[1:] and all(trial.alone for trial in ran[1:])
    assert not any(trial.alone for trial in tuned(Machine(EIGHT)).tried)


def test_where_everything_fails_the_users_own_error_is_raised() -> None:
    machine = Failing(EIGHT)
    machine.fails = lambda settings: True  # type: ignore[method-assign]
    with pytest.raises(TargetError, match=r"dataset\[3\] raised OSError"):
        tuned(machine)
    assert not machine.running


def test_a_look_that_breaks_a_limit_says_what_to_do() -> None:
    with pytest.raises(TargetError, match="Not even one process without workers") as caught:
        tuned(Machine(EIGHT), limits=ResourceLimits(memory_bytes=250e6))
    assert "a smaller batch" in caught.value.advice
    machine = Machine(EIGHT)
    with pytest.raises(BadUsage, match="before the first batch is made, it would take about 180 MB of memory"):
        tuned(machine, limits=ResourceLimits(memory_bytes=100e6))
    assert not machine.started


def test_predictions_grow_with_every_setting_and_learn_from_trials() -> None:
    batch = BatchCost(10e6, 3, 300e6, 40, 0.1, 0.1, 8)
    fresh = Footprint(batch)
    shallow, two, deep = (fresh.predict(settings) for settings in (Settings(1), Settings(2), Settings(2, prefetch=8)))
    assert shallow.memory_bytes < two.memory_bytes < deep.memory_bytes
    assert shallow.files < two.files < deep.files
    assert deep.shm_bytes == pytest.approx((16 + 2 + 1) * 10e6)
    learnt = fresh.with_trial(Settings(2), Usage(memory_bytes=300e6 + 2 * 900e6))
    assert learnt.predict(Settings(4)).memory_bytes > 4 * 900e6
    assert fresh.predict(Settings(0)).shm_bytes == 0


def test_the_sentences_of_limits() -> None:
    limits = ResourceLimits(memory_bytes=1e9, files=100, cores=2.0, shm_bytes=64e6)
    told = "it would take about 900 MB of memory, and the limit is 1.00 GB of memory, less a margin of 15 %"
    assert refusal(limits, Usage(memory_bytes=9e8)) == told, "900 MB were refused for a limit of 1 GB, and nothing said why"
    assert refusal(limits, Usage(files=101)) == "it would take about 101 open files, and the limit is 100 open files"
    assert ending(limits, Usage(cores=1.95)) == "it took 1.95 CPU cores, which is near the limit of 2 CPU cores"
    many = refusal(ResourceLimits(cores=100.0), Usage(cores=120.0))
    assert many == "it would take about 120 CPU cores, and the limit is 100 CPU cores", "it said 1.2e+02 and 1e+02"
    why = StartTimes(cores=2.0, batch_s=0.0, seen=((2, 10.0),)).too_long(64, 8.0)
    assert why == "starting its workers would take about 5.3 min, and the budget has 8.00 s for each trial", "it said 3.2e+02 s"
    assert ending(limits, Usage(shm_bytes=63e6)) == "it took 63.0 MB of /dev/shm, which is near the limit of 64.0 MB of /dev/shm"
    assert refusal(limits, Usage()) is None
    assert ending(ResourceLimits(), Usage(1e12, 1e12, 1e6, 1e3)) is None
