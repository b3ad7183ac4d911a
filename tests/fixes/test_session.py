from __future__ import annotations

import errno
import json
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from pipefix.api.fix import fix
from pipefix.fixes import speedup
from pipefix.fixes.fixers import MoveAugment
from pipefix.fixes.outcome import Applied, Refused
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import as_planned
from pipefix.plan import planfile
from pipefix.report import runfile
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.caches.killing import interrupted_after
from tests.fixes.benchtop import Bench, Lines, declined, step


def events(bench):
    return [json.loads(line)["event"] for line in (bench.out / "pipefix.log.jsonl").read_text().splitlines()]


def test_it_applies_verifies_keeps_and_says_when_it_is_good_enough(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("cache-source", 3.0)], [step("workers-4", 1.02)], gains=[1.7, 2.9, 4.9])
    fixed = bench.run()
    assert [one.id for one in fixed.applied] == ["workers-2", "cache-source"]
    assert fixed.stopped.startswith("good enough: the best that is left, workers-4, is predicted to bring 1.02x")
    assert fixed.total is not None and fixed.total.gain.value == 4.9
    assert fixed.same is not None and fixed.same.kind == "equal"
    plan = planfile.read(bench.out / "pipefix.plan.toml")
    assert plan.loader is not None and plan.loader.num_workers == 2
    assert plan.loader.evidence is not None and plan.loader.evidence.after.value == pytest.approx(170.0)
    assert plan.cache is not None and plan.cache.store == "source"
    assert plan.machine is not None and plan.machine.cores == 2.0
    assert events(bench) == ["started", "begun", "kept", "begun", "kept", "ended"]


def test_the_fixed_pipeline_is_looked_at_next_and_gives_the_same_samples(tmp_path):
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    # *Good enough* was said of loops that waited 81 % of their time.
    assert bench.run().stopped == "the probe proposes nothing more that can be applied"
    again = bench.looks[1]
    assert type(again.dataset).__name__ == "CachedDataset"
    plain = [list(map(str, batch)) for batch in bench.target]
    assert [list(map(str, batch)) for batch in again.loader] == plain
    plan = planfile.read(bench.out / "pipefix.plan.toml")
    assert [list(map(str, batch)) for batch in as_planned.loader(bench.target, plan, bench.out)] == plain


@pytest.mark.parametrize(("steps", "workers"), [(["cache-source"], 1), (["cache-source", "workers-2"], 2)])
def test_workers_that_were_typed_are_in_the_plan(tmp_path, monkeypatch, steps, workers):
    """fix --workers 4 measured with four; its plan said nothing of them, and the code that read it had none."""
    from tests.fixes import benchtop

    monkeypatch.setattr(benchtop, "load", partial(benchtop.load, workers=1))
    bench = Bench(tmp_path, *([step(one, 3.0)] for one in steps), [])
    assert [one.id for one in bench.run().applied] == steps
    assert planfile.read(bench.out / planfile.NAME).loader.num_workers == workers


@pytest.mark.parametrize(("start", "kept"), [(1.0, ["workers-2", "persistent-workers"]), (0.001, ["workers-2"])])
def test_workers_that_start_each_epoch_anew_are_kept_up_where_that_matters(tmp_path, start, kept):
    """What the epochs take to begin is timed at the end, whether a probe could see it or not."""
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [], gains=[1.7, 1.5, 2.4])
    bench.start_s = start
    fixed = bench.run()
    assert [one.id for one in fixed.applied] == kept
    plan = planfile.read(bench.out / "pipefix.plan.toml")
    assert plan.loader is not None and bool(plan.loader.persistent_workers) is (len(kept) > 1)


@pytest.mark.parametrize(
    ("gain", "said"), [(0.8, "it made the pipeline slower: 0.80x"), (1.01, "no gain that can be told from noise")]
)
def test_what_does_not_help_is_taken_back(tmp_path, gain, said):
    bench = Bench(tmp_path, [step("cache-source", 3.0), step("workers-2", 1.5)], [], gains=[gain, 1.6])
    fixed = bench.run()
    assert [type(one) for one in fixed.outcomes] == [Refused, Applied]
    assert said in fixed.refused[0].why and "3.00x" in fixed.refused[0].why
    assert not (bench.out / "pipefix-caches").exists()
    plan = planfile.read(bench.out / "pipefix.plan.toml")
    assert plan.cache is None


def test_samples_that_are_not_what_they_were_are_a_reason_to_take_back(tmp_path, monkeypatch):
    from pipefix.fixes import fixers

    bench = Bench(tmp_path, [step("cache-sample", 3.0)], [])
    real = fixers.BuildCache.make

    def spoiled(self, step, place, say):
        files = [Path(path) for path in bench.data.paths]
        held = [path.read_bytes() for path in files]
        for path, data in zip(files, reversed(held), strict=True):
            path.write_bytes(data)
        real(self, step, place, say)
        for path, data in zip(files, held, strict=True):
            path.write_bytes(data)

    monkeypatch.setattr(fixers.BuildCache, "make", spoiled)
    fixed = bench.run()
    assert not fixed.applied and "samples are not what they were" in fixed.refused[0].why
    assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()


class Spots(Dataset):
    """Pictures in which a flip shows."""

    def __init__(self):
        listed = [v2.Resize((16, 16)), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        self.transform = v2.Compose(listed)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.transform(Image.linear_gradient("L").resize((20, 20)).rotate(90).convert("RGB")), index


def mixed(samples):
    """As recipes with MixUp do it: pictures that are augmented already are mixed, here some of them."""
    images, labels = torch.utils.data.default_collate(samples)
    images[1:-1] = (0.5 * images + 0.5 * images.roll(1, 0) ** 2)[1:-1]
    return images, labels


@pytest.mark.parametrize("collate_fn", [None, mixed])
def test_batches_of_moved_augmentation_are_compared(tmp_path, monkeypatch, collate_fn):
    """Whatever the loader makes of samples is part of what must stay: the transforms alone do the same here."""
    monkeypatch.setattr(MoveAugment, "refuses", lambda *_: None)
    target = DataLoader(Spots(), batch_size=4, collate_fn=collate_fn)
    fixed = Bench(tmp_path, [step("augment-gpu", 3.0)], [], target=target).run(yes=True)
    if collate_fn is None:
        (applied,) = fixed.applied
        assert "a batch of 4 samples compared" in applied.same.sentence and "a batch of 4 samples compared" in fixed.same.sentence
    else:
        assert not fixed.applied and "samples are not what they were" in fixed.refused[0].why


def test_steps_that_together_are_slower_are_all_taken_back(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("cache-source", 1.5)], [], gains=[1.5, 1.5, 0.9])
    fixed = bench.run()
    assert not fixed.applied and len(fixed.refused) == 2
    assert "all steps together made it slower" in fixed.stopped
    assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()


def test_what_keeps_samples_comes_before_what_alters_them_and_that_is_asked_about(tmp_path):
    plan = [step("tail-scheduling", 4.0), step("workers-2", 1.5)]
    bench = Bench(tmp_path, plan, plan)
    fixed = bench.run()
    assert [one.id for one in fixed.outcomes] == ["workers-2", "tail-scheduling"]
    assert fixed.refused[0].why == "batches come in another order from run to run: --yes allows it"


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_somebody_is_asked(tmp_path, answer):
    asked = []
    fixed = Bench(tmp_path, [step("tail-scheduling", 4.0)], []).run(lambda question: (asked.append(question), answer)[1])
    assert bool(fixed.applied) is answer
    assert asked == ["Do tail-scheduling: 4.00x (3.88-4.12) predicted; batches come in another order from run to run. Do it?"]


def test_yes_asks_nobody_and_states_the_difference(tmp_path):
    bench = Bench(tmp_path, [step("tail-scheduling", 4.0)], [])
    fixed = bench.run(lambda question: pytest.fail(question), yes=True)
    assert fixed.applied[0].same.kind == "order" and fixed.same.kind == "order"
    assert planfile.read(bench.out / "pipefix.plan.toml").loader.in_order is False


def test_much_disk_or_time_is_asked_about(tmp_path):
    bench = Bench(tmp_path, [step("cache-source", 4.0, disk_bytes=5e9, seconds=3600.0)])
    fixed = bench.run()
    assert fixed.refused[0].why == "it takes 5.00 GB of disk; it takes 60.0 min to make: --yes allows it"


def test_a_cache_whose_size_nobody_saw_is_asked_about(tmp_path):
    """Where there had been no time to convert a few samples, 50 GB of decoded pictures were made unasked."""
    fixed = Bench(tmp_path, [step("cache-source", 4.0, disk_bytes=None)]).run()
    assert fixed.refused[0].why == "there was no time to see how much disk it takes: --yes allows it"


@pytest.mark.parametrize("room", [100, 10**9])
def test_a_cache_is_refused_by_the_room_that_its_records_take(tmp_path, monkeypatch, room):
    """Some of them are made where the plan knows no more than a bound, and that is too large."""
    monkeypatch.setattr("pipefix.fixes.fixers._free", lambda folder: room)
    asked = [step("cache-source", 4.0, disk_bytes=1e18)]
    bench = Bench(tmp_path, asked, asked, [])
    assert len(bench.run(dry_run=True).ahead) == (room > 100) and not bench.out.exists(), "a dry run leaves nothing behind"
    fixed = bench.run(yes=True)
    if room == 100:
        assert fixed.refused[0].why.endswith(" kB of disk, and 100 B are free")
    else:
        assert [outcome.id for outcome in fixed.applied] == ["cache-source"]


def test_what_only_the_author_can_change_is_told_with_what_to_do(tmp_path):
    bench = Bench(tmp_path, [step("collate-faster", 2.0)])
    refusal = bench.run().refused[0]
    assert "your code" in refusal.why and refusal.command == "do collate-faster"


def test_a_dry_run_changes_nothing(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.5), step("tail-scheduling", 1.4), step("pinning", 1.01)])
    fixed = bench.run(dry_run=True)
    assert [one.id for one in fixed.ahead] == ["workers-2", "tail-scheduling"]
    assert "another order" in fixed.ahead[1].why
    assert "less than --min-gain" in fixed.refused[0].why
    assert not bench.out.exists()


def test_only_one_remedy(tmp_path):
    plan = [step("cache-source", 3.0), step("workers-2", 1.5), declined("pinning", "there is no device")]
    fixed = Bench(tmp_path / "a", plan).run(only="workers")
    assert [one.id for one in fixed.outcomes] == ["workers-2"] and fixed.stopped == "only workers was asked for"
    assert Bench(tmp_path / "b", plan).run(only="pinning").refused[0].why == "there is no device"
    with pytest.raises(BadUsage, match="no remedy 'magic'"):
        Bench(tmp_path / "c", plan).run(only="magic")


def test_it_goes_on_from_the_plan_that_is_there(tmp_path):
    Bench(tmp_path, [step("workers-2", 1.5)], []).run()
    bench = Bench(tmp_path, [step("cache-source", 1.5)], [])
    fixed = bench.run()
    assert bench.looks[0].loader.num_workers == 2
    plan = planfile.read(bench.out / "pipefix.plan.toml")
    assert plan.loader.num_workers == 2 and plan.cache is not None
    assert fixed.went_on and fixed.applied[0].step == 2


def test_a_cache_that_is_gone_is_made_anew(tmp_path):
    """Of a plan that came with a repository, say. FastLoader said "Make it anew, pipefix fix TARGET", and so did that command."""
    Bench(tmp_path, [step("cache-source", 3.0)], []).run()
    shutil.rmtree(tmp_path / "out/pipefix-caches")
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    fixed = bench.run()
    assert [one.id for one in fixed.applied] == ["cache-source"] and (bench.out / "pipefix-caches/source").exists()
    assert planfile.read(bench.out / planfile.NAME).cache.path == "pipefix-caches/source"
    assert "which the plan names, was not there" in fixed.left_alone[0]


def follows(bench):
    """A loader whose code names the plan that lies there."""
    path = bench.out / planfile.NAME
    planfile.write(msgspec.structs.replace(planfile.read(path), machine=None), path)  # of this machine, whichever that is
    return FastLoader(bench.data, batch_size=4, plan=path)


def test_a_loader_that_follows_the_plan_goes_on_from_it(tmp_path):
    """fix(loader) named the plan's folder, and there the plan was refused as that of <DataLoader object>."""
    before = Bench(tmp_path, [step("workers-2", 1.5)], [])
    before.run()
    bench = Bench(tmp_path, [step("cache-source", 1.5)], [], target=follows(before))
    fixed = bench.run()
    assert [one.id for one in fixed.applied] == ["cache-source"]
    plan = planfile.read(bench.out / planfile.NAME)
    assert plan.loader.num_workers == 2 and plan.cache is not None
    # The whole was held against the loader, which has the older plan: that was told as the gain over no plan.
    assert fixed.total is not None and not fixed.went_on
    assert "measured" not in json.loads((bench.out / "pipefix.log.jsonl").read_text().splitlines()[-1])


def test_a_plan_of_another_target_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    planfile.write(planfile.PlanFile(target="other.py:loader"), tmp_path / "out" / planfile.NAME)
    with pytest.raises(BadUsage, match=r"is the plan of other.py:loader"):
        Bench(tmp_path, [step("workers-2")]).run()


def test_two_loaders_of_python_do_not_share_a_plan(tmp_path):
    """pipefix.fix(train_loader), and then pipefix.fix(val_loader): that went on from the first one's plan, and wrote over it."""
    Bench(tmp_path, [step("workers-2", 1.5)], []).run()
    other = DataLoader(Lines(tmp_path / "data", 8), batch_size=4)
    with pytest.raises(BadUsage, match="is the plan of Lines of 12 samples in a <DataLoader object>, not of Lines of 8 samples"):
        Bench(tmp_path, [step("workers-4", 1.5)], target=other).run()


def test_ctrl_c_keeps_what_was_kept(tmp_path, monkeypatch):
    from pipefix.fixes import fixers

    def interrupted(self, step, place, say):
        raise KeyboardInterrupt

    monkeypatch.setattr(fixers.BuildCache, "make", interrupted)
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("cache-source", 3.0)])
    fixed = bench.run()
    assert fixed.interrupted and [one.id for one in fixed.applied] == ["workers-2"]
    assert planfile.read(bench.out / "pipefix.plan.toml").cache is None
    assert events(bench)[-2:] == ["dropped", "ended"]


def test_ctrl_c_as_soon_as_a_plan_is_in_its_place(tmp_path, monkeypatch):
    """The plan held the step, and "Interrupted: nothing was changed" was told."""
    write_text = planfile.write_text

    def interrupted(*args, **options):
        write_text(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(planfile, "write_text", interrupted)
    bench = Bench(tmp_path, [step("workers-2", 1.8)])
    fixed = bench.run()
    assert fixed.interrupted and [one.id for one in fixed.applied] == ["workers-2"]
    assert planfile.read(bench.out / planfile.NAME).loader.num_workers == 2
    assert events(bench)[-2:] == ["kept", "ended"]


def test_an_error_of_a_later_look_comes_with_what_was_kept(tmp_path, monkeypatch):
    """Of a sample that only the second probe came to, nothing but the error was told: not that there is a plan."""
    bench = Bench(tmp_path, [step("workers-2", 1.8)])
    run = runfile.read(Path(__file__).parents[2] / "fixtures/runs/decode-bound-workers.json")

    def look(subject, consumer, **_):
        probed = bench.look(subject, consumer, 1.0)
        if len(bench.looks) > 1:
            raise TargetError("dataset[3] raised ValueError: torn.")
        return run, None, probed.plan

    monkeypatch.setattr("pipefix.api.fix.look_at", look)
    monkeypatch.setattr(speedup, "faster", bench.faster)
    with pytest.raises(TargetError, match="torn") as failed:
        fix(bench.target, out=bench.out)
    report = failed.value.known
    assert [one.id for one in report.fixed.applied] == ["workers-2"] and report.page.exists()
    assert report.fixed.stopped == "dataset[3] raised ValueError: torn" and report.fixed.plan is not None


def test_ctrl_c_while_this_process_builds_a_cache(tmp_path):
    """Where polars runs, say: it was taken for a reason against the cache, whose finished part was removed, and fix went on."""
    bench = Bench(tmp_path, [step("cache-source", 3.0), step("workers-2", 1.8)])
    with interrupted_after(1):
        fixed = bench.run()
    assert fixed.interrupted and not fixed.outcomes and events(bench)[-2:] == ["dropped", "ended"]
    assert list((bench.out / "pipefix-caches" / "source.building" / "parts").iterdir())


def test_the_users_code_raising_in_the_fixed_pipeline_is_a_reason(tmp_path, monkeypatch):
    from pipefix.fixes import same_samples

    def raised(*_, **__):
        raise TargetError("dataset[3] raised ValueError: no.")

    monkeypatch.setattr(same_samples, "same", raised)
    fixed = Bench(tmp_path, [step("cache-source", 3.0)]).run()
    assert fixed.refused[0].why == "dataset[3] raised ValueError: no"


def test_a_plan_that_cannot_be_written_leaves_all_as_it_was(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(planfile, "write_whole", full)
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    fixed = bench.run()
    assert not fixed.applied and "No space left" in fixed.refused[0].why
    assert bench.plan_text() is None and not (bench.out / "pipefix-caches").exists()


def test_a_cache_gives_way_to_one_that_holds_more_and_undo_still_has_it(tmp_path):
    bench = Bench(tmp_path, [step("cache-source", 1.5)], [step("cache-sample", 1.5)], [step("cache-decoded", 1.5)])
    fixed = bench.run()
    assert fixed.no_longer_read == ["pipefix-caches/source"] and (bench.out / "pipefix-caches/source").exists()
    assert "holds what comes later on a sample's way" in fixed.refused[0].why
