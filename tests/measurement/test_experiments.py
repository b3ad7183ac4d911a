"""The table of experiments is whole."""

from __future__ import annotations

from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT, POOL
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

WITHOUT_AN_ARM = {Stage.TRANSFER: "without its copy to the device there is no step, so its time is measured by events alone"}


def test_every_stage_can_be_left_out_or_says_why_not() -> None:
    assert LEAVE_ONE_OUT.keys() | WITHOUT_AN_ARM.keys() == set(Stage)
    assert not LEAVE_ONE_OUT.keys() & WITHOUT_AN_ARM.keys()


def test_a_leave_one_out_arm_leaves_out_just_that_stage() -> None:
    for stage, arm in LEAVE_ONE_OUT.items():
        assert arm.replaces == (frozenset() if stage is Stage.STEP else {stage})
        assert arm.consumer == (stage is not Stage.STEP)


def test_every_arm_of_the_module_is_in_the_table_and_says_what_it_answers() -> None:
    defined = {id(value) for value in vars(experiments).values() if isinstance(value, experiments.Experiment)}
    assert {id(arm) for arm in POOL} == defined
    assert all(arm.answers for arm in POOL)
    assert len({arm.name for arm in POOL}) == len(POOL)
    assert not any(arm.replaces for arm in POOL if not arm.timed), "what runs without clocks replaces nothing"


def test_arms_of_several_stages_replace_a_whole_front_of_the_row() -> None:
    """What lies before a recorded stage is recorded too: nobody could cache a batch and still read its files."""
    row = [*IN_SAMPLE, Stage.COLLATE, Stage.IPC]
    for arm in (experiments.DECODED, experiments.SAMPLES, experiments.PREBUILT, experiments.FLOOR):
        assert arm.replaces == frozenset(row[: len(arm.replaces)])
