"""Workers are a rank's: where several ranks share the machine, each has its part."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from torch.utils.data import DataLoader

from pipefix.api.search_space import limits as limits_of
from pipefix.api.search_space import own_cpus, ranks_here
from pipefix.api.search_space import space as space_of
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.consumer import consumer_for
from pipefix.report.tune_report import ConsumerName, TuneReporter
from pipefix.subject.load import load
from pipefix.system.machine import Machine
from pipefix.tuning.child import TrialWork
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialProcesses
from pipefix.vocabulary.settings import LoaderSettings
from tests.tuning import grids
from tests.tuning import machine as made_up
from tests.tuning.paced import Paced, as_list

MACHINE = Machine(
    system="Linux",
    kernel="6",
    python="3.11",
    effective_cores=16.0,
    logical_cores=16,
    memory_available_bytes=64_000,
    shm_free_bytes=8_000,
)


@pytest.mark.parametrize(("variable", "ranks"), [(None, 1), ("4", 4), ("0", 1), ("many", 1)])
def test_launchers_say_how_many_ranks_there_are(variable: str | None, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if variable is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", variable)
    assert ranks_here() == ranks


@pytest.mark.parametrize(
    ("cores", "ranks", "rank", "cpus"),
    [
        (8.0, 1, "0", ()),
        (8.0, 2, "0", (0, 1, 2, 3)),
        (8.0, 2, "1", (4, 5, 6, 7)),
        (4.0, 2, "1", (2, 3)),
        (8.0, 3, "2", (4, 5)),
        (8.0, 16, "9", (1,)),
        (0.5, 2, "0", (0,)),
    ],
    ids=["alone", "first half", "second half", "of a quota", "of three", "more ranks than cores", "less than a core"],
)
def test_each_rank_has_cpus_of_its_own(
    cores: float, ranks: int, rank: str, cpus: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert own_cpus(cores, ranks) == cpus


def test_what_is_searched_and_what_may_be_taken_is_a_ranks_part() -> None:
    subject = load(DataLoader(list(range(40)), batch_size=4))  # type: ignore[arg-type]
    alone, shared = space_of(subject, MACHINE, None, False), space_of(subject, MACHINE, None, False, ranks=4)
    assert (alone.cores, shared.cores) == (16.0, 4.0)
    assert (alone.most_workers, shared.most_workers) == (64, 16)
    whole, part = (limits_of(MACHINE, None, None, None, None, None, ranks=ranks) for ranks in (1, 4))
    assert whole.shm_bytes == 8_000 and part.shm_bytes == 2_000
    assert whole.memory_bytes is not None and part.memory_bytes is not None
    assert whole.memory_bytes - part.memory_bytes == pytest.approx(48_000, abs=2e7), "what this process holds is added to both"


@pytest.mark.parametrize(
    ("engine", "why"),
    [("torch", "engine='torch' was chosen"), ("auto", "batches are handed over through reusable shared memory already")],
)
def test_why_the_hand_over_is_not_searched(engine: str, why: str) -> None:
    """Of a FastLoader as it is by default it said that engine='auto' was chosen."""
    subject = load(FastLoader(list(range(40)), batch_size=4, engine=engine))  # type: ignore[arg-type]
    assert (space_of(subject, MACHINE, None, False).declined or {})["engine"] == why


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to CPUs")
def test_a_trial_runs_on_the_cpus_of_its_rank() -> None:
    subject = load(DataLoader(Paced(0.001), batch_size=4, collate_fn=as_list))
    cpu = min(os.sched_getaffinity(0))
    bench = TrialProcesses(TrialWork(subject, consumer_for, lots=1, cpus=(cpu,)))
    with closing(bench.start(Settings(0), lambda _: None)) as trial:
        assert trial.block(0.05).samples
        assert trial._process.pid is not None
        assert os.sched_getaffinity(trial._process.pid) == {cpu}


def test_the_report_says_whose_workers_they_are() -> None:
    machine = made_up.Machine(grids.SHAPES[0])
    result, plan = made_up.tuned(machine, most_trials=2), made_up.planned(machine)
    telling = TuneReporter("data.py", LoaderSettings(), plan, result, ConsumerName("none", present=False), ranks=4)
    workers, notes = result.chosen.workers, telling.report(created="", written=None).notes
    assert any(f"a rank: {4 * workers} in all" in note for note in notes)
