"""Which arms of the table run and why others are declined, how long blocks are, and arms that are no answer to their question."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.measurement import experiments
from pipefix.measurement import schedule as scheduling
from pipefix.measurement.experiments import LEAVE_ONE_OUT, POOL, Experiment
from pipefix.measurement.measurement import Block, Row
from pipefix.measurement.schedule import (
    FEWEST_ROUNDS,
    LONGEST,
    SHORTEST,
    TRIAL_BLOCKS,
    TRIED_EVERY,
    Schedule,
    ScheduleFacts,
    facts_of,
    schedule,
    unreplaced_operation,
)
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.vocabulary.stage import IN_SAMPLE, Stage
from tests.doubles.made_up import sampled
from tests.doubles.measured import measured
from tests.doubles.ticks import PROBE, Ticks

WITHOUT_AN_ARM = {Stage.TRANSFER: "without its copy to the device there is no step, so its time is measured by events alone"}


def test_every_stage_can_be_left_out_or_says_why_not() -> None:
    assert LEAVE_ONE_OUT.keys() | WITHOUT_AN_ARM.keys() == set(Stage)
    assert not LEAVE_ONE_OUT.keys() & WITHOUT_AN_ARM.keys()


def test_a_leave_one_out_arm_leaves_out_just_that_stage() -> None:
    for stage, arm in LEAVE_ONE_OUT.items():
        assert arm.replaces == (frozenset() if stage is Stage.STEP else {stage})
        assert arm.consumer == (stage is not Stage.STEP)


def test_every_arm_of_the_module_is_in_the_table() -> None:
    defined = {id(value) for value in vars(experiments).values() if isinstance(value, experiments.Experiment)}
    assert {id(arm) for arm in POOL} == defined
    assert len({arm.name for arm in POOL}) == len(POOL)
    assert not any(arm.replaces for arm in POOL if not arm.timed), "what runs without clocks replaces nothing"


def test_arms_of_several_stages_replace_a_whole_front_of_the_row() -> None:
    """What lies before a recorded stage is recorded too: nobody could cache a batch and still read its files."""
    row = [*IN_SAMPLE, Stage.COLLATE, Stage.IPC]
    for arm in (experiments.DECODED, experiments.SAMPLES, experiments.PREBUILT, experiments.FLOOR):
        assert arm.replaces == frozenset(row[: len(arm.replaces)])


NEVER = {experiments.RECORD, experiments.COLD, experiments.TRACED}
"""Arms with a time of their own."""


def situation(**changed: Any) -> ScheduleFacts:
    even = {Stage.STORAGE: 0.3, Stage.DECODE: 0.3, Stage.AUGMENT: 0.3}
    return ScheduleFacts(**{"workers": 2, "has_consumer": True, "share": even, **changed})


def planned(*, seconds: float = 60.0, lap: float = 0.01, trials: tuple[int, ...] = (), **changed: Any) -> Schedule:
    return schedule(situation(**changed), trials, seconds=seconds, lap=lap)


def test_with_time_enough_everything_runs() -> None:
    plan = planned(trials=(1, 4), parts={"sampler-recorded": 0.1})
    assert set(plan.arms) == set(POOL) - NEVER
    assert plan.trials == (1, 4)
    assert plan.declined == {}


@given(st.floats(0.1, 120), st.floats(0.0001, 2), st.lists(st.integers(1, 8), max_size=3, unique=True), st.booleans())
def test_every_arm_either_runs_or_says_why_not(seconds: float, lap: float, trials: list[int], consumer: bool) -> None:
    plan = planned(seconds=seconds, lap=lap, trials=tuple(trials), has_consumer=consumer)
    ran = {arm.name for arm in plan.arms} | {f"workers-{count}" for count in plan.trials}
    assert ran.isdisjoint(plan.declined)
    wanted = {arm.name for arm in set(POOL) - NEVER} | {f"workers-{count}" for count in trials if count != 2}
    assert ran | plan.declined.keys() == wanted
    assert SHORTEST <= plan.length <= LONGEST
    assert all(why and why[0].islower() for why in plan.declined.values())
    assert plan.arms[:2] == (experiments.REAL, experiments.PLAIN), "what everything is compared with is never given up"


@given(st.floats(1, 120), st.floats(0.0001, 0.02))
def test_more_time_never_runs_fewer_arms(seconds: float, lap: float) -> None:
    assert set(planned(seconds=seconds, lap=lap).arms) <= set(planned(seconds=2 * seconds, lap=lap).arms)


@pytest.mark.parametrize(("own", "kept"), [(0.6, True), (0.3, False)])
def test_a_tight_budget_keeps_the_arm_without_whole_samples_where_own_code_leads(own: float, kept: bool) -> None:
    plan = planned(seconds=2.0, lap=0.01, parts={"samples-recorded": own})
    assert (experiments.SAMPLES in plan.arms) is kept


def test_a_tight_budget_keeps_the_arms_that_leave_one_stage_out() -> None:
    plan = planned(seconds=2.0, lap=0.01)
    assert {experiments.NO_STORAGE, experiments.NO_DECODE, experiments.NO_AUGMENT} <= set(plan.arms)
    assert "--budget" in plan.declined["loader-floor"]


@pytest.mark.parametrize(
    "lead",
    [
        experiments.NO_DECODE,
        experiments.NO_SAMPLER,
        experiments.NO_HANDOVER,
        experiments.NO_COLLATE,
        experiments.SUPPLY,
        experiments.SAMPLES,
    ],
)
def test_where_batches_take_long_the_arm_without_what_takes_most_is_kept(lead: Experiment) -> None:
    parts = {arm.name: 0.1 for arm in (experiments.NO_STORAGE, experiments.NO_SAMPLER)} | {lead.name: 0.6}
    plan = planned(seconds=10.0, lap=2.0, trials=(1, 4), parts=parts)
    assert plan.short and plan.lead is lead
    assert plan.arms == (experiments.REAL, experiments.PLAIN, lead)
    assert plan.lap(0) == (lead, experiments.REAL, lead, experiments.PLAIN)
    assert plan.declined["storage-from-memory"].startswith("batches take too long for it in this time budget")
    assert "storage-from-memory" in plan.untried, "no verdict may rest on an arm that only the time was lacking for"
    assert planned(seconds=60.0, lap=0.01).short is False


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_first_look_tells(workers: int) -> None:
    first = sampled(measured({"decode": 3.0, "augment": 1.0, "collate": 1.0}, workers=workers, step=2.0), 0.5).of("real")[0]
    told = facts_of(first, workers, has_consumer=True, no_batches=None)
    assert told.share == pytest.approx({Stage.STORAGE: 0.0, Stage.DECODE: 0.6, Stage.AUGMENT: 0.2})
    each = 2.5 if workers else 7.0
    wanted = {"decode-recorded": 3.0, "collate-recorded": 1.0, "no-consumer": 2.0, "sampler-recorded": 0.5}
    beside = {"decode-recorded": max(1, workers), "collate-recorded": max(1, workers)}
    assert {arm: told.parts[arm] for arm in wanted} == pytest.approx(
        {arm: ms / beside.get(arm, 1) / each for arm, ms in wanted.items()}
    )


def test_where_nothing_that_an_arm_leaves_out_takes_long_none_comes_first() -> None:
    plan = planned(seconds=10.0, lap=2.0, parts={"handover-skipped": 0.01})
    assert plan.short and plan.lead is None
    assert plan.lap(0)[:2] == (experiments.REAL, experiments.PLAIN)


def test_the_blocks_fit_into_the_time() -> None:
    plan = planned(seconds=30.0, lap=0.01, trials=(1, 4))
    blocks = sum(arm.length / arm.every for arm in plan.arms) + len(plan.trials) * TRIAL_BLOCKS / TRIED_EVERY
    assert FEWEST_ROUNDS * blocks * plan.length <= 30.0


@pytest.mark.parametrize(
    ("changed", "arm", "why"),
    [
        ({"has_consumer": False}, "no-consumer", "there is no consumer to leave out"),
        (
            {"parts": {"sampler-recorded": 0.01}},
            "sampler-recorded",
            "the sampler took under 2.0 % of the time, so replacing it can gain no more",
        ),
        ({"workers": 0}, "handover-skipped", "there are no workers, so nothing crosses a process border"),
        ({"no_batches": "a socket is a handle"}, "collate-recorded", "batches cannot be recorded: a socket is a handle"),
        (
            {"share": {Stage.STORAGE: 0.001, Stage.DECODE: 0.5, Stage.AUGMENT: 0.4}},
            "storage-from-memory",
            "storage took under 2.0 % of a batch's making, so replacing it can gain no more",
        ),
        (
            {"share": {Stage.STORAGE: 0.001, Stage.DECODE: 0.5, Stage.AUGMENT: 0.4}},
            "decoded-recorded",
            "the same as replacing the larger of storage and decode",
        ),
    ],
)
def test_what_can_tell_nothing_is_declined_with_the_reason(changed: dict[str, Any], arm: str, why: str) -> None:
    plan = planned(**changed)
    assert plan.declined[arm] == why
    assert arm not in {experiment.name for experiment in plan.arms}


def block(**nanoseconds: int) -> Block:
    """One batch of four; operations are called STAGE_NAME."""
    trace = BatchTrace(1, 1, 0, 9, 4, 0, 0, 0, 0, 0)
    trace.charges = [Charge(name.partition("_")[0], name, spent, 0, 0, 1) for name, spent in nanoseconds.items()]
    return Block("any", (Row(0, 0, 0, 0, 0, trace),), 1.0, 4)


def beside(**nanoseconds: int) -> Block:
    """The same of operations that threads of the dataset's own ran."""
    alone = block()
    alone.rows[0].trace.foreign = [(name.partition("_")[0], name, spent) for name, spent in nanoseconds.items()]
    return alone


def test_what_threads_of_the_datasets_own_run_cannot_be_replaced() -> None:
    real = beside(decode_jpeg=500)
    assert unreplaced_operation(experiments.NO_DECODE, real, [real]) == "decode_jpeg"
    assert unreplaced_operation(experiments.NO_STORAGE, real, [real]) is None


REAL = block(storage_recv=900, storage_open=100, decode_jpeg=500)


@pytest.mark.parametrize(
    ("arm", "block", "left"),
    [
        (experiments.NO_STORAGE, block(storage_recv=880, storage_open=10, decode_jpeg=500), "storage_recv"),
        (experiments.NO_STORAGE, block(storage_recv=480, storage_open=10), None),
        (experiments.NO_STORAGE, block(decode_jpeg=500), None),
        (experiments.DECODED, block(storage_recv=900, decode_jpeg=10), "storage_recv"),
        (experiments.NO_DECODE, block(storage_recv=900, storage_open=100), None),
        (experiments.NO_COLLATE, REAL, None),
        (experiments.REAL, REAL, None),
    ],
)
def test_what_runs_all_the_same_is_named(arm: Experiment, block: Block, left: str | None) -> None:
    assert unreplaced_operation(arm, block, [REAL, REAL]) == left


def test_without_a_look_at_the_real_arm_nothing_is_said() -> None:
    assert unreplaced_operation(experiments.NO_STORAGE, REAL, []) is None


class Asked(Dataset[Any]):
    """Samples that a server at the other end of a connection gives."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:  # what is sent within the machine is no storage
            self.ours = socket.create_connection(server.getsockname())
            far_end, _ = server.accept()
        threading.Thread(target=self.serve, args=(far_end, passes), daemon=True).start()

    @staticmethod
    def serve(end: socket.socket, passes: Callable[[float], None]) -> None:
        while end.recv(1):
            passes(0.002)
            end.sendall(bytes(256))

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        self.ours.sendall(b"?")
        return torch.frombuffer(bytearray(self.ours.recv(256)), dtype=torch.uint8).float().sum()


def until_the_fourth_round(phase: str, done: float) -> None:
    """Ends a probe, as Ctrl-C would, once it has seen enough, however long that took."""
    if phase.startswith("round 4"):
        raise KeyboardInterrupt


def test_a_conversation_is_not_called_free_because_it_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(1e-5).given_to(PROBE, monkeypatch)
    monkeypatch.setattr(scheduling, "LONGEST", SHORTEST)
    run = pipefix.probe(DataLoader(Asked(ticks.passes), batch_size=4), step_ms=1.0, budget=30.0, progress=until_the_fourth_round)
    (arm,) = [arm for arm in run.arms if arm.name == "storage-from-memory"]
    # The answer may be made before the question's call has returned.
    whys = {f"socket.{call} runs all the same, because what it gives cannot be recorded" for call in ("recv", "sendall")}
    assert arm.declined in whys
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", "storage")
