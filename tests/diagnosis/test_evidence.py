"""No sentence is surer than what stands under it: properties over made-up measurements."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from pipefix.diagnosis.diagnose import diagnose, wanting
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.trace import Charge
from pipefix.plan.advise import advise
from pipefix.plan.case import Case
from pipefix.plan.fit import SATURATED, fitted
from pipefix.report import run_figures
from pipefix.report.probe_report import full
from pipefix.report.runfile import Run, decode, encode
from pipefix.report.terminal import lines
from pipefix.subject.subject import Subject
from pipefix.vocabulary.gain import Bounded
from pipefix.vocabulary.stage import Stage
from tests.doubles.invariants import broken
from tests.doubles.made_up import CANNOT, LACKED, MADE_UP, MadeUp, sampled
from tests.doubles.measured import MS, charged, measured, slowed


def told(measurement: Measurement, diagnosis: Diagnosis | None = None) -> Run:
    """The run file of a measurement, as a probe writes it."""
    diagnosis = diagnosis or diagnose(measurement)
    subject: Any = Subject.__new__(Subject)
    for name, value in {"target": "made up", "load_seconds": 0.0, "assumed": (), "given": {}}.items():
        object.__setattr__(subject, name, value)
    steps = advise(Case(measurement, diagnosis))
    return run_figures.run(subject, {}, measurement, diagnosis, steps=steps, findings=(), replaces={})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MADE_UP)
def test_nothing_is_told_that_no_evidence_stands_under(made_up: MadeUp) -> None:
    measurement = made_up.measurement()
    diagnosis = diagnose(measurement)
    assert diagnosis.contradictions == []
    run = told(measurement, diagnosis)
    assert broken(run) == []
    assert broken(decode(encode(run), origin="again")) == []
    assert too_many_workers(measurement, shards=made_up.workers + 1) == []


def too_many_workers(measurement: Measurement, shards: int) -> list[str]:
    """Proposed counts of workers that were not tried, and that the shards of a stream or busy cores leave nothing for."""
    wrong = []
    for limits in ({"shards": shards}, {"cores": 1.0}):
        less = dataclasses.replace(measurement, **limits)  # type: ignore[arg-type]
        diagnosis = diagnose(less)
        untried = [step.id for step in advise(Case(less, diagnosis)).proposed if not step.measured]
        counts = {name: int(name[8:]) for name in untried if name.startswith("workers-")}
        busy = fitted(less, diagnosis).busy >= SATURATED
        wrong += [name for name, count in counts.items() if less.shards and count > less.shards]
        wrong += [name for name, count in counts.items() if busy and count > max(less.cores, less.workers)]
    return wrong


def test_an_arm_that_did_not_run_is_bounded_and_worded_as_such() -> None:
    measurement = measured({"storage": 1.0, "decode": 3.0}, arms={"storage-from-memory": None})
    storage = diagnose(measurement).stages[Stage.STORAGE].gain
    assert isinstance(storage, Bounded) and storage.at_most == pytest.approx(4 / 3, rel=0.01)
    figures = next(stage for stage in told(measurement).stages if stage.stage == "storage")
    assert figures.marginal_gain is not None and figures.marginal_gain.how == "bounded"
    assert figures.marginal_gain.at_most == pytest.approx(4 / 3, rel=0.01)


def test_a_stage_whose_arm_only_lacked_the_time_is_not_named() -> None:
    measurement = measured({"storage": 1.0, "decode": 3.0}, arms={"decode-recorded": None})
    measurement.declined["decode-recorded"], measurement.untried = LACKED, {"decode-recorded"}
    assert diagnose(measurement).verdict.sentence == (
        "Inconclusive: by the clocks decode takes 75 % of the time, but no arm ran without it: the time was too short. "
        "More blocks would settle it: --budget 60."
    )


def test_a_stage_that_can_have_no_arm_is_named_where_the_others_leave_that_room() -> None:
    measurement = measured({"storage": 3.0, "decode": 1.0}, arms={"storage-from-memory": None})
    measurement.declined["storage-from-memory"] = CANNOT
    assert diagnose(measurement).verdict.stage is Stage.STORAGE
    measurement = measured({"storage": 3.0, "decode": 1.0}, arms={"storage-from-memory": None, "samples-recorded": 1.02})
    measurement.declined["storage-from-memory"] = CANNOT
    assert diagnose(measurement).verdict.sentence == (
        "Inconclusive: by the clocks storage takes 75 % of the time, but samples-recorded, which does without it, "
        "delivers 1.02x (1.01-1.03). What runs meanwhile is seen in a trace: --trace FILE."
    )


def test_hand_over_that_its_own_arm_does_not_confirm_is_left_open() -> None:
    """JSON lines at 30 µs a sample: by the clocks 71 %, by its own arm 1.19x (0.86-1.65)."""
    measurement = measured({"decode": 0.005, "ipc": 0.025}, workers=1, handing=0.01, arms={"handover-skipped": 1.19}, batches=32)
    verdict = diagnose(slowed(measurement, "handover-skipped", 0.8, 1.0, 1.25)).verdict
    assert verdict.kind == "inconclusive"
    assert "its own arm, which does without it, delivers 1.19x" in verdict.sentence
    assert verdict.sentence.endswith("--budget 60.")


def test_one_block_without_an_arm_names_nothing_and_gives_no_interval() -> None:
    measurement = measured({"augment": 3.0, "decode": 1.0}, blocks=1, arms={"augment-recorded": None})
    measurement.declined["augment-recorded"] = CANNOT
    assert diagnose(measurement).verdict.sentence == (
        "Inconclusive: by the clocks augment takes 75 % of the time, but only one block was measured, and no arm can run without "
        "augment. More blocks would settle it: --budget 60."
    )


def test_two_sides_that_one_block_cannot_tell_apart_are_told_without_an_interval() -> None:
    measurement = measured({"decode": 1.6}, workers=2, step=1.0, blocks=1, batches=8)
    measurement.blocks.append(Block("no-consumer", (), 1.1 * 32 / 1e3, 32))
    assert diagnose(measurement).verdict.sentence.startswith("Inconclusive: in one block, the loader takes ")
    assert broken(told(measurement)) == []


def test_an_open_verdict_asks_for_the_arms_that_would_settle_it() -> None:
    measurement = measured({"augment": 3.0, "decode": 1.0}, blocks=1, arms={"augment-recorded": None})
    measurement.declined["augment-recorded"], measurement.untried = LACKED, {"augment-recorded"}
    assert wanting(measurement) == ("real", "decode-recorded", "augment-recorded")
    assert wanting(measured({"augment": 3.0, "decode": 1.0})) == ()
    disputed = measured({"augment": 1.6, "decode": 1.0, "collate": 0.1}, arms={"augment-recorded": 1.1})
    assert wanting(disputed) == ("real", "decode-recorded", "augment-recorded"), "collate gains less, whatever more blocks say"


@pytest.mark.parametrize("own", OWN_NAMES[1:])
def test_code_between_two_known_calls_is_no_stage(own: str) -> None:
    """Video decoding by a library that no hook knows, called in __getitem__: only its place puts it into a stage."""
    arms = {"storage-from-memory": 1.05, "decode-recorded": 1.04, "augment-recorded": 1.03, "collate-recorded": 1.0}
    code = Charge(None, own, 36 * MS, 36 * MS, 36 * MS, 0)
    measurement = charged(measured({"storage": 0.5, "decode": 0.4, "augment": 0.3}, arms=arms), code)
    verdict = diagnose(measurement).verdict
    assert (verdict.kind, verdict.stage) == ("inconclusive", None)
    assert verdict.sentence == (
        "Inconclusive: 88 % of the time is the dataset's own code between calls that pipefix knows. "
        "Moved into a method or a function of the dataset's file it would have a name, and an arm of its own."
    )


LINE = {"Clips.__getitem__ at clips.py:14": 90, "Clips.__getitem__ at clips.py:15": 10}
LEFT_OUT = {"storage-from-memory": 1.05, "decode-recorded": 1.04, "augment-recorded": None, "collate-recorded": 1.0}


def with_own_code(looks: dict[str, int], arms: dict[str, float | None]) -> Measurement:
    code = Charge(None, OWN_NAMES[2], 36 * MS, 36 * MS, 36 * MS, 0)
    measurement = charged(measured({"storage": 0.5, "decode": 0.4}, arms={**LEFT_OUT, **arms}), code)
    measurement.declined["augment-recorded"] = CANNOT
    return dataclasses.replace(measurement, own_lines=looks)


def test_own_code_of_which_one_line_takes_more_than_any_stage_is_named_by_that_line() -> None:
    """A loop of small calls, each too short for a hook: 90 of 100 looks at the running line saw the same one."""
    verdict = diagnose(with_own_code(LINE, {"samples-recorded": 30.0})).verdict
    assert verdict.kind == "input-bound"
    assert verdict.sentence.startswith("Input-bound, of the input side alone: augment (Clips.__getitem__ at clips.py:14) takes 9")


@pytest.mark.parametrize(
    ("looks", "arms"),
    [
        (LINE, {"augment-recorded": 1.03, "samples-recorded": 30.0}),  # the stage's own arm ran, and gained nothing
        (LINE, {}),  # no arm did without whole samples
        (LINE, {"samples-recorded": 1.2}),  # one did, and saves far less than is claimed
        ({"Clips.__getitem__ at clips.py:14": 19}, {"samples-recorded": 30.0}),  # too few looks
        ({f"Clips.__getitem__ at clips.py:{line}": 20 for line in range(5)}, {"samples-recorded": 30.0}),  # no line stands out
    ],
)
def test_else_it_is_left_open(looks: dict[str, int], arms: dict[str, float | None]) -> None:
    assert diagnose(with_own_code(looks, arms)).verdict.kind == "inconclusive"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_that_computes_is_named_and_not_the_hand_over(workers: int) -> None:
    """It runs in the training process: by the clocks there it looked like taking batches over, 99 % of the time."""
    arms = {"decode-recorded": 1.01, **({"handover-skipped": 1.13} if workers else {})}
    measurement = sampled(measured({"decode": 0.2, "ipc": 0.05}, workers=workers, arms=arms), 2.0)
    for number, block in enumerate(measurement.blocks):
        measurement.blocks[number] = dataclasses.replace(block, seconds=block.seconds + 2e-3 * block.samples)
    if workers:
        # Ready batches cross no faster: the sampler runs in that arm too, and is none of the crossing.
        measurement.blocks += [
            dataclasses.replace(block, arm="batch-prebuilt", seconds=2.1e-3 * block.samples) for block in measurement.of("real")
        ]
    without = dataclasses.replace(measurement, declined={**measurement.declined, "sampler-recorded": LACKED})
    assert told(without).verdict.sentence.startswith("Inconclusive: by the clocks the sampler takes")  # type: ignore[union-attr]
    measurement.blocks += [
        Block("sampler-recorded", (), block.seconds - 2e-3 * block.samples, block.samples) for block in measurement.of("real")
    ]
    run = told(measurement)
    assert run.verdict is not None
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", None)
    assert re.search(
        r"the sampler takes \d+ % of the time, 2.00 ms a sample; if it were free, the input side would deliver (11|9)\.\d*x.*\. "
        "It runs in the training process", run.verdict.sentence
    ), run.verdict.sentence  # fmt: skip
    assert run.sampler_s is not None and run.sampler_s.value == pytest.approx(2e-3)
    text = "\n".join(lines(full(run), width=140))
    assert re.search(r"^  sampler .* \d+ %  +2\.00 ms .* \d[\d.]*x", text, re.MULTILINE), text
    assert re.search(r"arms: with the sampler's orders given again from memory the pipeline\s+delivers \d", text), text
    assert workers or "belongs to no stage" not in text
    assert broken(run) == []


@pytest.mark.parametrize(
    ("arms", "why"),
    [
        ({"sampler-recorded": 8.0, "decode-recorded": 10.0}, "decode-recorded, which leaves it as it is, delivers 10"),
        ({"sampler-recorded": 1.02}, "sampler-recorded, which does without it, delivers 1.02x"),
        ({}, "no arm ran without it"),
    ],
)
def test_a_sampler_that_the_arms_speak_against_is_left_open(arms: dict[str, float | None], why: str) -> None:
    measurement = sampled(measured({"decode": 0.2}, arms={"decode-recorded": 1.1, **arms}), 2.0)
    sentence = diagnose(measurement).verdict.sentence
    assert sentence.startswith("Inconclusive: by the clocks the sampler takes") and why in sentence, sentence


def test_where_clocks_leave_it_open_the_arm_without_the_sampler_decides() -> None:
    """Workers beside it on the same cores look as slow as the training process is, by the clocks."""
    measurement = sampled(measured({"decode": 1.0}, workers=1, arms={"decode-recorded": 1.02, "sampler-recorded": 1.8}), 1.0)
    sentence = diagnose(measurement).verdict.sentence
    assert "the sampler takes" in sentence and "the input side would deliver 1.80x" in sentence, sentence


@pytest.mark.parametrize(("workers", "said"), [(1, "the sampler takes"), (0, "Inconclusive: by the clocks the sampler takes")])
def test_where_both_evidences_name_the_same_the_arm_says_how_much_it_gains(workers: int, said: str) -> None:
    """Workers that have the cores to themselves then are slower than the clocks saw them. In a row nothing else can change."""
    measurement = sampled(measured({"decode": 0.4}, workers=workers, arms={"decode-recorded": 1.0, "sampler-recorded": 1.3}), 2.0)
    sentence = diagnose(measurement).verdict.sentence
    assert said in sentence and "1.3" in sentence, sentence
    assert broken(told(measurement)) == []


def test_a_stage_is_not_named_where_the_arm_without_the_sampler_gains_more() -> None:
    measurement = sampled(measured({"decode": 1.0}, arms={"decode-recorded": 2.0, "sampler-recorded": 2.2}), 0.2)
    sentence = diagnose(measurement).verdict.sentence
    assert sentence.startswith("Inconclusive: by the clocks decode takes") and "sampler-recorded" in sentence, sentence


def test_a_stage_without_an_arm_gains_at_most_what_an_arm_without_more_does() -> None:
    arms = {"decode-recorded": None, "samples-recorded": 1.2}
    measurement = measured({"decode": 2.0, "augment": 1.0}, workers=1, arms=arms)
    gain = diagnose(measurement).stages[Stage.DECODE].gain
    assert isinstance(gain, Bounded) and gain.at_most == pytest.approx(1.2, rel=0.05)


@pytest.mark.parametrize(("alone", "kind"), [(1.04, "step-bound"), (2.0, "inconclusive")])
def test_a_consumer_that_is_no_faster_by_itself_sets_the_pace(alone: float, kind: str) -> None:
    """Where the time was too short for the arm without it."""
    measurement = measured({"decode": 1.0}, workers=2, step=8.0, blocks=3, arms={"no-consumer": None, "consumer-alone": alone})
    measurement.declined["no-consumer"] = LACKED
    measurement.untried.add("no-consumer")
    run = told(measurement)
    assert run.verdict is not None
    assert run.verdict.kind == kind, run.verdict.sentence
    assert broken(run) == []


@pytest.mark.parametrize(("left", "whole", "stage"), [(4.5, 50.0, "decode"), (9.5, 50.0, None), (4.5, 1.05, None)])
def test_an_arm_that_runs_part_of_its_stage_all_the_same_is_evidence_for_the_rest(left: float, whole: float, stage: str) -> None:
    """A video is opened live, whatever its frames are answered from: ``left`` ms of 10. Whole samples tell the rest."""
    found = measured({"storage": 0.1, "decode": 10.0}, arms={"decode-recorded": 2.1, "samples-recorded": whole})
    row = found.rows("real")[0]
    for number, block in enumerate(found.blocks):
        if block.arm == "decode-recorded":
            trace = msgspec.structs.replace(
                row.trace, charges=[Charge("decode", "open", round(left * block.samples * MS), 0, 0, 1)]
            )
            found.blocks[number] = dataclasses.replace(block, rows=(dataclasses.replace(row, trace=trace),))
    assert diagnose(found).verdict.stage == stage
