"""What takes the batches: steps emulated in time, the user's own, and one made around their model without training it."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader

from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement import consumer_alone, gpu
from pipefix.measurement.consumer import Consumer, Emulated, ModelStep, UserStep, consumer_for
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.step_scan import StepScan
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.doubles.ticks import Ticks
from tests.measurement import planted


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """These hold for the CPU; tests/gpu has the others."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def found(paths: list[str]) -> Callable[..., Subject]:
    def make(kind: str = "map", **options: Any) -> Subject:
        return planted.subject(planted.loader(kind, paths), **options)

    return make


class TestEmulated:
    def test_it_sleeps_as_long_as_a_step_takes(self, ticks: Ticks) -> None:
        step = Emulated(0.02, name="20 ms")
        for _ in range(5):
            step(None)
        assert ticks.sleeps == 5 * [0.02]

    def test_a_step_of_a_device_is_done_while_the_next_batch_is_made(self, ticks: Ticks) -> None:
        step = Emulated(0.0625, name="62.5 ms", launch=0.03125)
        for making in (0.0, 0.25, 0.0):
            ticks.passes(making)
            step(None)
        assert [time.idle for time in step.settle()] == [None, int(1e9 * (0.25 + 0.03125 - 0.0625)), 0]
        assert ticks.sleeps == [0.03125, 0.03125, 0.03125, 0.0625], "the last for what is not done at the end"

    def test_the_cpu_runs_no_further_ahead_of_a_device_than_a_quarter_of_a_second(self, ticks: Ticks) -> None:
        step = Emulated(0.125, name="125 ms", launch=0.0)
        for _ in range(4):
            step(None)
        assert ticks.sleeps == [0.0, 0.0, 0.125, 0.125]

    @pytest.mark.parametrize(
        ("kind", "asked", "seconds", "name"),
        [
            ("map", {"step_ms": 25.0}, 0.025, "emulated: 25 ms a batch"),
            ("map", {"target_rate": 1000.0}, 4 / 1000, "emulated: 1000 samples/s"),
            ("single", {"target_rate": 1000.0}, 1 / 1000, "emulated: 1000 samples/s"),
            ("batch sampler", {"target_rate": 600.0}, 6 / 600, "emulated: 600 samples/s"),
        ],
    )
    def test_milliseconds_are_of_a_batch_and_a_rate_is_of_samples(
        self, kind: str, asked: dict[str, float], seconds: float, name: str, paths: list[str]
    ) -> None:
        built: Any = DataLoader(planted.Mapped(paths), batch_sampler=BatchSampler(range(24), 6, False), collate_fn=planted.collate)
        built = built if kind == "batch sampler" else planted.loader(kind, paths)
        consumer: Any = consumer_for(planted.subject(built, consumer=print, model=nn.Linear(1, 1)), **asked)
        assert (consumer.seconds, consumer.name, consumer.present) == (seconds, name, True)

    @pytest.mark.parametrize(
        ("figures", "message"),
        [
            ({"step_ms": 0.0}, r"A step of 0 ms cannot be emulated\."),
            ({"step_ms": -3.0}, r"A step of -3 ms cannot be emulated\."),
            ({"step_ms": math.nan}, r"A step of nan ms cannot be emulated\."),
            ({"target_rate": math.inf}, r"A target rate of inf samples/s cannot be met\."),
            ({"target_rate": 0.0}, r"A target rate of 0 samples/s cannot be met\."),
            ({"step_ms": 5.0, "target_rate": 9.0}, r"Both a step of 5 ms and a target rate of 9 samples/s were given\."),
        ],
    )
    def test_figures_that_make_no_sense_are_refused_with_one_that_does(
        self, found: Callable[..., Subject], figures: dict[str, float], message: str
    ) -> None:
        with pytest.raises(BadUsage, match=message) as refused:
            consumer_for(found(), **figures)
        assert "--step-ms" in refused.value.advice or "--target-rate" in refused.value.advice


def test_the_files_step_goes_before_its_model_and_with_neither_there_is_none(found: Callable[..., Subject]) -> None:
    consumer = consumer_for(found(consumer=lambda batch: None, model=nn.Linear(1, 1)))
    assert (type(consumer), consumer.name) == (UserStep, "train_step")
    assert consumer_for(found(model=nn.Linear(1, 1))).name == "model"
    consumer = consumer_for(found())
    assert (type(consumer), consumer.name, consumer.present) == (Consumer, "none", False)
    consumer(object())
    assert consumer.settle() == []


class Layered(nn.Module):
    """Its forward takes a while, and calls modules within modules."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        planted.burn(0.004)
        return self.inner(inputs)  # type: ignore[no-any-return]


class TestSplit:
    BATCH = (torch.randn(4, 64), torch.tensor([0, 1, 2, 0]))

    def test_a_real_step_is_split_into_its_parts(self, ticks: Ticks) -> None:
        model = Layered()
        optimizer = torch.optim.Adam(model.parameters())

        def train_step(batch: Any) -> None:
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            planted.burn(0.003)

        step = UserStep(train_step)
        step(self.BATCH)
        parts = step.split(KeptBatch(self.BATCH))
        assert parts.keys() == {"forward", "backward", "optimizer", "other"}
        assert parts["forward"] == pytest.approx(0.004), "the outermost module's time, not the sum over modules within modules"
        assert parts["other"] == pytest.approx(0.003)
        assert parts["backward"] == parts["optimizer"] == 0

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_what_is_computed_again_for_gradients_is_a_part_of_the_backward_pass(self, reentrant: bool, ticks: Ticks) -> None:
        model = Layered()
        inputs = self.BATCH[0].clone().requires_grad_()

        def train_step(batch: Any) -> None:
            checkpoint(model, inputs, use_reentrant=reentrant).sum().backward()  # type: ignore[no-untyped-call]

        parts = UserStep(train_step).split(KeptBatch(self.BATCH))
        assert (parts["forward"], parts["backward"]) == pytest.approx((0.004, 0.004))

    @pytest.mark.parametrize("fails", [False, True])
    def test_hooks_are_gone_afterwards(self, fails: bool) -> None:
        backward = torch.Tensor.backward
        module = torch.nn.modules.module
        before = [dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)]
        step = UserStep(lambda batch: nn.Linear(64, 1)(batch[9 if fails else 0]).sum().backward())
        with pytest.raises(TargetError, match="IndexError") if fails else contextlib.nullcontext():
            step.split(KeptBatch(self.BATCH))
        assert torch.Tensor.backward is backward
        assert [dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)] == before

    def test_a_step_without_torch_is_not_split(self) -> None:
        step = UserStep(lambda batch: planted.burn(0.001))
        assert step.split(KeptBatch(self.BATCH)) == {}


def test_a_look_at_a_step_leaves_what_another_has_put_in_the_place_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(tensor: torch.Tensor, *where: Any) -> torch.Tensor:
        return tensor

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    monkeypatch.setattr(torch.Tensor, "to", theirs)
    StepScan().run(lambda: torch.zeros(1).to("cpu"))
    assert torch.Tensor.to is theirs and "cuda" not in vars(torch.Tensor)


class TestModelStep:
    @pytest.mark.parametrize("kind", [tuple, list, lambda values: dict(zip("abc", values, strict=True))])
    def test_the_first_tensor_of_a_batch_feeds_it(self, kind: Any) -> None:
        fed: list[Any] = []

        class Spy(nn.Linear):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                fed.append(inputs)
                return super().forward(inputs)

        inputs = torch.randn(4, 5)
        ModelStep(Spy(5, 2), nn.CrossEntropyLoss())(kind(["a name", inputs, torch.tensor([0, 1, 1, 0])]))
        assert torch.equal(fed[0], inputs)

    def test_the_users_model_is_not_trained(self) -> None:
        model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).eval()
        before = copy.deepcopy(model.state_dict())
        step = ModelStep(model, None)
        for _ in range(3):
            step(torch.randn(4, 5))
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
        assert not model.training
        assert all(weight.grad is None for weight in model.parameters())
        changed = [not torch.equal(weight, before[name]) for name, weight in step._model.state_dict().items()]
        assert any(changed), "its copy really trains"

    def test_a_frozen_model_only_runs_forward(self) -> None:
        step = ModelStep(nn.Linear(5, 2).requires_grad_(False), None)
        assert step.split(KeptBatch(torch.randn(4, 5)))["backward"] == 0

    @pytest.mark.parametrize(("batch", "kind"), [("text", "str"), ({"a": [1, 2]}, "dict"), ([], "list")])
    def test_a_batch_without_a_tensor_is_refused_in_a_sentence(self, batch: Any, kind: str) -> None:
        with pytest.raises(TargetError, match=f"the batch is a {kind} without a tensor at its top level") as refused:
            ModelStep(nn.Linear(5, 2), None)(batch)
        assert "train_step(batch)" in refused.value.advice


class TupleModel(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return super().forward(inputs), None


class TwoInputs(nn.Linear):
    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) - targets


class OwnLoss(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return {"loss": super().forward(inputs).sum()}


class TestGuess:
    """A step made around a model is a guess: where it fails there is no consumer, with the reason, and nothing is raised."""

    BATCH = (torch.randn(4, 5), torch.tensor([0, 1, 1, 0]))

    @pytest.mark.parametrize(
        ("model", "criterion", "message"),
        [
            (TupleModel(5, 2), None, "TypeError: it returns a tuple, and only of a tensor a loss can be made"),
            (TupleModel(5, 2), nn.CrossEntropyLoss(), "TypeError: cross_entropy_loss"),
            (TwoInputs(5, 2), None, "missing 1 required positional argument: 'targets'"),
            (OwnLoss(5, 2), None, "it returns a dict"),
            (nn.Linear(7, 2), None, "mat1 and mat2 shapes cannot be multiplied"),
        ],
        ids=["tuple", "tuple into a loss", "two inputs", "own loss", "another shape"],
    )
    def test_what_it_cannot_do_is_a_reason(self, model: nn.Module, criterion: Any, message: str) -> None:
        step = ModelStep(model, criterion)
        step.try_on(self.BATCH)
        assert (step.present, step.name) == (False, "none")
        assert message in step.why_none
        step(self.BATCH)
        assert step.settle() == []

    def test_a_model_that_cannot_be_copied_is_a_reason_too(self) -> None:
        class Held(nn.Linear):
            def __deepcopy__(self, memo: Any) -> Any:
                raise RuntimeError("it holds a socket")

        step = ModelStep(Held(5, 2), None)
        step.try_on(self.BATCH)
        assert not step.present
        assert "it holds a socket" in step.why_none

    def test_one_that_works_goes_on_with_a_later_batch_that_it_cannot_take(self) -> None:
        """A last batch of one sample, say, of which batch normalization cannot tell a variance."""
        step = ModelStep(nn.BatchNorm1d(5), nn.CrossEntropyLoss())
        step.try_on(self.BATCH)
        step((torch.randn(1, 5), torch.tensor([0])))
        assert (step.present, step.name, step.why_none) == (True, "model", "")


class TestDeviceEvents:
    """With a device each step is between two events, and nothing waits for it. The device here is a fake."""

    def test_steps_are_marked_and_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]
        waits: list[None] = []

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                clock[0] += 1.5
                self.at = clock[0]

            def query(self) -> bool:
                return True

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(None))
        assert gpu.present()
        step = UserStep(lambda batch: 1 / len(batch))
        for _ in range(3):
            step([1])
        assert not waits, "no step is waited for"
        assert step.settle() == [gpu.DeviceTime(1_500_000, None), *[gpu.DeviceTime(1_500_000, 1_500_000)] * 2]
        assert len(waits) == 1
        assert step.settle() == []
        with pytest.raises(TargetError, match="ZeroDivisionError"):
            step([])
        assert step.settle() == [], "a step that raised is left out"


class TestOnItsWay:
    """What a `FastLoader` does to batches before the caller has them is done before the step has them."""

    @pytest.mark.parametrize("how", [{}, {"step_ms": 0.01}])
    def test_the_loaders_augmentation_is_done(self, how: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
        augmented: list[torch.Tensor] = []

        def augment(batch: torch.Tensor) -> torch.Tensor:
            augmented.append(batch * 2)
            return augmented[-1]

        loader = FastLoader([torch.ones(2)] * 4, batch_size=2, augment=augment)
        taken: list[Any] = []
        subject = planted.subject(loader, consumer=taken.append)
        consumer_for(subject, **how)(torch.ones(2, 2))
        assert len(augmented) == 1 and bool((augmented[0] == 2).all())
        assert how or taken[0] is augmented[0]

    def test_that_it_copies_them_is_known(self) -> None:
        for device, copies in (("cuda", True), ("cpu", False)):
            built = FastLoader([torch.ones(2)] * 4, device=device)
            assert consumer_for(planted.subject(built), step_ms=1.0).way.copies == copies

    def test_a_loader_that_is_run_does_it_no_second_time(self) -> None:
        loader = FastLoader([torch.ones(2)] * 4, batch_size=2, augment=lambda batch: batch * 2, device="cpu")
        run = planted.subject(loader).loader_to_run()
        assert [batch.tolist() for batch in run] == [[[1, 1], [1, 1]]] * 2
        assert [batch.tolist() for batch in loader] == [[[2, 2], [2, 2]]] * 2


class TestAlone:
    def test_it_is_a_block_of_its_own_rate(self, ticks: Ticks) -> None:
        block = consumer_alone.alone(Emulated(0.005, name="5 ms"), KeptBatch(None), 8, 0.1, name="alone")
        steps = len(ticks.sleeps) - 1  # the first is a trial
        assert set(ticks.sleeps) == {0.005}
        assert (block.arm, block.rows, block.samples) == ("alone", (), 8 * steps)
        assert block.seconds == pytest.approx(0.005 * steps)
        assert 0.1 <= block.seconds < 0.2
        assert block.rate == pytest.approx(1600)

    def test_a_step_longer_than_the_time_still_runs_twice(self, ticks: Ticks) -> None:
        assert consumer_alone.alone(Emulated(0.03, name="30 ms"), KeptBatch(None), 1, 0.001, name="alone").samples == 2
