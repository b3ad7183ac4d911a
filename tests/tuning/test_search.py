from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipefix.tuning.limits import BatchCost
from pipefix.tuning.results import Goal, Trial
from pipefix.tuning.search import Finished, NextTrial, Search, beaten
from pipefix.tuning.space import Settings, Space, most_workers, said
from tests.tuning import grids
from tests.tuning.grids import looked, tried
from tests.tuning.replaying import play

SPACE = Space(most_workers=32, cores=8)
BY_NAME = {grid.name: grid for grid in grids.every()}
SLOW = looked(1.0)
"""A look that hints at nothing."""


def test_it_begins_with_the_settings_as_they_are() -> None:
    proposal = Search(SPACE, Goal(), Settings(3)).next([], SLOW)
    assert proposal == NextTrial(Settings(3), "the settings as they are")


def test_no_trial_is_made_twice_and_eight_are_the_most() -> None:
    played = play(BY_NAME["noisy-usl"], Settings(4), seed=1)
    settings = [trial.settings for trial in played.path]
    assert len(settings) == len(set(settings)) <= 8


@pytest.mark.parametrize(
    "name",
    [
        "lightning-19391",
        "eight-cores",
        "far-store",
        "far-store-wide",
        "huge-batches",
        "steep-usl",
        "two-cores-quota",
        "page-cache-lost",
    ],
)
def test_the_choice_is_near_the_best_of_the_grid(name: str) -> None:
    for seed, start in enumerate((0, 4, 16)):
        assert play(BY_NAME[name], Settings(start), seed=seed).regret <= 0.03


@pytest.mark.parametrize(("cpu_s", "starved_s", "most"), [(0.01, 0.0, 4), (0.001, 0.0, 32), (0.001, 0.0095, 4)])
def test_what_computes_is_not_tried_with_many_more_workers_than_cores_at_once(cpu_s: float, starved_s: float, most: int) -> None:
    """A step of 5 ms was to be fed by 13 workers on two cores, which were the first that were tried. On a machine that is busy with
    other programs, what computes has no CPU most of the time: that is no waiting that more workers would share."""
    look = replace(looked(100.0, cpu_s=cpu_s), starved_s=16 * starved_s)
    search = Search(Space(most_workers=64, cores=2), Goal(has_consumer=True), Settings(0))
    start = tried(Settings(0), 90.0, stall=0.9, demand=2000.0)
    proposal = search.next([start], look)
    assert isinstance(proposal, NextTrial) and 1 <= proposal.settings.workers <= most
    twice = tried(proposal.settings, 90.0 * proposal.settings.workers, stall=0.8, demand=2000.0)
    more = search.next([start, twice], look)
    assert isinstance(more, NextTrial) and more.settings.workers > proposal.settings.workers, "they all helped: more may"


def rates(supply: dict[int, float]) -> list[Trial]:
    return [tried(Settings(workers), rate) for workers, rate in supply.items()]


@pytest.mark.parametrize(
    ("supply", "cores", "workers"),
    [
        ({4: 400.0}, 16, 16),
        ({4: 400.0, 16: 1600.0}, 16, 32),
        ({4: 400.0, 16: 720.0}, 16, 8),
        ({4: 400.0, 16: 720.0, 32: 700.0}, 16, 8),
        ({4: 400.0, 16: 720.0, 32: 700.0, 8: 800.0}, 16, 11),
        ({0: 100.0, 16: 285.0}, 16, 8),
        ({2: 150.0, 8: 300.0, 11: 250.0}, 8, 4),
    ],
    ids=["the cores", "double", "halve where it bends", "halve", "bisect", "halve first", "bisect below"],
)
def test_counts_are_doubled_halved_and_bisected(supply: dict[int, float], cores: float, workers: int) -> None:
    following = Search(Space(most_workers=64, cores=cores, most_prefetch=2, reorder=False), Goal(), Settings(4)).next(
        rates(supply), SLOW
    )
    assert isinstance(following, NextTrial)
    assert following.settings.workers == workers


def test_no_more_is_tried_where_the_cores_are_busy() -> None:
    search = Search(Space(most_workers=64, cores=8, most_prefetch=2, reorder=False), Goal(), Settings(4))
    trials = rates({4: 400.0, 6: 600.0, 8: 790.0})
    assert isinstance(search.next(trials, looked(100.0, cpu_s=0.01)), Finished)
    assert isinstance(search.next(trials, looked(100.0, cpu_s=0.001)), NextTrial), "they mostly wait"


def test_what_another_setting_changed_carries_over_to_other_counts() -> None:
    search = Search(Space(most_workers=16, cores=8, most_prefetch=8), Goal(), Settings(4))
    trials = [*rates({4: 400.0, 6: 600.0, 8: 790.0, 16: 780.0}), tried(Settings(8, prefetch=8), 1000.0)]
    proposal = search.next(trials, SLOW)
    assert not isinstance(proposal, NextTrial) or proposal.settings.workers not in (4, 6, 16)


def test_workers_that_feed_a_consumer_are_counted_by_what_one_supplies() -> None:
    search = Search(Space(most_workers=64, cores=64), Goal(has_consumer=True), Settings(4))
    hungry = tried(Settings(4), 400.0, stall=0.6, demand=1000.0)
    proposal = search.next([hungry], SLOW)
    assert isinstance(proposal, NextTrial) and proposal.settings.workers == 10
    wide = tried(Settings(16), 1000.0, stall=0.0, demand=1000.0, potential=1600.0)
    proposal = search.next([hungry, wide], SLOW)
    assert isinstance(proposal, NextTrial) and proposal.settings.workers == 11 - 1


def test_a_consumer_is_fed_by_hardly_more_workers_than_it_needs() -> None:
    played = play(BY_NAME["far-store-wide-fed-0.3"], Settings(0), seed=2)
    assert played.fewest is not None
    assert played.regret <= 0.02
    assert played.workers <= 1.25 * played.fewest


def test_a_start_that_feeds_with_too_many_workers_is_made_smaller() -> None:
    played = play(BY_NAME["eight-cores-fed-0.3"], Settings(16), seed=3)
    assert (played.workers, played.fewest) == (3, 3)


def test_late_batches_suggest_another_order_and_threads_a_cap() -> None:
    played = play(BY_NAME["late-batches"], Settings(0), seed=0)
    assert not played.chosen.in_order
    capped = play(BY_NAME["threads-everywhere"], Settings(4), seed=0)
    assert capped.chosen.worker_threads == 1
    in_order = Search(replace(SPACE, reorder=False), Goal(), Settings(4))
    trials = [tried(Settings(n), 100.0 * min(n, 8), tail=50.0) for n in (4, 8, 9, 12)]
    proposal = in_order.next(trials, SLOW)
    assert not isinstance(proposal, NextTrial) or proposal.settings.in_order


def searched(search: Search, trial: Callable[[Settings], Trial], look: BatchCost, **how: Any) -> tuple[Settings, list[Trial]]:
    """The best settings of a whole search, and all its trials."""
    trials: list[Trial] = []
    while isinstance(proposal := search.next(trials, look, **how), NextTrial):
        trials.append(trial(proposal.settings))
    best = search.best(trials)
    assert best is not None
    return best.settings, trials


@pytest.mark.parametrize(
    ("handing", "stall", "potential", "turned"),
    [
        (0.3, None, None, True),
        (0.01, None, None, False),
        (0.0, None, 300.0, True),
        (0.0, None, 105.0, False),
        (0.0, 0.5, 300.0, True),
        (0.0, 0.05, 300.0, False),
    ],
    ids=["large batches", "small batches", "workers idle", "workers at work", "idle though waited for", "idle since fed"],
)
def test_where_handing_over_holds_workers_up_it_is_done_another_way(
    handing: float, stall: float | None, potential: float | None, turned: bool
) -> None:
    goal = Goal(has_consumer=stall is not None)
    search = Search(Space(most_workers=4, cores=2, slots=True, reorder=False), goal, Settings(2))

    def trial(of: Settings) -> Trial:
        rate = 100.0 * (1.4 if of.engine else 1.0) * min(2, of.workers or 1)
        more = potential * min(2, of.workers) if potential is not None and of.workers else None
        return tried(of, rate, doubt=0.01, stall=stall, demand=1000.0 if stall is not None else None, potential=more)

    best, trials = searched(search, trial, looked(100.0, handing=handing))
    assert (best.engine == "processes") == turned == any(trial.settings.engine is not None for trial in trials)


@pytest.mark.parametrize(("handing", "turned"), [(0.3, True), (0.06, False)])
def test_what_is_thought_to_gain_much_is_tried_before_another_count(handing: float, turned: bool) -> None:
    search = Search(Space(most_workers=16, cores=4, slots=True, reorder=False), Goal(), Settings(2))
    trials = [tried(Settings(2), 200.0, doubt=0.02), tried(Settings(5), 380.0, doubt=0.02)]
    proposal = search.next(trials, looked(105.0, handing=handing))
    assert isinstance(proposal, NextTrial)
    assert (proposal.settings.engine is not None) == turned


def test_what_does_not_fit_is_not_asked_for() -> None:
    search = Search(SPACE, Goal(), Settings(4))

    def fits(settings: Settings) -> str | None:
        return "too much" if settings.workers > 5 or settings.prefetch > 2 else None

    best, trials = searched(search, lambda of: tried(of, 100.0 * max(1, of.workers)), looked(100.0), fits=fits)
    assert best.workers == 5
    assert all(fits(trial.settings) is None for trial in trials)


def test_a_start_that_does_not_fit_gives_way_to_a_smaller_one() -> None:
    search = Search(SPACE, Goal(), Settings(8, prefetch=4))
    proposal = search.next([], SLOW, fits=lambda settings: "too much" if settings.workers > 2 else None)
    assert isinstance(proposal, NextTrial)
    assert proposal.settings == Settings(1, prefetch=2)
    assert search.next([], SLOW, fits=lambda _: "too much") == Finished("no settings fit the limits")


def test_what_takes_more_than_a_trial_that_was_ended_is_not_tried() -> None:
    search = Search(SPACE, Goal(), Settings(4))
    trials = [tried(Settings(4), 400.0), tried(Settings(8), ended="it took too much")]
    for _ in range(4):
        proposal = search.next(trials, SLOW)
        if isinstance(proposal, Finished):
            break
        assert proposal.settings.workers < 8
        trials.append(tried(proposal.settings, 100.0 * proposal.settings.workers))


def test_the_start_is_kept_unless_it_is_beaten() -> None:
    goal = Goal()
    start, more = tried(Settings(2), 100.0, 0.02), tried(Settings(8), 103.0, 0.02)
    assert beaten(start, more, goal) == "measured side by side, the settings found deliver 3.0 % more, which is within the noise"
    assert beaten(start, tried(Settings(8), 130.0, 0.02), goal) is None
    assert "deliver 20 % less" in str(beaten(start, tried(Settings(8), 80.0, 0.02), goal))
    fed = Goal(has_consumer=True)
    both = tried(Settings(8), 100.0, 0.02, stall=0.0), tried(Settings(3), 103.0, 0.02, stall=0.005)
    assert beaten(*both, fed) is None
    assert "no more than is needed" in str(beaten(both[1], both[0], fed))


def test_words_and_counts() -> None:
    assert said(Settings(0)) == "no workers"
    assert said(Settings(1)) == "1 worker"
    assert (
        said(Settings(8, prefetch=4, in_order=False, worker_threads=1))
        == "8 workers, prefetch 4, batches as they come, 1 thread a worker"
    )
    assert Settings(0, prefetch=8, in_order=False).normal() == Settings(0)
    assert Settings(2).changes(Settings(4, prefetch=4)) == {"num_workers": 4, "prefetch_factor": 4}
    assert most_workers(2, 0) == 16
    assert most_workers(2, 0, computing=0.05) == 128
    assert Space(most_workers=70, cores=8).worker_counts()[-1] == 64
