"""What processes noted becomes figures, and a verdict that says no more than they do."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipefix.programs import merge_notes
from pipefix.programs.clock_verdict import agreed, clock_verdict
from pipefix.programs.merge_notes import mark_ended, merged_notes, noted_elsewhere, notes_in, still_noting
from pipefix.report.program_figures import ProgramFigures
from pipefix.report.program_report import notes
from pipefix.report.runfile import Verdict

PROCESS: dict[str, Any] = {"event": "process", "at": 0.0, "pid": 1, "argv": ["train.py"], "rank": None}
LOOP = {"event": "loop", "loop": 0, "loader": "train.py:7", "main_thread": True, "workers": 2}


def steps(wait: float, step: float, **others: Any) -> dict[str, Any]:
    counted = {"steps": 10, "samples": 40, "optimizer_steps": 10, "without_gradients": 0}
    seconds = {"wait_s": wait, "step_s": step, "backward_s": 0.0, "optimizer_s": 0.0, "inner_s": 0.0, "first_s": []}
    return {"event": "steps", "loop": 0, **counted, **seconds, **others}


ENDED = {"event": "ended", "overhead_s": 0.01, "cuda": False}


def program(folder: Path, *processes: list[dict[str, Any]], seconds: float = 10.0) -> ProgramFigures:
    for number, events in enumerate(processes):
        (folder / f"events-here-{number}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return merged_notes(folder, ["train.py"], 0, seconds)


@pytest.mark.parametrize(
    ("noted", "kind", "told"),
    [
        ([steps(0.3, 0.2)] * 8, "input-bound", "in 60 %"),
        ([steps(0.01, 0.5)] * 8, "step-bound", "in 2.0 %"),
        ([steps(0.035, 0.465)] * 8, "balanced", "in 7.0 %"),
        ([steps(wait, 0.5 - wait) for wait in (0.02, 0.03)] * 6, "balanced", "in 5.0 % (4"),
        ([steps(wait, 0.5) for wait in (0.0, 0.2)] * 4, "inconclusive", ") of its time, and that is too wide a range for"),
        ([steps(0.3, 0.2)] * 4, "inconclusive", "in 60 % of its time, and that is too short for a verdict."),
        ([steps(0.3, 0.2, steps=1, first_s=[0.3])], "inconclusive", "first batch of its only epoch, and that is too short"),
        ([*[steps(0.0, 0.5)] * 9, steps(0.5, 0.1)], "inconclusive", "too wide a range"),
    ],
    ids=["waits", "works", "between", "about 5 %, surely little", "half of it", "four notes", "one batch", "one note of ten"],
)
def test_the_verdict_follows_the_share(tmp_path: Path, noted: list[dict[str, Any]], kind: str, told: str) -> None:
    found = program(tmp_path, [PROCESS, LOOP, *noted, ENDED])
    said = clock_verdict(found)
    assert (said.kind, told in said.sentence) == (kind, True), said.sentence
    assert found.overhead_share == pytest.approx(0.001)


@pytest.mark.parametrize(("wait", "told"), [(3.0, True), (0.4, False)], ids=["for longer", "for less than a word"])
def test_an_evaluation_that_waits_for_longer_than_training_is_told(wait: float, told: bool, tmp_path: Path) -> None:
    training = [steps(0.03, 0.5, at=float(number)) for number in range(8)]
    evaluation = {**steps(wait, 0.1, at=12.0, optimizer_steps=0, without_gradients=10), "loop": 1}
    events = [PROCESS, LOOP, {**LOOP, "loop": 1, "loader": "train.py:9"}, *training, evaluation, ENDED]
    sentence = clock_verdict(program(tmp_path, events)).sentence
    assert (" Evaluation waits for longer: 3.00 s, over the loader made at train.py:9." in sentence.replace("\ue000", " ")) is told


def test_where_it_is_not_the_data_the_rest_of_the_time_is_told(tmp_path: Path) -> None:
    training = [steps(wait, 0.5, at=float(number)) for number, wait in enumerate((0.001, 0.003) * 4, 1)]
    evaluation = {**steps(0.0, 3.0, at=12.0, optimizer_steps=0, without_gradients=10), "loop": 1}
    events = [PROCESS, LOOP, {**LOOP, "loop": 1, "loader": "train.py:9"}, *training, evaluation, ENDED]
    assert clock_verdict(program(tmp_path, events)).sentence == (
        "Not the data: the loop over the loader made at train.py:7 waited for batches in 0.4 % (0.2-0.5) of its time; "
        "nothing to gain there. Of the program's time, besides training: evaluation 30 %."
    )


@pytest.mark.parametrize(
    ("wait", "step", "backward", "said"),
    [
        (0.06, 0.44, 0.1, "12 % of its time; without waits it would be 1.14x as fast. 68 % of its time is neither that"),
        (0.2, 0.3, 0.2, "40 % of its time; without waits it would be 1.67x as fast."),
        (0.3, 0.2, 0.1, "60 % of its time."),
        (0.04, 0.46, 0.1, "waited for batches in 8.0 % of its time. 72 % of its time is neither that nor the model, its"),
        (0.01, 0.49, 0.1, "nothing to gain there. 78 % of its time is neither that nor the model, its backward pass or the optim"),
        (0.01, 0.49, 0.47, "nothing to gain there."),
        (0.01, 0.49, 0.0, "nothing to gain there."),
    ],
    ids=["waits little", "mostly works", "mostly waits", "balanced", "logs", "works", "unknown what the step is"],
)  # fmt: skip
def test_lines_that_take_more_than_the_waits_are_told(wait: float, step: float, backward: float, said: str, tmp_path: Path) -> None:
    """*Balanced* was all that was said of a program whose logging took 78 % of its time."""
    block = steps(wait, step, backward_s=backward)
    sentence = clock_verdict(program(tmp_path, [PROCESS, LOOP, *[block] * 8, ENDED])).sentence
    assert said in sentence
    assert ("neither" in said) == ("neither" in sentence)
    on_gpu = clock_verdict(program(tmp_path, [PROCESS, LOOP, *[block] * 8, {**ENDED, "cuda": True}])).sentence
    assert "neither" not in on_gpu, "the device may still have worked on the step there"


def test_what_is_done_between_epochs_is_the_trainings(tmp_path: Path) -> None:
    """Also after epochs that only look at the samples, which are of a loop of their own."""
    around = {"between_s": 0.5, "saved_s": 0.25, "saved_outside_s": 0.25, "saved_between_s": 0.25}
    looked = steps(0.4, 0.1, optimizer_steps=0, without_gradients=10, epoch=2, **around)
    found = program(tmp_path, [PROCESS, LOOP, steps(0.1, 0.4, epoch=1), looked, steps(0.1, 0.4, epoch=3), ENDED])
    assert [(loop.role, loop.steps, loop.between_epochs_s) for loop in found.loops] == [
        ("training", 20, 0.5),
        ("evaluation", 10, 0),
    ]
    assert found.account is not None
    assert (found.account.checkpoints, found.account.between_epochs, found.account.evaluation) == pytest.approx((0.25, 0.25, 0.5))


def test_where_no_loop_is_known_to_train_the_longest_is_told(tmp_path: Path) -> None:
    """The program predicts, or asks for its gradients itself."""
    found = program(tmp_path, [PROCESS, LOOP, *[steps(0.3, 0.1, optimizer_steps=0)] * 8, ENDED])
    assert clock_verdict(found).sentence == (
        "Inconclusive: No loop of the program took optimizer steps or called backward(), so nothing says which of its loops trains."
        " The longest, over the loader made at train.py:7, waited for batches in 75 % of its time."
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1, "The program failed before it took a batch of a DataLoader; what it printed itself, above this, says why."),
        (-9, "The program was ended by signal 9 (SIGKILL) before it took a batch of a DataLoader."),
    ],
)
def test_of_a_program_that_ended_early_it_is_said_how(code: int, said: str, tmp_path: Path) -> None:
    assert clock_verdict(merged_notes(tmp_path, ["train.py"], code, 0.1)).sentence == f"Inconclusive: {said}"


def test_what_batches_are_made_of_follows_the_looks(tmp_path: Path) -> None:
    parts = {"storage": 0.1, "decode": 0.6, "augment": 0.2, "own": 0.0, "collate": 0.1}
    looked = {"batches": 2, **parts, "cpu": 0.9, "made": 1.0}
    (loop,) = program(tmp_path, [PROCESS, LOOP, *[steps(0.3, 0.2, looked=looked)] * 8, ENDED]).loops
    assert loop.looked == 16
    assert {name: part.value for name, part in loop.stages.items()} == pytest.approx(parts)
    assert (loop.stages["decode"].low, loop.stages["decode"].high) == pytest.approx((0.6, 0.6))
    few = [PROCESS, LOOP, *[steps(0.3, 0.2, looked=looked)] * 3, *[steps(0.3, 0.2)] * 5, ENDED]
    assert program(tmp_path, few).loops[0].stages == {}


@pytest.mark.parametrize(
    ("decode", "augment", "said"),
    [(0.6, 0.3, "Making them is mostly decoding, or own code on what was read: 60 %"), (0.45, 0.45, "of its time.")],
)
def test_one_part_is_named_where_it_surely_is_the_largest(tmp_path: Path, decode: float, augment: float, said: str) -> None:
    parts = {"storage": 0.1, "own": 0.0, "collate": 0.0, "batches": 2, "cpu": 0.9, "made": 1.0}
    looked = [{**parts, "decode": decode + off, "augment": augment - off} for off in (-0.05, 0.05)]
    notes = [steps(0.3, 0.2, looked=looked[place % 2]) for place in range(8)]
    assert said in clock_verdict(program(tmp_path, [PROCESS, LOOP, *notes, ENDED])).sentence


@pytest.mark.parametrize(
    ("queued", "in_workers", "told"),
    [
        (0.2, 0.4, ["40 % of its time, its workers for 40 %"]),
        (0.0, 0.2, ["0 % of its time, its workers for 20 %"]),
        (0.07, 0.14, []),
    ],
)
def test_a_loop_that_has_too_few_cpus_is_told_so(tmp_path: Path, queued: float, in_workers: float, told: list[str]) -> None:
    block = steps(0.3, 0.2, watched_s=0.5, queued_s=queued, making_cpu_s=0.1, making_s=0.5, workers_queued_s=in_workers)
    said = [line for line in notes(program(tmp_path, [PROCESS, LOOP, *[block] * 8, ENDED])) if "CPUs are short" in line]
    beginning = "CPUs are short: the loop over the loader made at train.py:7 was ready to run and had none for "
    assert [line.split(". Other")[0] for line in said] == [beginning + shares for shares in told]


def test_ranks_that_have_too_few_cpus_are_told_apart(tmp_path: Path) -> None:
    """The same sentence stood there twice."""
    block = steps(0.3, 0.2, watched_s=0.5, queued_s=0.2)
    ranks = [[{**PROCESS, "rank": str(rank)}, LOOP, *[block] * 8, ENDED] for rank in range(2)]
    said = [line for line in notes(program(tmp_path, *ranks)) if "CPUs are short" in line]
    assert sorted(line.split(" was ready")[0][-8:] for line in said) == ["(rank 0)", "(rank 1)"]


def test_a_program_that_seconds_ended_before_it_trained_is_not_told_to_be_without_training() -> None:
    found = ProgramFigures(command=["train.py"], exit_code=-2, seconds=5.0, at_limit=True)
    assert "--seconds ended the program before it took a batch of a DataLoader" in clock_verdict(found).sentence
    assert any("the program was ended before that, did not train" in line for line in notes(found))


def test_first_batches_are_counted_as_they_were(tmp_path: Path) -> None:
    """A worker's start widens no interval."""
    first = steps(2.3, 0.2, first_s=[2.0])
    found = program(tmp_path, [PROCESS, LOOP, first, *[steps(0.3, 0.2)] * 7, ENDED])
    assert clock_verdict(found).sentence.startswith(
        "Input-bound: the loop over the loader made at train.py:7 waited for batches in 73 %"
    )
    assert "most of it" not in clock_verdict(found).sentence, "2.0 s of 4.4"
    (loop,) = found.loops
    share = loop.wait_share
    assert share is not None
    assert (share.low, share.value, share.high) == pytest.approx((4.4 / 6.0,) * 3)


def test_a_program_that_mostly_waits_for_its_first_batch_is_told_so(tmp_path: Path) -> None:
    notes = [steps(4.1, 0.4, first_s=[4.0]), *[steps(0.1, 0.4)] * 7]
    assert (
        "of its time, most of it for the first batch of its only epoch."
        in clock_verdict(program(tmp_path, [PROCESS, LOOP, *notes])).sentence
    )


def test_what_a_killed_process_noted_counts(tmp_path: Path) -> None:
    found = program(tmp_path, [PROCESS, LOOP, *[steps(0.3, 0.2)] * 8])
    with (tmp_path / "events-here-0.jsonl").open("a") as file:
        file.write('{"event": "steps", "loop": 0, "st')
    assert merged_notes(tmp_path, [], None, 0.0) == ProgramFigures(
        command=["train.py"], exit_code=None, loops=found.loops, killed=1, seconds=0.0
    )


def test_what_noting_took_is_told_where_it_is_known(tmp_path: Path) -> None:
    """Of a program that SIGTERM ended *0.00 %* was said."""
    events = [PROCESS, LOOP, *[steps(0.3, 0.2)] * 8]
    told = [[*notes(program(tmp_path, noted))][-1] for noted in (events, [*events, ENDED])]
    assert ["noting this took 0.10 % of that" in line for line in told] == [False, True]
    assert "noting" not in told[0]


def test_a_container_that_is_started_again_is_no_other_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another name: what was killed in the first one was told as loops of the second, for an hour."""
    found = program(tmp_path, [{**PROCESS, "host": platform.node()}, LOOP, *[steps(0.3, 0.2)] * 8])
    (path,) = notes_in(tmp_path)
    mark_ended(tmp_path)
    assert merged_notes(tmp_path, ["train.py"], 0, 10.0) == found
    monkeypatch.setattr(platform, "node", lambda: "the second")
    assert not noted_elsewhere(path)
    path.write_text(path.read_text().replace("gone", "batch"))
    mark_ended(tmp_path)
    assert noted_elsewhere(path), "it is another node's to say"


def test_a_program_of_several_epochs_that_still_runs_is_shown(tmp_path: Path) -> None:
    """Nobody knows yet what it takes in all, so nothing is told as a part of that."""
    program(tmp_path, [PROCESS, LOOP, *[steps(0.3, 0.2, between_s=1.0)] * 8])
    told = "\n".join(notes(merged_notes(tmp_path, [], None, 0.0)))
    assert "it still runs, or pipefix was killed beside it" in told
    assert "between epochs" not in told
    program(tmp_path, [PROCESS, LOOP, *[steps(0.3, 0.2)] * 8, ENDED])
    told = "\n".join(notes(merged_notes(tmp_path, [], None, 0.0)))
    assert "was not seen: the processes that noted it have ended." in told, "as with import pipefix.auto"


def test_a_program_that_shows_its_own_figures_still_runs(tmp_path: Path) -> None:
    here = {**PROCESS, "pid": os.getpid(), "host": platform.node()}
    program(tmp_path, [here, LOOP, *[steps(0.3, 0.2)] * 8])
    with (tmp_path / "events-here-0.jsonl").open("a"):
        found = merged_notes(tmp_path, [], None, 0.0)
    assert (found.running, found.killed) == (True, 0)
    assert "The program still runs: these are its figures by now." in notes(found)
    assert merged_notes(tmp_path, [], None, 0.0).killed == 1


def test_evaluation_inside_is_not_the_loops_own_time(tmp_path: Path) -> None:
    (loop,) = program(tmp_path, [PROCESS, LOOP, *[steps(0.1, 0.9, inner_s=0.5)] * 8, ENDED]).loops
    assert loop.wait_share is not None
    assert loop.wait_share.value == pytest.approx(0.1 / 0.5)
    assert loop.seconds == pytest.approx(8 * 0.5)


@pytest.mark.parametrize(
    ("outside", "kind", "said"),
    [
        ([0.001, 0.002], "step-bound", "only 3.0 % of its time passes outside its models, their backward passes and the opt"),
        ([0.003, 0.004], "balanced", "only 7.0 % of its time passes"),
        ([0.02, 0.03], "inconclusive", "50 % of its time (45 % to 55 %) passes outside"),
        ([0.001, 0.02], "inconclusive", "batches are made in it, and logging and checkpoints are"),
    ],
)
def test_without_a_loader_what_passes_outside_the_models_decides(
    outside: list[float], kind: str, said: str, tmp_path: Path
) -> None:
    notes = [steps(0.0, 0.5, looked_into_s=0.05, outside_s=outside[place % 2]) for place in range(12)]
    found = program(tmp_path, [PROCESS, {**LOOP, "loader": ""}, *notes, ENDED])
    assert found.loops[0].outside_share is not None
    assert (clock_verdict(found).kind, said in clock_verdict(found).sentence) == (kind, True), clock_verdict(found).sentence


def test_without_a_loader_few_looks_decide_nothing(tmp_path: Path) -> None:
    notes = [steps(0.0, 0.5, looked_into_s=0.05, outside_s=0.0)] * 4
    found = program(tmp_path, [PROCESS, {**LOOP, "loader": ""}, *notes, *[steps(0.0, 0.5)] * 9, ENDED])
    assert found.loops[0].outside_share is None
    assert "is not told apart into data and step" in clock_verdict(found).sentence


def test_the_rank_that_waits_most_is_told(tmp_path: Path) -> None:
    ranks = [[{**PROCESS, "rank": str(rank)}, LOOP, *[steps(0.1 * rank, 0.4)] * 8, ENDED] for rank in range(3)]
    found = program(tmp_path, *ranks)
    assert (found.ranks, [loop.rank for loop in found.loops]) == (3, [2, 1, 0])
    assert "rank 2 of 3" in clock_verdict(found).sentence


def test_a_rank_that_is_handed_its_batches_says_nothing_of_the_loader(tmp_path: Path) -> None:
    """Accelerate's ranks that another one reads a stream for: *trains without a DataLoader* was said of a program that waits."""
    reads = [{**PROCESS, "rank": "0"}, LOOP, *[steps(0.3, 0.2)] * 8, ENDED]
    found = program(tmp_path, reads, [{**PROCESS, "rank": "1"}, {**LOOP, "loader": ""}, *[steps(0.0, 2.0)] * 8, ENDED])
    said = clock_verdict(found)
    assert (said.kind, "train.py:7 (rank 0 of 2)" in said.sentence) == ("input-bound", True), said.sentence


def test_an_attempt_that_ended_early_decides_nothing(tmp_path: Path) -> None:
    """A job that was started again, or a script that tries a few steps first: *too short for a verdict* was said of the whole."""
    attempt = [PROCESS, LOOP, steps(0.9, 0.1, first_s=[0.8])]
    found = program(tmp_path, attempt, [PROCESS, LOOP, *[steps(0.01, 0.5)] * 8, ENDED], attempt)
    assert len(found.loops) == 3
    assert clock_verdict(found).kind == "step-bound", clock_verdict(found).sentence


def test_a_thread_that_takes_batches_ahead_says_nothing_of_training(tmp_path: Path) -> None:
    found = program(tmp_path, [PROCESS, {**LOOP, "main_thread": False}, *[steps(0.3, 0.2, optimizer_s=0.1)] * 8, ENDED])
    assert found.loops[0].role == "unknown"
    said = clock_verdict(found)
    assert said.kind == "inconclusive"
    assert "the loader made at train.py:7 are taken ahead in a thread" in said.sentence


def test_the_account_tells_where_the_whole_time_went(tmp_path: Path) -> None:
    """Of the rank that is the lowest; a checkpoint within an epoch, one between two, and an evaluation inside a step."""
    training = [
        steps(1.5, 0.5, at=5.0, first_s=[1.0]),
        steps(0.2, 2.3, at=9.0, inner_s=1.2, saved_s=0.4),
        steps(0.5, 0.5, at=12.0, first_s=[0.3], between_s=0.9, saved_s=0.6, saved_outside_s=0.6, saved_between_s=0.6),
    ]
    evaluation = {**steps(0.2, 1.0, at=8.0, optimizer_steps=0, without_gradients=10, first_s=[0.1]), "loop": 1}
    other = [{**PROCESS, "at": 0.5, "rank": "1"}, LOOP, steps(3.0, 3.0, at=9.0), ENDED]
    probed = {"event": "inside", "seconds": 1.5, "at": 7.0}
    here = [
        {**PROCESS, "rank": "0"},
        LOOP,
        {**LOOP, "loop": 1, "loader": "train.py:9"},
        *training,
        evaluation,
        probed,
        {**ENDED, "ending_s": 0.5},
    ]
    account = program(tmp_path, other, here, seconds=13.0).account
    assert account is not None
    assert msgspec.structs.asdict(account) == pytest.approx(
        {
            "start_up": 2.5, "first_batch": 1.3, "training": 5.5 - 1.2 - 1.3 - 0.4, "evaluation": 1.2, "checkpoints": 1.0,
            "between_epochs": 0.3, "experiments": 1.5, "end": 0.5,
            "rest": 13.0 - 2.5 - 1.3 - 2.6 - 1.2 - 1.0 - 0.3 - 1.5 - 0.5,
        }
    )  # fmt: skip
    assert account.shares()["pipefix's experiments"] == pytest.approx(1.5 / 13.0)


def test_ranks_that_wait_for_one_with_experiments_are_not_slower_for_it(tmp_path: Path) -> None:
    """Rank 1 waited for them in backward, with whose seconds its loop was told."""
    probed, other = ([{**PROCESS, "rank": rank}, LOOP] for rank in "01")
    for number in range(1, 9):
        probed.append(steps(0.1, 0.4, backward_s=0.2, at=number / 2 + (20.0 if number > 4 else 0.0)))
        more = 20.0 if number == 5 else 0.0
        on_device = {"on_device": {"backward": 0.02 + more}, "on_device_steps": 1}
        other.append(steps(0.1, 0.4 + more, backward_s=0.2 + more, at=probed[-1]["at"], **on_device))
    probed.append({"event": "inside", "seconds": 20.0, "at": 22.1})
    found = program(tmp_path, [*probed, ENDED], [*other, ENDED], seconds=30.0)
    assert [loop.rank for loop in found.loops] == [0, 1]
    for loop in found.loops:
        assert (loop.seconds, loop.step_split["backward_s"]) == pytest.approx((8 * 0.5, 8 * 0.2))
    assert found.findings == []
    independent = [{**event, "step_s": 0.4, "backward_s": 0.2} if event["event"] == "steps" else event for event in other]
    assert program(tmp_path, probed, independent, seconds=30.0).loops[1].seconds == pytest.approx(8 * 0.5)


@pytest.mark.parametrize(
    ("times", "checks", "role"),
    [(2, {"without_gradients": 10}, "evaluation"), (2, {"calls_without_gradients": 1}, "evaluation"), (2, {}, "training"),
     (1, {"calls_without_gradients": 1}, "training")],
    ids=["asked for without gradients", "a model called without", "nothing tells", "as often as the other"],
)  # fmt: skip
def test_a_check_now_and_then_is_no_training(times: int, checks: dict[str, int], role: str, tmp_path: Path) -> None:
    """The steps that follow on it, with a batch of another loader, were told as its own."""
    other = {**LOOP, "loop": 1, "loader": "train.py:9"}
    turn = {"event": "in turn", "loop": 0, "other": 1}
    trains = [{**steps(0.1, 0.4), "loop": 1}] * (2 * times + 1)
    found = program(tmp_path, [PROCESS, LOOP, other, turn, *[steps(0.1, 0.4, **checks)] * 2, *trains, ENDED])
    assert {loop.loader: loop.role for loop in found.loops} == {"train.py:7": role, "train.py:9": "training"}


def test_a_program_without_loops_is_all_rest(tmp_path: Path) -> None:
    account = program(tmp_path, [PROCESS, ENDED]).account
    assert account is not None and (account.start_up, account.rest) == (0.0, 10.0)


def test_only_files_of_ours_are_notes(tmp_path: Path) -> None:
    program(tmp_path, [PROCESS])
    (tmp_path / "events-own.jsonl").write_text('{"event": "click"}\n')
    (tmp_path / "events-empty.jsonl").touch()
    (tmp_path / "events-linked.jsonl").symlink_to(tmp_path / "events-here-0.jsonl")
    assert [path.name for path in notes_in(tmp_path)] == ["events-here-0.jsonl"]


def test_notes_that_a_rank_removed_meanwhile_are_none(tmp_path: Path) -> None:
    """Ranks start at once in the folder of an earlier job: one that found its notes gone ended with *this is a bug in pipefix*."""
    program(tmp_path, [{**PROCESS, "host": "there"}])
    (path,) = notes_in(tmp_path)
    path.unlink()
    assert (merge_notes._is_ours(path), noted_elsewhere(path), still_noting(path)) == (False, False, None)


SAYS_STEP = Verdict(kind="step-bound", stage="step", sentence="Step-bound: the step takes 98 % of the time.", confidence=1.0)
WAITED = "Input-bound: the loop over the loader made at train.py:7 waited for batches in 44 % of its time"


def test_a_step_that_is_not_all_of_it_does_not_contradict_waits() -> None:
    """62 % by experiments, and waits of 38 % by clocks: *experiments and clocks contradict each other* was said of these."""
    said = msgspec.structs.replace(SAYS_STEP, sentence="Step-bound: 62 %. It is the largest part, and not the only one worth work.")
    clocks = Verdict(kind="input-bound", stage=None, sentence=f"{WAITED}; without waits it would be 1.79x as fast.", confidence=1.0)
    assert agreed(said, clocks) is said
    assert agreed(SAYS_STEP, clocks).kind == "inconclusive", "98 % leave no room for waits"


def test_waits_for_first_batches_are_told_beside_a_step_that_limits() -> None:
    """*Work on the model, not the data* was all that was said of a loop that waited 88 % of its time for first batches."""
    waited = f"{WAITED}, most of it for the first batch of an epoch."
    verdict = agreed(SAYS_STEP, Verdict(kind="input-bound", stage=None, sentence=waited, confidence=1.0))
    assert verdict.kind == "step-bound" and verdict.sentence.startswith(SAYS_STEP.sentence)
    assert verdict.sentence.endswith(waited.removeprefix("Input-bound"))


def test_an_evaluation_that_waits_for_longer_is_told_beside_what_experiments_say() -> None:
    """``pipefix run`` named it, and ``pipefix run --probe`` of the same program said nothing but *Leave the loader alone*."""
    waits = "Evaluation waits for longer: 4.03 s, over the loader made at train.py:9."
    clocks = Verdict(kind="balanced", stage=None, sentence=f"Balanced: the loop waited for 9 %. {waits}", confidence=1.0)
    assert agreed(SAYS_STEP, clocks).sentence == f"{SAYS_STEP.sentence} {waits}"


def test_a_loop_that_hardly_waits_contradicts_experiments_by_its_first_batch_too() -> None:
    said = Verdict(kind="input-bound", stage="decode", sentence="Input-bound: decode.", confidence=1.0)
    sentence = "Not the data: the loop waited for batches in 3 % of its time, most of it for the first batch of its only epoch."
    clocks = Verdict(kind="step-bound", stage="step", sentence=sentence, confidence=1.0)
    assert agreed(said, clocks).kind == "inconclusive", "it was Input-bound"


@pytest.mark.parametrize(
    ("kind", "sentence", "kept"),
    [
        ("input-bound", f"{WAITED}.", False),
        ("step-bound", "Not the data.", True),
        ("inconclusive", "Inconclusive: too short.", True),
    ],
)
def test_experiments_and_clocks_that_contradict_each_other_are_no_verdict(kind: str, sentence: str, kept: bool) -> None:
    clocks = Verdict(kind=kind, stage=None, sentence=sentence, confidence=1.0)
    verdict = agreed(SAYS_STEP, clocks)
    if kept:
        assert verdict is SAYS_STEP
        return
    assert verdict.kind == "inconclusive"
    assert SAYS_STEP.sentence in verdict.sentence and sentence in verdict.sentence
    assert "--probe=180 makes them for longer" in verdict.sentence, "it named the 60 seconds that they were made for"
    assert "--probe=600 makes" in agreed(SAYS_STEP, clocks, 200.0).sentence
