"""The way back, from wherever a run ended. `scripts/bench fix_kills` does it with real processes and real kills."""

from __future__ import annotations

import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.fixes.log import Log
from pipefix.fixes.undo import leftovers, recover, undo
from pipefix.plan import planfile
from pipefix.vocabulary.errors import BadUsage
from tests.fixes.benchtop import Bench, Killed, killed_at, step

PLANS = ([step("workers-2", 1.8)], [step("cache-source", 3.0)], [step("cache-sample", 2.0)], [step("cache-decoded", 2.0)], [])


def settled(bench):
    """What must hold at rest: the plan names what is there, and nothing else of ours lies about."""
    with Log(bench.out) as log:
        recover(log)
        assert all(one.status in ("kept", "dropped", "undone") for one in log.steps)
        effective = [one for one in log.steps if one.status == "kept"]
        left = leftovers(log)
    text = bench.plan_text()
    assert text == (effective[-1].after if effective else None)
    if text is not None:
        plan = planfile.decode(text, origin="plan")
        if plan.cache is not None:
            found = CachedDataset(bench.out / plan.cache.path, dataset=bench.data)
            assert [str(found[index]) for index in range(len(found))] == [str(bench.data[index]) for index in range(12)]
    assert not list(bench.out.glob(".pipefix-*"))
    return effective, left


def taken_back(bench):
    """Undo until there is nothing left to undo."""
    for _ in range(20):
        try:
            undo(bench.out)
        except BadUsage:
            return
        settled(bench)
    raise AssertionError("undo never ends")


def test_steps_are_taken_back_one_by_one(tmp_path):
    bench = Bench(tmp_path, *PLANS[:3], [])
    bench.run()
    first = undo(bench.out)
    assert (first.id, first.removed) == ("cache-sample", ["pipefix-caches/sample"])
    assert planfile.read(bench.out / planfile.NAME).cache.store == "source"
    assert undo(bench.out).id == "cache-source"
    last = undo(bench.out)
    assert last.id == "workers-2" and last.plan is None
    assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(bench.out)


def test_a_folder_without_a_log(tmp_path):
    with pytest.raises(BadUsage, match="There is no log"):
        undo(tmp_path)


def test_a_plan_that_was_edited_keeps_the_edit(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("persistent-workers", 1.5)], [])
    bench.run()
    path = bench.out / planfile.NAME
    path.write_text(path.read_text().replace("num_workers = 2", "num_workers = 6"))
    found = undo(bench.out)
    assert found.edited
    plan = planfile.read(path)
    assert plan.loader.num_workers == 6 and plan.loader.persistent_workers is None


def test_a_plan_that_was_taken_away_stays_away(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [])
    bench.run()
    (bench.out / planfile.NAME).unlink()
    assert undo(bench.out).plan is None and bench.plan_text() is None


def test_killed_before_any_act_a_run_leaves_a_state_that_can_be_gone_on_from(tmp_path):
    """Every moment in turn: the process dies, and the next run brings all to rest."""
    acts = 0
    while True:
        folder = tmp_path / f"run-{acts}"
        folder.mkdir()
        bench = Bench(folder, *PLANS[:3], [], gains=[1.5, 0.5, 1.5])
        with killed_at(acts) as done:
            try:
                bench.run()
                break
            except Killed:
                assert len(done) == acts
        if bench.out.exists() and list(bench.out.iterdir()):
            settled(bench)
            again = Bench(folder, [])
            again.run()
            _, left = settled(again)
            assert not left
        acts += 1
    assert acts >= 10


@pytest.mark.system
@pytest.mark.parametrize("undone_first", [True, False])
def test_killed_before_any_act_undo_takes_all_back(tmp_path, undone_first):
    for acts in range(0, 60, 3 if undone_first else 4):
        folder = tmp_path / f"run-{acts}"
        folder.mkdir()
        bench = Bench(folder, *PLANS, gains=[1.5, 1.5, 1.5, 1.5])
        finished = False
        with killed_at(acts):
            try:
                bench.run()
                finished = True
            except Killed:
                pass
        if bench.out.exists() and list(bench.out.iterdir()):
            if undone_first:
                with killed_at(acts % 5):
                    try:
                        undo(bench.out)
                    except (Killed, BadUsage):
                        pass
                settled(bench)
            taken_back(bench)
            assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()
        if finished:
            return
