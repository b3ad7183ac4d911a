"""The verdict on measurements whose truth is known, and the sentence that users read."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.diagnosis.diagnose import diagnose, settled
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement import experiments
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.trace import Charge
from pipefix.vocabulary.stage import Stage
from tests.doubles.measured import charged, measured, slowed

EVEN = {"storage": 1.0, "decode": 1.0, "augment": 1.0, "collate": 0.3}


@pytest.mark.parametrize("stage", ["storage", "decode", "augment", "collate"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_dearest_stage_is_named(stage: str, workers: int) -> None:
    verdict = diagnose(measured({**EVEN, stage: 3.0}, workers=workers)).verdict
    assert (verdict.kind, verdict.stage, verdict.confidence) == ("input-bound", Stage(stage), 1.0)


def uncut(measurement: Measurement, ms: float, *, cpu: float) -> Measurement:
    """Add the dataset's own code before anything is read: ``ms`` a sample, ``cpu`` of it computing."""
    spent = int(ms * 4_000_000)
    return charged(measurement, Charge(None, OWN_NAMES[0], spent, int(spent * cpu), spent, 0))


def arm(measurement: Measurement, name: str, *ms: float) -> Measurement:
    """Add an arm that takes so many milliseconds a sample, in three blocks; or in a block for each figure."""
    measurement.blocks += [Block(name, (), each * 48 / 1e3, 48) for each in (ms if len(ms) > 1 else ms * 3)]
    return measurement


def unread(measurement: Measurement) -> Measurement:
    measurement.declined["storage-from-memory"] = "nothing that was read could be recorded"
    return measurement


ONCE = {"storage-from-memory": None, "decode-recorded": 1.26, "collate-recorded": 1.48, "handover-skipped": 2.04}
IPC_ARM = {"storage-from-memory": 1.0, "decode-recorded": 1.0, "collate-recorded": 1.0, "handover-skipped": 1.5}
LONE = {"storage-from-memory": None, "decode-recorded": 1.3}
THREE = {"storage": 2.0, "decode": 1.0, "collate": 1.0}
VERDICTS: dict[str, tuple[Measurement, str, Stage | None]] = {
    "the step takes longest": (measured({"decode": 1.0}, step=2.0), "step-bound", Stage.STEP),
    # Four workers share 4 ms of decoding: 1 ms a delivered sample, less than the step's 2.
    "stations are compared": (measured({"decode": 4.0}, workers=4, step=2.0), "step-bound", Stage.STEP),
    "and not stages": (measured({"decode": 4.0}, workers=1, step=2.0), "input-bound", Stage.DECODE),
    "taking batches over": (measured({"decode": 1.0}, workers=2, step=0.2, handing=3.0), "input-bound", Stage.IPC),
    "equal stages": (measured({"decode": 1.0, "augment": 1.02}), "balanced", None),
    "equal stations": (measured({"decode": 2.0}, workers=2, step=1.0), "balanced", None),
    "handing over leads on both sides of the border": (
        measured({"decode": 0.5, "ipc": 2.0}, workers=1, step=0.5, handing=2.0), "input-bound", Stage.IPC
    ),
    "uncut code that waits is a source that no seam knows": (
        uncut(unread(measured({"storage": 0.1, "decode": 1.0}, arms=LONE)), 3.0, cpu=0.1), "input-bound", Stage.STORAGE
    ),
    "arms that ran once decide nothing against the clocks": (
        measured({"decode": 0.8, "augment": 0.6, "collate": 1.7}, workers=2, blocks=1, arms=ONCE), "inconclusive", None
    ),
    "nor do arms where the step was not left out once": (
        measured({"storage": 1.0, "decode": 1.0}, workers=2, step=1.0, arms=IPC_ARM), "balanced", None
    ),
    # A worker spends 0.01 ms a sample on handing over, while the crossing takes 3: uncut code of 0.05 ms is no rival.
    "a crossing is not smaller than uncut code because workers do little of it": (
        uncut(arm(measured({"decode": 0.5, "ipc": 0.01}, workers=2, step=0.5, handing=0.2, arms={"handover-skipped": 6.0}),
                  "batch-prebuilt", 3.0), 0.05, cpu=1.0), "input-bound", Stage.IPC
    ),
    # Storage takes half of a worker's time, so without it there would be twice as many samples at most.
    "a stage without an arm is contradicted": (
        measured(THREE, workers=2, arms={"collate-recorded": 2.6}), "input-bound", Stage.COLLATE
    ),
    "only by more than it could gain": (measured(THREE, workers=2, arms={"collate-recorded": 1.4}), "input-bound", Stage.STORAGE),
    # The workers seem to need 1 ms a sample, the step 2: but left alone, the loader takes 3.
    "a loader that is slower alone than its workers look": (
        arm(measured({"decode": 1.0}, workers=1, step=2.0), "no-consumer", 3.0), "inconclusive", None
    ),
    "a few disturbed blocks of the loader alone": (
        arm(measured({"decode": 2.0}, workers=1, step=2.0), "no-consumer", 2.02, 2.6, 2.05, 2.7, 2.8), "balanced", None
    ),
    "without workers other stages gain beside a step that limits": (
        measured({"decode": 1.5}, step=2.0, arms={"decode-recorded": 1.75, "no-consumer": 2.3}), "step-bound", Stage.STEP
    ),
    # Alone the loader takes 3 ms a sample, 1 of them in the training process; the step takes 2.
    "taking over counts once where the loader was measured alone": (
        arm(arm(measured({"decode": 1.5, "ipc": 0.5}, workers=1, step=2.0, handing=1.0), "no-consumer", 3.0),
            "batch-prebuilt", 1.9), "input-bound", Stage.IPC
    ),
}  # fmt: skip


ALONE = "Nothing took the batches, so nobody knows yet whether training waits for them."
TWO_LEAD = {"storage-from-memory": 1.05, "decode-recorded": 1.02, "collate-recorded": 1.0, "handover-skipped": 1.5}
READY = {
    "batch-prebuilt": 1.5,
    "handover-skipped": 2.0,
    "storage-from-memory": 1.1,
    "decode-recorded": 1.1,
    "augment-recorded": 1.1,
}
SENTENCES: dict[str, tuple[Measurement, str]] = {
    "an input-bound pipeline": (
        measured({"storage": 1.0, "decode": 4.0}, workers=2, step=0.5, arms={"decode-recorded": 4.0}),
        ("Input-bound: decode (decode-op) takes 80 % of the time to deliver a sample; if it were free, throughput would be 4.00x"
        " (3.40-4.71). The step waits 80 % of the time.")
    ),
    # It may deliver many times what training takes.
    "without a consumer the input side alone": (
        measured({"storage": 1.0, "decode": 4.0}, workers=2, arms={"decode-recorded": 4.0}),
        ("Input-bound, of the input side alone: decode (decode-op) takes 80 % of the time to deliver a sample; if it were free, "
        f"the input side would deliver 4.00x (3.40-4.71). {ALONE}")
    ),
    "a step-bound pipeline": (
        measured({"decode": 1.0}, workers=2, step=2.0, arms={"samples-recorded": 1.0}),
        ("Step-bound: the step takes 100 % of the time, 8.00 ms a batch, and the loader could deliver 4.00x what it uses. Work "
        "on the model, not the data: free input would gain at most 1.01x.")
    ),
    # Without workers they take turns: samples that cost nothing leave the collating, so they are not all that data takes.
    "a step that is less than half": (
        measured({"decode": 1.0, "collate": 1.2}, step=2.0, arms={"samples-recorded": 1.3, "loader-floor": 2.1}),
        ("Step-bound: the step takes 48 % of the time, 8.00 ms a batch. It is the largest part, and not the only one worth work: "
        "free input would gain at most 2.12x.")
    ),
    "and nobody tried what the rest is worth": (
        measured({"decode": 1.0, "collate": 1.2}, step=2.0, arms={"samples-recorded": 1.3}),
        ("Step-bound: the step takes 48 % of the time, 8.00 ms a batch. It is the largest part, and not the only one worth work: "
        "making batches takes the rest.")
    ),
    "a step that is nearly all": (
        measured({"decode": 0.05}, step=2.0, arms={"loader-floor": 1.02}),
        ("Step-bound: the step takes 98 % of the time, 8.00 ms a batch. Work on the model, not the data: free input would gain at "
        "most 1.03x.")
    ),
    "arms that contradict the clocks": (
        measured({"storage": 2.0, "decode": 1.0}, arms={"storage-from-memory": 1.1, "decode-recorded": 2.5}),
        ("Inconclusive: the clocks point to storage, but the replayed arms to decode (removing it gains 2.50x (2.24-2.79)). What"
        " runs meanwhile is seen in a trace: --trace FILE.")
    ),
    "nothing gains where a step limits that workers run beside": (
        measured({"decode": 1.0}, workers=2, step=2.0, arms={"handover-skipped": 1.5, "decode-recorded": 1.0}),
        ("Inconclusive: the clocks point to step, but the replayed arms to ipc (removing it gains 1.50x (1.43-1.57)). What runs "
        "meanwhile is seen in a trace: --trace FILE.")
    ),
    "code that no seam bounds": (
        uncut(measured({"storage": 1.0, "decode": 2.0}), 3.0, cpu=1.0),
        ("Inconclusive: 50 % of the time is the dataset's own code before anything is read, which no hook times; of what could "
        "be cut, decode takes most (33 %). Moved into a method or a function of the dataset's file it would have a name, and an"
        " arm of its own.")
    ),
    # Stages beside each other slow each other down: the clocks may see it in the wrong one, the replayed arms do not.
    "with workers an arm that gains more than every other decides": (
        measured({"storage": 2.0, "decode": 1.0, "collate": 0.2}, workers=2, arms=TWO_LEAD),
        ("Input-bound, of the input side alone: ipc (handing batches over to the training process) limits, though it runs beside"
        f" other stages; if it were free, the input side would deliver 1.50x (1.43-1.57). {ALONE}")
    ),
    # On the cores that the workers need: their clocks see next to nothing of it.
    "handing over that takes long whoever makes the batches": (
        measured({"storage": 0.5, "decode": 0.6, "augment": 0.5}, workers=2, arms=READY),
        ("Input-bound, of the input side alone: ipc (handing batches over to the training process) takes 67 % of the time to "
        f"deliver a sample even where batches are ready; if it were free, the input side would deliver 2.00x (1.84-2.17). {ALONE}")
    ),
}  # fmt: skip


@pytest.mark.parametrize(("measurement", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_the_sentence(measurement: Measurement, sentence: str) -> None:
    assert diagnose(measurement).verdict.sentence == sentence


@pytest.mark.parametrize(("measurement", "kind", "stage"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict(measurement: Measurement, kind: str, stage: Stage | None) -> None:
    verdict = diagnose(measurement).verdict
    assert (verdict.kind, verdict.stage) == (kind, stage)


def test_too_few_and_too_uneven_batches_are_inconclusive() -> None:
    wild = {place: 0.2 if place % 2 else 3.0 for place in range(4)}
    measurement = measured({"decode": 1.0}, step=1.1, batches=4, blocks=2, jitter=wild)
    for block in measurement.of("real"):
        for place, row in enumerate(block.rows):
            object.__setattr__(row, "done", row.got + (9_000_000 if place % 3 else 1_000_000))
    verdict = diagnose(measurement).verdict
    assert verdict.kind == "inconclusive"
    assert verdict.stage is None
    assert verdict.sentence.startswith("Inconclusive: ")


def test_arms_decide_between_a_sampler_and_a_loader_that_clocks_take_for_alike() -> None:
    """What disturbs the pipeline as it is widens every gain alike; arms held against each other do without it."""
    alike = measured({"decode": 1.0}, workers=1, handing=0.95, blocks=4)
    for row in alike.rows("real"):
        object.__setattr__(row, "sampled", 3_800_000)
    assert diagnose(alike).verdict.kind in ("inconclusive", "balanced")
    slowed(alike, "real", 0.8, 1.25)
    diagnosis = diagnose(arm(alike, experiments.NO_SAMPLER.name, *[1 / 1.9] * 4))
    assert diagnosis.verdict.sentence.startswith("Input-bound, of the input side alone: the sampler takes")
    assert diagnosis.verdict.by_arms


@pytest.mark.parametrize(
    ("without_decode", "without_augment", "stage"),
    [
        ((1.15, 1.25, 1.2), (1.2, 1.4, 1.35), "decode"),
        ((1.2, 1.4, 1.35), (1.15, 1.25, 1.2), None),
        ((1.2, 1.4, 1.3), (1.3, 1.2, 1.4), None),
    ],
    ids=["the arms say the same", "they say the other", "they say nothing"],
)
def test_a_stage_that_clocks_and_arms_both_put_first_is_named_though_neither_is_sure(
    without_decode: tuple[float, ...], without_augment: tuple[float, ...], stage: str | None
) -> None:
    close = measured({"decode": 1.2, "augment": 1.1}, blocks=3, arms={"decode-recorded": None, "augment-recorded": None})
    for block, slower in zip(close.of("real"), (0.85, 1.0, 1.06), strict=True):
        for row in block.rows:
            row.trace.charges = [
                msgspec.structs.replace(charge, wall=int(charge.wall * slower)) if charge.stage == "augment" else charge
                for charge in row.trace.charges
            ]
    assert diagnose(close).verdict.kind == "inconclusive"
    arm(close, "decode-recorded", *without_decode)
    assert diagnose(arm(close, "augment-recorded", *without_augment)).verdict.stage == stage


STARVED = {
    "storage-from-memory": 1.0, "augment-recorded": 1.0, "collate-recorded": 1.0, "handover-skipped": 1.05, "decode-recorded": None,
    "batch-prebuilt": 0.9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("without_samples", "lacked_time", "stage"),
    [(3.0, False, "decode"), (3.0, True, None), (1.05, False, None), (None, False, None)],
)
def test_where_whole_samples_gain_and_no_other_arm_does_the_stage_that_can_have_no_arm_limits(
    without_samples: float | None, lacked_time: bool, stage: str | None
) -> None:
    """Eight workers on two cores: clocks charge what waits for a core to nothing, and so the border leads by them."""
    arms = STARVED | {"samples-recorded": without_samples}
    measurement = measured({"storage": 0.1, "decode": 1.0, "collate": 0.1}, workers=8, handing=0.02, arms=arms, blocks=4)
    measurement.declined["decode-recorded"] = "it did not run"
    measurement.untried = {"decode-recorded"} if lacked_time else set()
    verdict = diagnose(measurement).verdict
    assert verdict.stage == stage, verdict.sentence
    if stage is not None:
        assert "if whole samples were free, the input side would deliver 3.00x" in verdict.sentence


@pytest.mark.parametrize("blocks", [(1.0 / 3,), (0.35, 0.45, 0.4)], ids=["in one block", "in three that differ"])
def test_no_stage_around_samples_is_named_where_whole_samples_gain_more_than_it(blocks: tuple[float, ...]) -> None:
    around = measured({"decode": 0.3, "collate": 1.0}, arms={"collate-recorded": None, "decode-recorded": None})
    arm(around, "collate-recorded", 0.5, 1.0, 0.9)
    around.blocks += [Block("samples-recorded", (), each * 48 / 1e3, 48) for each in blocks]
    verdict = diagnose(around).verdict
    assert verdict.stage is None
    assert "samples-recorded, which leaves it as it is, delivers" in verdict.sentence


def test_several_small_stages_of_a_sample_are_no_rival_together() -> None:
    """Without whole samples 2.5x, without collate 1.67x: but no stage of a sample takes half of what collate does."""
    costs = {"storage": 0.35, "decode": 0.35, "augment": 0.35, "collate": 0.7}
    measurement = arm(measured(costs), "samples-recorded", 0.4, 0.41, 0.4)
    assert diagnose(measurement).verdict.stage is Stage.COLLATE


def test_waiting_is_told_from_computing() -> None:
    measurement = measured({"storage": 4.0, "decode": 1.0})
    for block in measurement.of("real"):
        for row in block.rows:
            row.trace.charges = [
                charge.__class__(charge.stage, charge.op, charge.wall, charge.cpu // 10, charge.cpu_wall, 4)
                for charge in row.trace.charges
            ]
    assert "mostly waiting rather than computing" in diagnose(measurement).verdict.sentence


@settings(deadline=None)
@given(
    st.sampled_from(["storage", "decode", "augment", "collate", "step"]),
    st.floats(1.25, 10.0),
    st.lists(st.floats(0.2, 1.0), min_size=5, max_size=5),
)
def test_no_dominance_above_the_threshold_is_ever_misnamed(stage: str, lead: float, others: list[float]) -> None:
    names = ["storage", "decode", "augment", "collate", "step"]
    costs = dict(zip(names, others, strict=True))
    costs[stage] = lead * max(value for name, value in costs.items() if name != stage)
    step = costs.pop("step")
    verdict = diagnose(measured(costs, step=step)).verdict
    assert verdict.stage is Stage(stage)
    assert verdict.kind == ("step-bound" if stage == "step" else "input-bound")


def test_settled_needs_a_sure_verdict_and_a_known_gain() -> None:
    sure = measured({"decode": 3.0, "augment": 1.0}, arms={"decode-recorded": 4.0})
    assert settled(sure)
    assert not settled(slowed(sure, "decode-recorded", 4 / 3, 1.0, 4 / 5))


@pytest.mark.parametrize(
    "close",
    [
        {"costs": {"decode": 1.2, "augment": 1.0}},
        {"costs": {"decode": 1.0, "augment": 1.0}},
        {"costs": {"decode": 2.4}, "workers": 2, "step": 1.0},
        {"costs": {"decode": 2.0}, "workers": 2, "step": 1.2},
    ],
)
def test_a_close_call_is_never_settled_early_however_sure_it_looks(close: dict[str, object]) -> None:
    measurement = measured(**close)  # type: ignore[arg-type]
    assert diagnose(measurement).verdict.confidence >= 0.99
    assert not settled(measurement)


def test_hidden_stages_have_no_share_but_keep_their_cost() -> None:
    diagnosis = diagnose(measured({"decode": 1.0}, workers=2, step=2.0))
    decode = diagnosis.stages[Stage.DECODE]
    assert decode.hidden
    assert decode.share == 0
    assert decode.wall.value == pytest.approx(1e-3, rel=1e-3)
    assert diagnosis.stages[Stage.STEP].share == pytest.approx(1.0, rel=1e-3)


def test_a_model_that_is_no_consumer_is_told_with_the_reason() -> None:
    measurement = measured({"decode": 1.0})
    measurement.why_none = "it returns a tuple"
    caveats = dict(diagnose(measurement).caveats)
    assert "no-consumer" not in caveats
    assert "because a training step made around it failed: it returns a tuple. This is" in caveats["model-left-out"]


def test_libraries_without_hooks_are_told() -> None:
    measurement = measured({"decode": 1.0})
    assert "no-hooks" not in dict(diagnose(measurement).caveats)
    measurement.left_out = ["obstore 0.3.0"]
    assert dict(diagnose(measurement).caveats)["no-hooks"].startswith("pipefix has no hooks for obstore 0.3.0: ")


@pytest.mark.parametrize(
    ("workers", "cores", "who"),
    [
        (0, 2.0, "other programs on the machine, or more threads than cores."),
        (4, 2.0, "too many workers for 2 cores, or other programs on the machine."),
        (1, 1.0, "too many workers for 1 core, or other programs on the machine."),
    ],
)
def test_too_many_workers_are_told_of_only_where_there_are_that_many(workers: int, cores: float, who: str) -> None:
    measurement = measured({"decode": 4.0}, workers=workers)
    measurement.cores = cores
    for row in measurement.rows("real"):
        row.trace.starved = (row.trace.ended - row.trace.begun) // 2
    assert dict(diagnose(measurement).caveats)["starved"].endswith(who)


def test_what_samples_cost_is_told_of_each_though_a_batch_is_made_at_once() -> None:
    """By ``__getitems__``: a batch's time was told as a sample's."""
    measurement = measured({"decode": 2.0, "augment": 1.0}, batch=8)
    alone = diagnose(measurement).tail
    for row in measurement.rows("real"):
        row.trace.unit_walls = [sum(row.trace.unit_walls)]
    tail = diagnose(measurement).tail
    assert {name: tail[name] for name in alone if name != "together"} == pytest.approx(
        {name: value for name, value in alone.items() if name != "together"}
    )
    assert (alone["p50"], alone["together"], tail["together"]) == pytest.approx((3e-3, 1.0, 8.0))


@pytest.mark.parametrize(("slower", "told"), [(1.0, ""), (1.15, ""), (1.5, "The same work took 1.50x the CPU time in one part")])
def test_a_pace_of_the_cores_that_changed_is_told(slower: float, told: str) -> None:
    """A host that throttles in the middle of a probe: all arms alike, so that no gain and no share shows it."""
    measurement = measured({"decode": 4.0, "augment": 1.0}, blocks=12)
    for block in measurement.of("real")[8:]:  # whose batches are the untimed arm's, too
        for row in block.rows:
            row.trace.cpu = round(slower * row.trace.cpu)
    assert told in dict(diagnose(measurement).caveats).get("pace", "none")
    assert ("pace" in dict(diagnose(measurement).caveats)) is bool(told)


def test_what_the_clocks_cost_is_no_gain_of_the_arm_that_has_fewer_of_them() -> None:
    """The timed arm runs a tenth slower than the untimed one; an arm without timed calls that is as fast gains nothing."""
    measurement = measured({"decode": 1.0}, arms={"augment-recorded": 1.1})
    gain = diagnose(slowed(measurement, "plain", 1 / 1.1)).arms["augment-recorded"]
    assert gain.value == pytest.approx(1.0, rel=1e-3)


def test_a_crossing_that_takes_longer_than_making_and_using_limits_although_neither_side_is_busy() -> None:
    diagnosis = diagnose(
        arm(measured({"decode": 1.0}, workers=1, step=1.0, handing=0.2, arms={"handover-skipped": 2.0}), "batch-prebuilt", 2.0)
    )
    assert (diagnosis.verdict.kind, diagnosis.verdict.stage) == ("input-bound", Stage.IPC)
    assert diagnosis.stations.border is not None
    assert diagnosis.stations.border.value == pytest.approx(2e-3, rel=0.02)


def test_workers_that_wait_for_the_crossing_are_no_unattributed_time() -> None:
    """A worker makes a sample in 1 ms and may begin the next one 3 ms later."""
    measurement = arm(measured({"decode": 1.0}, workers=1, step=0.5, handing=2.5), "batch-prebuilt", 3.0)
    diagnosis = diagnose(measurement)
    assert diagnosis.verdict.stage is Stage.IPC
    assert diagnosis.unattributed == pytest.approx(0.0, abs=1e-5)


def test_a_stage_whose_arm_did_not_run_is_never_the_rival() -> None:
    """Decode's arm was slower than the pipeline itself; that storage's, which did not run, was not, says nothing."""
    measurement = measured({"storage": 1.0, "decode": 3.0}, arms={"storage-from-memory": None, "decode-recorded": 0.8})
    verdict = diagnose(measurement).verdict
    assert verdict.kind == "inconclusive"
    assert "arms to storage" not in verdict.sentence


def test_what_the_loader_takes_whatever_the_data_is_no_waiting_for_data() -> None:
    """The step of 2 ms waits 0.5 ms for every batch, and no less when batches cost nothing."""
    measurement = measured({"decode": 0.1}, workers=1, step=0.5, handing=0.125)
    assert diagnose(measurement).fed == pytest.approx(0.8, abs=0.01)
    measurement.blocks += [dataclasses.replace(block, arm="loader-floor") for block in measurement.of("real")]
    diagnosis = diagnose(measurement)
    assert diagnosis.fed == pytest.approx(1.0, abs=0.001)
    assert diagnosis.loader_wait == pytest.approx(0.5e-3, rel=0.01)


def test_clocks_never_cost_more_than_a_block_took() -> None:
    """On a disturbed machine the timed blocks may be many times slower than the others: no rate turns negative by that."""
    measurement = measured({"decode": 1.0}, arms={"augment-recorded": 1.0})
    gain = diagnose(slowed(measurement, "real", 1.0, 40.0, 40.0)).arms["augment-recorded"]
    assert 0 < gain.low <= gain.value <= gain.high
