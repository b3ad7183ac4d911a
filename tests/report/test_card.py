"""What the card proposes where nobody knows what limits: a remedy that was tried and surely gains, and no other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pipefix.report import probe_report, runfile, terminal
from pipefix.report.card import card, remedy_cost
from pipefix.report.program_figures import LoopFigures, ProgramFigures
from pipefix.report.runfile import GainFigures, RemedyCost, RemedyFigures, Run, Verdict
from pipefix.vocabulary.finding import Finding
from tests.conftest import ROOT

RUN = runfile.read(ROOT / "fixtures" / "runs" / "inconclusive-partial.json")


def workers(low: float, *, measured: bool) -> RemedyFigures:
    gain = GainFigures(value=low + 0.1, low=low, high=low + 0.2, blocks=5, how="measured" if measured else "modelled")
    return RemedyFigures(
        id="workers-4", stage="ipc", why="", title="Use 4 workers instead of 2", status="proposed", speedup=gain, measured=measured,
        command="DataLoader(..., num_workers=4)",
    )  # fmt: skip


def test_a_remedy_that_surely_gained_is_told_whatever_limits() -> None:
    told = card(replace(RUN, remedies=[*RUN.remedies, workers(1.5, measured=True)]))
    assert told.kind == "inconclusive"
    assert told.next[:2] == ["Whatever limits it, this was tried beside it:", "Use 4 workers instead of 2."]
    assert told.command == "DataLoader(..., num_workers=4)"


@pytest.mark.parametrize("remedy", [workers(1.02, measured=True), workers(1.5, measured=False)])
def test_one_that_may_gain_nothing_or_was_not_tried_is_not(remedy: RemedyFigures) -> None:
    assert card(replace(RUN, remedies=[remedy])).command == "pipefix probe clips.py:ClipDataset --budget 180"
    beside = replace(RUN, remedies=[remedy], consumer="emulated: 12.5 ms a batch")
    assert card(beside).command == "pipefix probe clips.py:ClipDataset --step-ms 12.5 --budget 180"
    given = replace(RUN, remedies=[remedy], given={"workers": 8})
    assert card(given).command == "pipefix probe clips.py:ClipDataset --workers 8 --budget 180"
    in_python = replace(RUN, remedies=[remedy], target="<ClipDataset object>")
    assert str(card(in_python).command).startswith("pipefix.probe(dataset, ")
    assert str(card(replace(in_python, consumer="train_step")).command).startswith("pipefix.probe(dataset, step=train_step, ")


def test_a_cache_of_unknown_size_is_not_said_to_take_no_disk() -> None:
    cache = replace(workers(1.5, measured=True), id="cache-resized-256", cost=RemedyCost(disk_bytes=None, seconds=360.0))
    assert remedy_cost(cache) == "an unknown amount of disk, 6.0 min once"
    assert remedy_cost(replace(cache, id="workers-4", cost=RemedyCost())) == ""


def of_program(kind: str, sentence: str, *command: str) -> Run:
    verdict = Verdict(kind=kind, stage=None, sentence=sentence, confidence=1.0, rule="")
    loop = LoopFigures(loader="train.py:3", role="training")
    return Run(verdict=verdict, program=ProgramFigures(command=[*command], loops=[loop]))


def test_what_comes_next_for_a_program_of_which_clocks_alone_are_known() -> None:
    waits = "Input-bound: the loop over the loader made at train.py:3 waited for batches in 40 % of its time."
    assert card(of_program("input-bound", waits, "train.py", "3")).command == "pipefix run --probe train.py 3"
    planned = of_program("input-bound", waits, "train.py", "3")
    planned = replace(planned, program=replace(planned.program, plan="fixed/pipefix.plan.toml"))
    assert card(planned).command == "pipefix run --probe --plan fixed/pipefix.plan.toml train.py 3", "of the loader that waited"
    for launcher in ("/usr/lib/ipykernel_launcher.py", "/usr/local/lib/colab_kernel_launcher.py"):
        in_notebook = card(of_program("input-bound", waits, launcher, "-f", "kernel.json"))
        assert in_notebook.command == "pipefix.probe(LOADER, step=TRAINING_STEP)"
    told = card(of_program("step-bound", "Not the data.", "train.py")).next
    assert told == ["Leave the data alone: look at the steps, whose parts the table tells."], "not: at the model"
    beside = card(of_program("step-bound", "Not the data. Evaluation waits for longer: 3 s.", "train.py"))
    assert beside.next == ["Leave the training's loader alone: look at its steps, and at the loader of the evaluation."]
    without = of_program("inconclusive", "Inconclusive: The program trains without a DataLoader.", "train.py")
    without = replace(without, program=replace(without.program, loops=[LoopFigures(loader="", role="training")]))
    assert card(without).command == "pipefix probe FILE.py:NAME", "run --probe would find no loader"


def test_of_a_program_of_which_nothing_was_seen_the_reason_comes_next() -> None:
    """The page of one that failed proposed a longer probe of it, and none had been made."""
    verdict = Verdict(kind="inconclusive", stage=None, sentence="Inconclusive: the program failed.", confidence=0.0, rule="")
    told = card(Run(verdict=verdict, program=ProgramFigures(command=["train.py"], exit_code=1, seconds=1.0)))
    assert told.command is None
    assert "the program failed before that" in told.next[0]


def probed(kind: str, sentence: str, *command: str) -> Run:
    return replace(RUN, target="train.py:3", caveats=[], remedies=[], program=of_program(kind, sentence, *command).program,
                   verdict=Verdict(kind=kind, stage=None, sentence=sentence, confidence=1.0))  # fmt: skip


def test_what_comes_next_names_the_budget_that_the_verdict_names() -> None:
    """*--probe=60 makes them for longer* stood above a command with ``--probe=120``."""
    said = "Inconclusive: they contradict each other. --probe=60 makes them for longer."
    assert card(probed("inconclusive", said, "train.py", "3")).command == "pipefix run --probe=60 train.py 3"


def test_a_trace_of_a_program_is_asked_for_by_a_command_that_makes_one() -> None:
    """*Look at what runs meanwhile* came without a command, and ``pipefix run`` has no ``--trace``."""
    said = "Inconclusive: by the clocks augment takes 83 %. What runs meanwhile is seen in a trace: pipefix probe --trace FILE."
    traced = "pipefix probe train.py --trace trace.json -- 3"
    assert card(probed("inconclusive", said, "train.py", "3")).command == traced
    assert card(probed("inconclusive", said, "-m", "pkg.train", "3")).command == traced.replace("train.py", "-m pkg.train")
    assert card(probed("inconclusive", said, "torchrun", "train.py")).command is None


def test_a_loader_that_is_worth_work_between_its_epochs_is_not_left_alone() -> None:
    """*Leave the loader alone* was said above a warning that its workers start anew, and of one whose evaluation waits."""
    step = probed("step-bound", "Step-bound: 98 %.", "train.py")
    anew = Finding(id="workers-anew", severity="warning", found="2 workers start anew", advice="Keep them.")
    assert card(replace(step, program=replace(step.program, findings=[anew]))).next == ["2 workers start anew. Keep them."]
    waits = card(probed("step-bound", f"Step-bound: 98 %. {runfile.EVALUATION_WAITS}: 4 s.", "train.py")).next
    assert waits[0].startswith("Leave the training's loader alone")
    assert card(step).next == ["Leave the loader alone: none of the remedies is worth its cost here."]


def test_where_the_figures_lie_is_said_as_it_is_asked() -> None:
    """Printed in Python, where there is no ``--full``, the result of `pipefix.probe` named it."""
    for target, said in (("clips.py", "--html report.html"), ("<DataLoader object>", 'run.html("report.html")')):
        assert said in "\n".join(terminal.lines(probe_report.short(replace(RUN, target=target))))
