"""The way back, from wherever a run ended. `scripts/bench fix_kills` does it with real processes and real kills."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from itertools import pairwise

import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.fixes import fix_log
from pipefix.fixes.fix_log import settle, undo
from pipefix.plan import backups, planfile
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from tests.fixes.benchtop import Bench, Killed, killed_at, step

PLANS = ([step("workers-2", 1.8)], [step("cache-source", 3.0)], [step("cache-sample", 2.0)], [step("cache-decoded", 2.0)], [])


def settled(bench):
    """What must hold at rest: the plan names what is there, and each backup is of another plan than the next."""
    settle(bench.out)
    path = bench.out / planfile.NAME
    text = bench.plan_text()
    states = [backups.before(path, number).read_text() for number in backups.numbers(path)]
    assert all(one != other for one, other in pairwise([*states, text or ""]))
    if text is not None:
        plan = planfile.decode(text, origin="plan")
        if plan.cache is not None:
            cached = CachedDataset(bench.out / plan.cache.path, dataset=bench.data)
            assert [str(cached[index]) for index in range(len(cached))] == [str(bench.data[index]) for index in range(12)]
    assert not list(bench.out.glob(".pipefix-*"))


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
    assert (first.id, first.step, first.removed) == ("cache-sample", 3, ["pipefix-caches/sample"])
    assert planfile.read(bench.out / planfile.NAME).cache.store == "source"
    assert undo(bench.out).id == "cache-source"
    last = undo(bench.out)
    assert last.id == "workers-2" and last.plan is None
    assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(bench.out)


def test_the_plan_of_before_is_put_back_to_the_letter_and_the_edited_one_is_kept(tmp_path):
    mine = '# mine\nformat = "pipefix.plan/1"  # and this\n[loader]\npin_memory = false\n'
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [])
    bench.out.mkdir()
    path = bench.out / planfile.NAME
    path.write_text(mine)
    bench.run()
    edited = path.read_text().replace("num_workers = 2", "num_workers = 6")
    path.write_text(edited)
    taken = undo(bench.out)
    assert path.read_text() == mine
    assert taken.kept_as == "pipefix.plan.undone-1.toml" and (bench.out / taken.kept_as).read_text() == edited
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(bench.out)
    assert path.read_text() == mine


def test_a_plan_that_cannot_be_read_any_more_is_taken_back_like_any_other(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("cache-source", 1.5)], [])
    bench.run()
    (bench.out / planfile.NAME).write_text("[loader")
    assert undo(bench.out).id == "cache-source"
    assert planfile.read(bench.out / planfile.NAME).loader.num_workers == 2
    assert not (bench.out / "pipefix-caches").exists()


def test_without_a_log_undo_does_the_same(tmp_path):
    bench = Bench(tmp_path, *PLANS[:2], [])
    bench.run()
    (bench.out / "pipefix.log.jsonl").unlink()
    taken = undo(bench.out)
    assert (taken.id, taken.step, taken.removed) == ("", 2, ["pipefix-caches/source"])
    assert undo(bench.out).plan is None


def test_a_folder_in_which_nothing_was_done(tmp_path):
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_plan_that_was_taken_away_stays_away(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [])
    bench.run()
    (bench.out / planfile.NAME).unlink()
    taken = undo(bench.out)
    assert (taken.plan, taken.finished, taken.step) == (None, False, 1) and bench.plan_text() is None


def test_a_cache_that_another_plan_may_name_is_not_removed(tmp_path):
    """However it writes the path, and whether it can be read or not."""
    Bench(tmp_path / "once", [step("cache-source", 3.0)], []).run()
    head = 'format = "pipefix.plan/1"\n'
    named = '[cache]\npath = "./pipefix-caches/source"\nstore = "source"\n'
    for number, text in enumerate(("[cache", head + named, f"{head}\ufeffpipefix-caches")):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "once" / "out", out)
        (out / "pipefix.plan.mine.toml").write_text(text)
        assert undo(out).removed == [] and (out / "pipefix-caches/source/manifest.json").exists(), text


@pytest.mark.parametrize("act", [undo, lambda out: Bench(out.parent, []).run()])
def test_what_a_cache_leaves_that_was_not_even_begun_is_cleared_up(tmp_path, act):
    (tmp_path / "out" / "pipefix-caches" / "resized-256" / "parts").mkdir(parents=True)
    act(tmp_path / "out")
    assert not (tmp_path / "out" / "pipefix-caches").exists()


def test_a_backup_that_is_a_link_is_none(tmp_path):
    (tmp_path / "theirs.toml").write_text("theirs")
    (tmp_path / "pipefix.plan.before-4.toml").symlink_to("theirs.toml")
    path = tmp_path / planfile.NAME
    with pytest.raises(BadUsage):
        undo(tmp_path)
    assert backups.replace(path, planfile.encode(planfile.PlanFile())) == 5
    assert undo(tmp_path).step == 5 and (tmp_path / "theirs.toml").read_text() == "theirs"


def test_where_folders_are_not_synced_steps_can_be_taken_back_all_the_same(tmp_path, monkeypatch):
    """What stood on the disk was told as not written, and its backup was removed: CIFS and shared folders of virtual machines."""

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", sync)
    path = tmp_path / planfile.NAME
    assert backups.replace(path, planfile.encode(planfile.PlanFile())) == 1
    assert undo(tmp_path).step == 1 and not path.exists()


def test_a_plan_that_is_no_file_is_told(tmp_path):
    (tmp_path / planfile.NAME).mkdir()
    (tmp_path / "pipefix.plan.before-1.toml").write_text("x")
    with pytest.raises(UnreadableFile, match=r"pipefix\.plan\.toml could not be read: it is not a regular file"):
        undo(tmp_path)


def test_killed_before_any_act_a_run_leaves_a_state_that_can_be_gone_on_from(tmp_path):
    """Every moment in turn: the process dies, and the next run brings all to rest."""
    acts = 0
    while True:
        folder = tmp_path / f"run-{acts}"
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
            settled(again)
            assert not fix_log.unused(bench.out)
        acts += 1
    assert acts >= 10


@pytest.mark.system
@pytest.mark.parametrize("undone_first", [True, False])
def test_killed_before_any_act_undo_takes_all_back(tmp_path, undone_first):
    for acts in range(0, 60, 3 if undone_first else 4):
        bench = Bench(tmp_path / f"run-{acts}", *PLANS, gains=[1.5, 1.5, 1.5, 1.5])
        finished = False
        with killed_at(acts), suppress(Killed):
            bench.run()
            finished = True
        if bench.out.exists() and list(bench.out.iterdir()):
            if undone_first:
                with killed_at(acts % 5), suppress(Killed, BadUsage):
                    undo(bench.out)
                settled(bench)
            taken_back(bench)
            assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()
        if finished:
            return
