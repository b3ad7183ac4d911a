"""What a verb is given in Python: a loader and its step, and amounts as text."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pipefix
from pipefix.api.fix import fix
from pipefix.api.probe import probe
from pipefix.api.target import as_planned, consumed, load_target
from pipefix.api.tune import _reading_its_cache, tune
from pipefix.caches.convert import convert, recipe_of
from pipefix.fixes.same_samples import mode_of
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.consumer import consumer_for
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile, write
from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import BadUsage, TargetError, UnreadableFile
from tests.fixes.benchtop import Lines

LOADER = DataLoader(TensorDataset(torch.zeros(16, 2)), batch_size=4)


def test_a_step_beside_a_loader_is_its_consumer() -> None:
    seen: list[Any] = []
    subject = load_target(LOADER, step=seen.append)
    consumer = consumer_for(subject)
    assert consumer.name == "train_step"
    assert subject.consumer == seen.append


def test_a_model_is_taken_as_one() -> None:
    subject = load_target(LOADER, step=torch.nn.Linear(2, 1))
    assert subject.consumer is None
    assert isinstance(subject.model, torch.nn.Linear)


def test_what_cannot_be_called_is_no_step() -> None:
    with pytest.raises(BadUsage) as caught:
        load_target(LOADER, step=25)
    assert str(caught.value) == "step is of type int, which cannot be called with a batch."
    assert "step=train_step" in caught.value.advice


def test_emulated_consumers_may_be_text() -> None:
    assert consumed("25ms", None) == {"step_ms": 25.0, "target_rate": None}
    assert consumed("0.2s", None) == {"step_ms": 200.0, "target_rate": None}
    assert consumed(None, "1200/s") == {"step_ms": None, "target_rate": 1200.0}
    with pytest.raises(BadUsage, match="Both step= and target_rate= were given"):
        consumed(None, 1200, step=print)  # it was emulated, and the step was never called


@pytest.mark.parametrize(
    ("name", "value", "read", "amount"),
    [
        ("budget", "2m", amounts.seconds, 120.0),
        ("budget", 30, amounts.seconds, 30),
        ("recording_bytes", "8GB", amounts.size, 8_000_000_000),
        ("stall", "1%", amounts.share, 0.01),
        ("stall", 0.01, amounts.share, 0.01),
    ],
)
def test_amounts_are_numbers_or_text(name: str, value: Any, read: Any, amount: float) -> None:
    assert amounts.taken(name, value, read) == pytest.approx(amount)


@pytest.mark.parametrize("value", [0, -1.5, float("nan")])
def test_a_number_is_above_zero_as_a_text_is(value: float) -> None:
    """A budget of 0 was a ZeroDivisionError of ours."""
    with pytest.raises(BadUsage, match=f"budget: {value:g} is not above zero"):
        amounts.taken("budget", value, amounts.seconds)


def test_a_text_that_is_no_amount_is_told_with_its_name() -> None:
    with pytest.raises(BadUsage, match="budget: 'soon' is not a number of seconds; write 60, 90s or 2m"):
        amounts.taken("budget", "soon", amounts.seconds)
    with pytest.raises(BadUsage, match=r"min_gain: '0\.05' could mean 0.05% or 5%; write 5% or 0\.05%"):
        amounts.taken("min_gain", "0.05", amounts.share)


def test_a_loader_with_a_plan_is_measured_over_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the plan that fix wrote was named in the code, a probe still told of the dataset without it."""
    dataset = Lines(tmp_path / "data")
    convert(dataset, recipe_of("lmdb", "sample"), tmp_path / "cache", target="lines.py", workers=1)
    place = tmp_path / "pipefix.plan.toml"
    write(PlanFile(loader=LoaderChange(num_workers=1), cache=CacheChange(path="cache", store="sample")), place)
    loader = FastLoader(dataset, batch_size=4, plan=place)
    looked: list[Any] = []

    def look(subject: Any, *_: Any, **__: Any) -> Any:
        looked.append(subject)
        raise BadUsage("seen")

    monkeypatch.setattr(sys.modules["pipefix.api.probe"], "look_at", look)
    with pytest.raises(BadUsage, match="seen"):
        probe(loader)
    notes: list[str] = []
    looked.append(_reading_its_cache(load_target(loader), None, None, tmp_path, notes))
    assert [type(subject.dataset).__name__ for subject in looked] == ["CachedDataset"] * 2
    assert looked[0].loader.num_workers == 1 and loader.dataset is dataset
    assert notes == ["Trials read from cache, as the plan of the loader itself says."]


@pytest.mark.parametrize(
    ("option", "told"),
    [({"fuse": "exact"}, "fused calls (fuse='exact')"), ({"threads_per_worker": 8}, "threads (threads_per_worker=8)")],
)
def test_of_fused_calls_and_threads_a_probe_says_that_it_does_not_see_them(option: dict[str, Any], told: str) -> None:
    planned = as_planned(load_target(FastLoader(LOADER.dataset, **option)))
    assert f"{told}, which a probe does not see into" in planned.wrapper
    assert as_planned(load_target(LOADER)).wrapper == ""


def test_a_loader_whose_plan_fuses_is_known_to_fuse(tmp_path: Path) -> None:
    """A probe told it to be a FastLoader with fuse=."""
    place = tmp_path / "pipefix.plan.toml"
    write(PlanFile(loader=LoaderChange(fuse="exact")), place)
    planned = as_planned(load_target(FastLoader(LOADER.dataset, plan=place)))
    assert mode_of(planned.loader) == "exact"
    assert "fused calls (fuse='exact')" in planned.wrapper


def test_a_loader_whose_plan_moves_transforms_is_not_told_to_move_them() -> None:
    follows = PlanFile(augmentation=AugmentationChange(backend="kornia")), Path()
    subject: Any = SimpleNamespace(loader=SimpleNamespace(follows=follows))
    moving = sys.modules["pipefix.api.probe"]._moving(subject, "kornia")
    assert not moving.names and moving.why_none == "the loader's plan moves transforms to whole batches already"


@pytest.mark.parametrize("place", [{"trace": "none/trace.json"}, {"write": "none/pipefix.plan.toml"}], ids=["probe", "tune"])
def test_a_file_in_no_folder_is_refused_before_anything_is_measured(place: dict[str, str], tmp_path: Path) -> None:
    """It was told a minute later, with the figures lost to a program that does not look into the error."""
    verb: Any = probe if "trace" in place else tune
    name, path = next(iter(place.items()))
    with pytest.raises(UnreadableFile, match=f"there is no folder {tmp_path / 'none'}") as refused:
        verb(pytest.fail, **{name: str(tmp_path / path)})
    assert refused.value.advice == f"Make it first: mkdir -p {tmp_path / 'none'}"


@pytest.mark.parametrize(("plan", "out"), [("pipefix.plan.toml", "elsewhere"), ("tuned.toml", ".")])
def test_a_loader_that_follows_a_plan_is_fixed_from_there(tmp_path: Path, plan: str, out: str) -> None:
    """It was looked at as if it had no plan: the cache that it reads from was built once more, and brought nothing. What tune had
    written under another name was not in the plan beside it."""
    write(PlanFile(loader=LoaderChange(num_workers=1)), tmp_path / plan)
    loader = FastLoader(TensorDataset(torch.zeros(16, 2)), batch_size=4, plan=tmp_path / plan)
    with pytest.raises(BadUsage, match=f"follows a plan already, {tmp_path / plan}") as caught:
        fix(loader, out=tmp_path / out, dry_run=True)
    there = f"pipefix fix TARGET --out {tmp_path}; or take plan= out of the code."
    renamed = "call it pipefix.plan.toml, in the code too, and type " if plan == "tuned.toml" else ""
    assert caught.value.advice == f"Go on from that one: {renamed}{there}"


def test_no_plan_is_tuned_beside_the_one_that_the_loader_follows(tmp_path: Path) -> None:
    """It held what changed alone: in the place of the other it would have taken the workers and the cache away."""
    write(PlanFile(loader=LoaderChange(num_workers=1)), tmp_path / "pipefix.plan.toml")
    loader = FastLoader(TensorDataset(torch.zeros(16, 2)), batch_size=4, plan=tmp_path / "pipefix.plan.toml")
    with pytest.raises(BadUsage, match=f"follows a plan already, {tmp_path}") as caught:
        tune(loader, write=tmp_path / "tuned.toml")
    assert f"--write {tmp_path / 'pipefix.plan.toml'}" in caught.value.advice


@pytest.mark.parametrize("name", ["", ":loader"])
def test_doctor_and_swap_do_not_train(tmp_path: Path, name: str) -> None:
    """A script that trains as it stands was imported, so that it trained to its end before its loader was looked at."""
    file = tmp_path / "train.py"
    file.write_text("open(__file__ + '.ran', 'w').close()\nloader = []\nfor loss in loader:\n    loss.backward()\n")
    verbs: tuple[Any, ...] = (pipefix.doctor, pipefix.swap)
    for verb in verbs:
        with pytest.raises(TargetError, match="trains when it is imported") as caught:
            verb(f"{file}{name}")
        assert f"pipefix probe {file}" in caught.value.advice
    assert not (tmp_path / "train.py.ran").exists()
