"""Threads that a forked worker would lack: seen by their names, and nothing is forked that would wait for them."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from pipefix.caches import pool
from pipefix.system import forks
from pipefix.system.forks import lost_by_fork, lost_by_workers_of
from tests.doubles.named_threads import named_thread


@pytest.fixture(autouse=True)
def no_tokio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of object stores leave threads of it in this process."""
    monkeypatch.setattr(forks, "_THREADS", {forks.POLARS: forks._THREADS[forks.POLARS]})


def test_threads_of_polars_are_seen_while_they_run() -> None:
    assert lost_by_fork() is None
    with named_thread("polars-1"):
        assert lost_by_fork() == "polars"
    assert lost_by_fork() is None


def test_polars_is_named_for_the_threads_of_tokio_that_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with named_thread("polars-1"), named_thread("tokio-rt-worker"):
        assert lost_by_fork() == "polars"


def test_threads_of_a_download_are_no_matter_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with named_thread("tokio-rt-worker"):
        assert lost_by_fork() is not None
        assert lost_by_workers_of(DataLoader([1], num_workers=1, multiprocessing_context="fork")) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["polars-ooc-clea", "python", "OpenBLAS-1"])
def test_other_threads_do_not_matter(name: str) -> None:
    with named_thread(name):
        assert lost_by_fork() is None


@pytest.mark.parametrize(("method", "lost"), [("fork", "polars"), ("forkserver", None), ("spawn", None)])
def test_only_forked_workers_lack_them(method: str, lost: str | None) -> None:
    with named_thread("polars-0"):
        assert lost_by_workers_of(DataLoader([1], num_workers=1, multiprocessing_context=method)) == lost  # type: ignore[arg-type]


def test_a_cache_is_made_in_this_process_then() -> None:
    with named_thread("polars-0"):
        assert not pool.can_fork()
        assert pool.apart(lambda sample: b"made here") == b"made here"
