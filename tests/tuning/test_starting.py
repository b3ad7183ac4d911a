"""Other ways to start workers: when one is tried, when it is kept, and what is said of it."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from multiprocessing import forkserver
from typing import Any

import pytest
from torch.utils.data import DataLoader

from pipefix.measurement.consumer import consumer_for
from pipefix.plan.planfile import LoaderChange
from pipefix.report import terminal, tune_report
from pipefix.report.tune_figures import ConsumerName, TuneReporter
from pipefix.subject.load import load
from pipefix.tuning.block_figures import TrialBlock, around, starting
from pipefix.tuning.child import TrialWork
from pipefix.tuning.limits import ResourceLimits
from pipefix.tuning.results import Goal, TrialResult
from pipefix.tuning.search import NOT_FORKED, Finished, NextTrial, Search
from pipefix.tuning.space import Settings, Space, said
from pipefix.tuning.starting import Starting
from pipefix.tuning.trial import TrialProcesses
from pipefix.tuning.tuner import Found, TrialLine
from pipefix.tuning.verdict import beaten
from pipefix.vocabulary.settings import LoaderSettings
from tests.tuning.paced import Paced, as_list

SPAWN = Starting("spawn", epoch=100_000)
FORK = Starting("fork", epoch=100_000)
START = Settings(4)
SERVED = replace(START, start_method="forkserver")


def searched(how: Starting, late: float, served: float, *, pace: float = 1.0, most: int = 8) -> tuple[Search, list[TrialResult]]:
    """A search to its end: workers start late by ``late`` seconds, and from the fork server by ``served``."""
    search = Search(Space(most_workers=4, cores=4, starting=how), Goal(), START, most_trials=most)
    seen: list[TrialResult] = []
    while isinstance(asked := search.next(seen), NextTrial):
        other = asked.settings.start_method is not None
        seen.append(
            TrialResult(
                asked.settings,
                100.0 * max(1, asked.settings.workers) * (pace if other else 1.0),
                doubt=0.01,
                starting=None if not asked.settings.workers else served if other else late,
            )
        )
    return search, seen


def tried(seen: list[TrialResult]) -> list[Settings]:
    return [one.settings for one in seen if one.settings.start_method is not None]


@pytest.mark.parametrize(
    ("how", "late", "expected"),
    [
        (SPAWN, 9.0, True),
        (SPAWN, 0.4, False),
        (replace(SPAWN, epoch=4000), 0.4, True),
        (replace(SPAWN, epoch=None), 0.4, False),
        (FORK, 0.1, False),
        (FORK, 6.0, True),
        (replace(FORK, threads=("logger",)), 0.1, True),
        (Starting("forkserver", epoch=4000), 9.0, True),
        (Starting("forkserver", preloaded=True, epoch=4000), 9.0, False),
        (replace(SPAWN, available=False), 9.0, False),
    ],
)
def test_another_start_is_tried_only_where_the_start_is_felt_or_a_fork_unsafe(how: Starting, late: float, expected: bool) -> None:
    _, seen = searched(how, late, 0.2)
    assert bool(tried(seen)) == expected


def test_the_last_trial_is_kept_for_it_and_no_trial_is_added() -> None:
    for most in (2, 3, 5):
        _, seen = searched(replace(SPAWN, epoch=20_000), 0.9, 0.2, most=most)
        assert len(seen) <= most
        assert tried(seen) == [SERVED]
        assert seen[-1].settings == SERVED
    assert not tried(searched(SPAWN, 9.0, 0.2, most=1)[1])


def test_where_trials_start_late_it_comes_first_and_serves_the_others() -> None:
    search = Search(Space(most_workers=16, cores=8, starting=SPAWN), Goal(), START)
    seen: list[TrialResult] = []
    while isinstance(asked := search.next(seen), NextTrial):
        late = 1.0 if asked.settings.start_method else 9.0
        seen.append(TrialResult(asked.settings, 100.0 * min(8, asked.settings.workers or 1), 0.01, starting=late))
    assert [one.settings for one in seen[:2]] == [START, SERVED]
    assert len(seen) > 2
    assert all(one.settings.start_method == "forkserver" for one in seen[1:] if one.settings.workers)
    best = search.best(seen)
    assert best is not None and best.settings.start_method == "forkserver" and best.settings.workers >= 8
    assert search.start_left(seen) is None
    assert len({(one.settings.workers, one.settings.prefetch) for one in seen[1:]}) == len(seen) - 1, "none comes again"


def test_what_starts_quicker_at_the_same_pace_is_kept() -> None:
    search, seen = searched(SPAWN, 9.0, 1.5)
    best = search.best(seen)
    assert best is not None and best.settings == SERVED
    assert search.start_left(seen) is None


@pytest.mark.parametrize(
    ("late", "served", "pace", "why"),
    [
        (9.0, 8.0, 1.0, "forkserver was tried, and the first batch is 8.00 s late instead of 9.00 s"),
        (9.0, 12.0, 1.0, "forkserver was tried, and the first batch is 12.0 s late instead of 9.00 s"),
        (9.0, 1.0, 0.9, "forkserver was tried, and it delivers 10 % less"),
    ],
)
def test_what_is_for_the_worse_is_not_kept(late: float, served: float, pace: float, why: str) -> None:
    search, seen = searched(SPAWN, late, served, pace=pace)
    best = search.best(seen)
    assert best is not None and best.settings == START
    assert search.start_left(seen) == why


def test_what_was_no_better_is_not_tried_again_with_other_settings() -> None:
    search = Search(Space(most_workers=16, cores=8, starting=SPAWN), Goal(), START)
    seen: list[TrialResult] = []
    while isinstance(asked := search.next(seen), NextTrial):
        seen.append(TrialResult(asked.settings, 100.0 * min(8, asked.settings.workers or 1), 0.01, starting=9.0))
    assert tried(seen) == [SERVED]
    best = search.best(seen)
    assert best is not None and best.settings.start_method is None and best.settings.workers >= 8
    assert search.start_left(seen) == "forkserver was tried, and the first batch is 9.00 s late instead of 9.00 s"


def test_an_unsafe_fork_gives_way_for_a_small_price_and_stays_for_a_large_one() -> None:
    how = replace(FORK, threads=("logger", "uploads"))
    search, seen = searched(how, 0.1, 2.0)
    best = search.best(seen)
    assert best is not None and best.settings == SERVED
    asked = Search(search.space, Goal(), START, most_trials=2).next(seen[:1])
    assert isinstance(asked, NextTrial)
    assert asked.why == "fork copies a process in which threads run (logger, uploads): a lock that one holds then stays locked"
    search, seen = searched(how, 0.1, 20.0)
    best = search.best(seen)
    assert best is not None and best.settings == START
    assert search.start_left(seen) == "forkserver was tried, and the first batch is 20.0 s late instead of 100 ms"


def test_why_nothing_was_tried() -> None:
    def left(how: Starting, late: float, most: int = 8) -> str | None:
        search, seen = searched(how, late, 0.1, most=most)
        return search.start_left(seen)

    assert left(FORK, 0.1) == "forked workers are there after 100 ms, and no other way is quicker"
    assert left(SPAWN, 0.4) == "by spawn the first batch is 400 ms late, 0.2 % of an epoch's time"
    assert left(SPAWN, 9.0, most=1) == (
        "by spawn the first batch is 9.00 s late, 3.6 % of an epoch's time; there was no trial left for forkserver"
    )
    assert left(replace(SPAWN, available=False), 9.0) == "this system has no fork server, and spawn stays"
    assert left(Starting("forkserver", preloaded=True), 9.0) == (
        "workers come from a fork server that has modules loaded already"
    )  # fmt: skip
    search = Search(Space(most_workers=4, cores=4, starting=FORK), Goal(), Settings(0))
    assert search.start_left([TrialResult(Settings(0), 100.0)]) == "there are no workers to start"


def test_a_fork_that_cuda_refuses_is_tried_from_the_server_and_goes_on_there() -> None:
    search = Search(Space(most_workers=8, cores=4, starting=FORK), Goal(), START)
    failed = TrialResult(START, ended=f"it failed: dataset[3] raised RuntimeError: {NOT_FORKED}. To use CUDA ...")
    asked = search.next([failed])
    assert asked == NextTrial(SERVED, "the dataset uses CUDA, which no forked worker can")
    seen = [failed, TrialResult(SERVED, 400.0, starting=2.0)]
    asked = search.next(seen)
    assert isinstance(asked, NextTrial) and asked.settings.start_method == "forkserver"
    best = search.best(seen)
    assert best is not None and best.settings == SERVED


def test_a_fork_server_that_fails_stands_in_nobodys_way() -> None:
    search = Search(Space(most_workers=8, cores=8, starting=SPAWN), Goal(), START)
    seen = [TrialResult(START, 400.0, 0.01, starting=9.0), TrialResult(SERVED, ended="it failed: it cannot be pickled")]
    asked = search.next(seen)
    assert isinstance(asked, NextTrial) and asked.settings.workers > 4
    assert search.start_left(seen) == "forkserver was tried, and it failed: it cannot be pickled"


def test_the_winner_is_confirmed_by_its_start_too() -> None:
    now, then = TrialResult(START, 400.0, 0.01, starting=9.0), TrialResult(SERVED, 390.0, 0.01, starting=1.0)
    assert "delivers 2.5 % less" in str(beaten(now, then, Goal(), SPAWN))
    now, then = replace(now, doubt=0.03), replace(then, doubt=0.03)
    assert beaten(now, then, Goal(), SPAWN) is None
    assert beaten(now, replace(then, starting=8.5), Goal(), SPAWN) == (
        "measured side by side, workers from a fork server are not better: the first batch is 8.50 s late instead of 9.00 s"
    )
    assert "delivers 10 % less" in str(beaten(now, replace(then, rate=360.0), Goal(), SPAWN))


def test_a_start_is_told_without_the_making_of_a_batch() -> None:
    block = TrialBlock(1.0, 40, (0.1,) * 4, (0.0,) * 4, (0.3, 0.2, 0.3, 0.9), None, 2, 5.0)
    assert starting([block]) == pytest.approx(4.7)
    assert starting([replace(block, workers=0)]) is None
    assert starting([replace(block, started_s=0.1)]) == 0.0


def telling(found: Found, how: Starting = SPAWN) -> TuneReporter:
    settings = LoaderSettings(batch_size=10, num_workers=4, start_method="spawn", length=100_000)
    return TuneReporter(
        "train.py", settings, START, Space(4, 4, starting=how), ResourceLimits(), found, ConsumerName("none", present=False), 0.01
    )  # fmt: skip


def test_what_is_said_and_typed() -> None:
    rate = around(400.0, 0.01)
    rows = (
        TrialLine(START, "the settings as they are", "run", rate=rate, started_s=9.1),
        TrialLine(SERVED, "by spawn the first batch is 9.00 s late", "run", rate=rate, started_s=1.6),
    )
    found = Found(rows, SERVED, None, rate, rate.scaled(0.999), (), None, "8 trials were made", started_s=1.6)
    report = telling(found).report(created="", written=None)
    assert report.sentence == (
        "Use 4 workers, started by forkserver: as fast as before (400 samples/s); the first batch is there after 1.60 s instead of "
        "9.10 s."
    )
    assert report.changes == {"start_method": "forkserver", "persistent_workers": True}
    assert LoaderChange(**report.changes).start_method == "forkserver"  # type: ignore[arg-type]
    assert report.notes[-1].startswith(
        "Workers are forked from a server that has torch and the dataset's module loaded; the first batch is there after 1.60 s"
    )
    assert "if __name__ == '__main__':" in report.notes[-1]
    assert "start_method" not in report.declined
    text = " ".join(" ".join(terminal.lines(tune_report.report(report), width=200)).split())
    assert "DataLoader(..., multiprocessing_context='forkserver', persistent_workers=True)" in text
    assert [one.started_s for one in report.trials] == [9.1, 1.6]


def test_threads_and_reasons_are_told() -> None:
    rate = around(400.0, 0.01)
    unsafe = replace(FORK, threads=("logger",))
    found = Found((), SERVED, None, rate, rate.scaled(0.999), (), None, "")
    note = telling(found, unsafe).report(created="", written=None).notes[-1]
    assert "from a process in which no threads run (logger)" not in note
    assert "no thread of your program (logger) runs there, whose locks a fork could catch" in note
    kept = Found((), START, "nothing is better", rate, rate, (), None, "", start_left="forked workers are there after 90 ms")
    assert telling(kept).report(created="", written=None).declined["start_method"] == "forked workers are there after 90 ms"
    assert said(SERVED, than=START) == "4 workers, started by forkserver"


def test_what_the_code_has_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipefix.api.tune import _starting
    from pipefix.loader.fast_loader import FastLoader

    # As in a process that has no fork server yet.
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", ["__main__"])
    plain: DataLoader[Any] = DataLoader(Paced(0.0), batch_size=4, num_workers=1, multiprocessing_context="forkserver")
    how = _starting(load(plain), ("uploads",))
    assert (how.method, how.preloaded, how.threads, how.epoch) == ("forkserver", False, ("uploads",), len(Paced(0.0)))
    fast: Any = FastLoader(Paced(0.0), batch_size=4, num_workers=1, multiprocessing_context="forkserver")
    assert _starting(load(fast), ()).preloaded


def test_workers_of_a_trial_come_from_a_preloaded_server() -> None:
    subject = load(DataLoader(Paced(0.001), batch_size=2, collate_fn=as_list, multiprocessing_context="spawn", num_workers=1))
    bench = TrialProcesses(TrialWork(subject, lambda one: consumer_for(one), lots=1))
    trial = bench.start(Settings(1, start_method="forkserver"), lambda _: None)
    try:
        told = trial.block(0.2)
        assert told.rate > 0
        assert told.started_s > 0
    finally:
        trial.close()


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="needs a fork server")
def test_a_trial_starts_a_server_of_its_own_where_its_parent_has_one() -> None:
    multiprocessing.get_context("forkserver").Process(target=int).start()
    assert forkserver._forkserver._forkserver_pid is not None
    test_workers_of_a_trial_come_from_a_preloaded_server()
    child = multiprocessing.get_context("forkserver").Process(target=int)
    child.start()
    child.join()
    assert child.exitcode == 0, "the parent's own goes on"


def test_the_search_ends_where_nothing_is_left() -> None:
    search, seen = searched(FORK, 0.1, 0.1)
    assert isinstance(search.next(seen), Finished)
