"""The terminal report: compared whole, never too wide, and safe whatever the names are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.report.card import card
from pipefix.report.columns import Paint, cells, clip, wrap, wrap_command
from pipefix.report.runfile import Caveat, OpFigures, RemedyFigures, Run, StageFigures, VerdictFigures, read
from pipefix.report.text import lines, short
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.terminal import printable

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
RUNS = sorted((FIXTURES / "runs").glob("*.json"))
NAMES = [path.stem for path in RUNS]


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("name", NAMES)
def test_the_whole_text_is_as_it_was(name: str, width: int) -> None:
    golden = FIXTURES / "reports" / f"{name}.{width}.txt"
    assert golden.exists(), f"{golden} is missing; python tests/report/rewrite_golden.py writes it, to be looked at"
    assert lines(read(FIXTURES / "runs" / f"{name}.json"), width=width) == golden.read_text(encoding="utf-8").splitlines()


def test_every_golden_report_has_its_run() -> None:
    assert {path.name.split(".")[0] for path in (FIXTURES / "reports").glob("*.txt")} == set(NAMES)
    assert len(NAMES) >= 8


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_asked(name: str, color: bool, unicode: bool) -> None:
    run = read(FIXTURES / "runs" / f"{name}.json")
    for width in (40, 47, 60, 80, 100, 120, 200):
        for line in lines(run, width=width, color=color, unicode=unicode):
            shown = _without_color(line)
            assert cells(shown) <= width, f"{width}: {shown}"
            assert "\x1b" not in shown
            assert unicode or shown.isascii()


def _without_color(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_colors_change_nothing_but_the_ink() -> None:
    run = read(FIXTURES / "runs" / "decode-bound-workers.json")
    painted = lines(run, color=True)
    assert any("\x1b[" in line for line in painted)
    assert [_without_color(line).rstrip() for line in painted] == [line.rstrip() for line in lines(run)]
    assert all(line.count("\x1b[0m") * 2 == line.count("\x1b[") for line in painted)


def test_escape_sequences_in_names_reach_no_terminal() -> None:
    run = Run(
        target="\x1b]0;owned\x07.py",
        verdict=VerdictFigures(kind="balanced", stage=None, sentence="\x1b[2J \u202egpj", confidence=1),
    )
    text = "\n".join(lines(run))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\\x1b]0;owned\\x07.py" in text


def test_the_card_joins_stage_interval_and_gain() -> None:
    card = "\n".join(short(read(FIXTURES / "runs" / "decode-bound-workers.json")))
    for label in ("VERDICT ", "WHY ", "NEXT "):
        assert label in card
    assert "clocks: decode takes 1.93 ms (1.88-1.99) a sample, 61 % of the delivered time" in card
    assert "delivers 2.18x (2.09-2.27)" in card
    assert "pipefix convert train_data.py:train_loader --to lmdb" in card


def test_without_a_consumer_a_remedy_is_worth_what_it_is_to_the_input_side_alone() -> None:
    run = read(FIXTURES / "runs" / "decode-bound-workers.json")
    assert "the input side alone" not in " ".join(card(run).next)
    assert "the throughput of the input side alone, predicted" in " ".join(card(msgspec.structs.replace(run, consumer="none")).next)


def test_the_card_comes_with_the_next_remedies_and_what_the_audit_minds() -> None:
    run = read(FIXTURES.parent / "docs" / "demo-run.json")
    said = short(run)
    assert said[-1] == "The figures behind this: --full, or as a page for the browser: --html report.html"
    assert len(said) < 24
    assert "ALSO     2. Cache the images resized to 256 pixels: 1.25x (1.19-1.32) predicted" in said
    assert "         3. Hand batches over through reused shared memory: 1.10x (1.07-1.13) predicted" in said
    assert [line for line in said if line.startswith("AUDIT")] == [
        "AUDIT    warning: Workers are started again for every epoch: 115 ms before the first batch, 54 % of"
    ]
    whole, rule = lines(run), "─" * 100
    assert whole[-1] == rule, "the card is last"
    assert whole[whole.index(rule) + 1] == said[said.index(rule) + 1]


def test_what_was_probed_is_told_with_the_card_where_it_was_a_choice() -> None:
    run = read(FIXTURES.parent / "docs" / "demo-run.json")
    left_out = Caveat(id="model-left-out", sentence="The file's model is not the consumer.")
    said = short(msgspec.structs.replace(run, caveats=[Caveat(id="cold", sentence="Cold."), left_out]))
    assert "NOTE     The file's model is not the consumer." in said
    assert not any("Cold." in line for line in said)


def test_an_inconclusive_run_says_what_would_settle_it() -> None:
    card = "\n".join(short(read(FIXTURES / "runs" / "inconclusive-partial.json")))
    assert "Interrupted: these figures are what was known by then." in card
    assert "narrow enough to tell decode from storage" in " ".join(card.split())
    assert "pipefix probe clips.py:ClipDataset --budget 180" in card
    assert "pipefix convert" not in card, "no remedy is urged while the verdict is open"


def test_a_run_without_any_figure_still_says_what_to_type() -> None:
    assert "         pipefix probe TARGET --out run.json" in lines(Run())


def test_input_bound_without_a_remedy_is_not_told_to_leave_it_alone() -> None:
    text = "\n".join(lines(read(FIXTURES / "runs" / "declined-stages.json")))
    assert "Leave the loader alone" not in text
    assert "No remedy that pipefix knows applies here" in text


def test_empty_lists_leave_no_empty_headings() -> None:
    text = "\n".join(lines(Run(stages=[], arms=[], remedies=[], audit=[], caveats=[])))
    assert "Remedies" not in text
    assert "Where the time" not in text


def test_unknown_figures_are_dashes_or_said_to_be_unknown() -> None:
    nan = float("nan")
    stage = StageFigures(stage="decode", wall_s=Interval(nan, nan, nan), share=nan, ops=[OpFigures(name="x", wall_s=nan)])
    text = "\n".join(lines(Run(stages=[stage], unattributed_s=nan, sample_s=Interval(nan, nan, nan))))
    assert "nan" not in text
    assert "inf" not in "\n".join(lines(Run(sample_s=Interval(1.0, float("-inf"), float("inf")))))


COMMANDS = [
    "pipefix convert data.py --to lmdb --out '/mnt/a disk/x.lmdb'",
    "pipefix convert '/a b/" + "c" * 300 + "' --out x",
    'pipefix convert "/a b/' + "d " * 90 + '" --out x',
    "echo " + "word " * 60,
    "echo 'it'\\''s' " + "e" * 200 + "\\ " + "f" * 200,
    "echo '" + "é🐟" * 80 + "'",
]


@pytest.mark.parametrize("width", [20, 33, 60, 91])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrapped_command_means_the_same_to_a_shell(command: str, width: int) -> None:
    rows = Paint(width).command(command, indent=4)
    assert all(cells(row) <= width for row in rows)
    assert _arguments("\n".join(rows)) == _arguments(command)


def _arguments(script: str) -> bytes:
    shown = script.replace("pipefix", "echo", 1) if script.lstrip().startswith("pipefix") else script
    program = "show() { printf '%s\\0' \"$@\"; }; " + shown.replace("echo", "show", 1)
    return subprocess.run(["bash", "-c", program], check=True, capture_output=True).stdout


def test_what_to_do_in_words_is_broken_as_text_and_a_command_as_a_command() -> None:
    paint = Paint(40)
    assert paint.to_do("Put pipefix.FastLoader(...) in DataLoader's place.", indent=2) == [
        "  Put pipefix.FastLoader(...) in",
        "  DataLoader's place.",
    ]
    for command in ("pipefix fix train_data.py --only cache-source --out fixed", "FastLoader(dataset, plan='x', batch_size=64)"):
        assert paint.to_do(command) == paint.command(command)
        assert paint.to_do(command)[0].endswith("\\")


def test_lines_of_a_command_stay_lines() -> None:
    assert Paint(60).command("def f(x):\n    return x", indent=2) == ["  def f(x):", "      return x"]


@given(st.text(max_size=80), st.integers(min_value=12, max_value=50))
def test_whatever_the_text_it_fits(text: str, width: int) -> None:
    safe = printable(text)
    assert safe.isprintable() or "\u200d" in safe
    assert cells(clip(safe, width)) <= width
    assert all(cells(row) <= width for row in wrap(safe, width))
    assert "".join(wrap(safe, width)).replace(" ", "") == safe.replace(" ", "")
    assert all(cells(row.removeprefix("\0")) <= width for row in wrap_command(safe, width))


@given(st.text(max_size=40), st.floats(), st.floats(), st.integers(min_value=40, max_value=130))
def test_any_run_is_told(name: str, first: float, second: float, width: int) -> None:
    interval = Interval(first, second, first)
    stage = StageFigures(stage=name, wall_s=interval, cpu_s=interval, share=second, bytes=first, marginal_gain=interval)
    remedy = RemedyFigures(id=name, stage=name, title=name, status="proposed", why=name, speedup=interval, command=name)
    run = Run(target=name, created=name, stages=[stage], remedies=[remedy], unattributed_s=first, sample_s=interval)
    assert all(cells(line) <= width for line in lines(run, width=width))


def remedy(id: str, stage: str, status: str = "proposed", **others: Any) -> RemedyFigures:
    return RemedyFigures(id=id, stage=stage, title=f"Do {id}", status=status, why=f"why {id}", **others)


@pytest.mark.parametrize(
    ("remedies", "said"),
    [
        ([remedy("a", "decode", relieves=["augment"])], None),
        ([remedy("a", "augment")], None),
        (
            [remedy("a", "decode"), remedy("b", "ipc", relieves=["augment"], speedup=Interval(1.4, 1.2, 1.6))],
            "It leaves augment as it is; remedy 2 acts on that: Do b, 1.40x (1.20-1.60).",
        ),
        (
            [
                remedy("a", "decode"),
                remedy("b", "augment", "declined"),
                remedy("c", "augment", "declined", speedup=Interval(2, 2, 2)),
            ],
            "It leaves augment as it is; what acts on that does not apply here: Do c: why c.",
        ),
        ([remedy("a", "decode")], "It leaves augment as it is; pipefix knows no remedy that acts on that."),
    ],
)
def test_the_first_remedy_acts_on_the_named_stage_or_the_card_says_which_would(
    remedies: list[RemedyFigures], said: str | None
) -> None:
    verdict = VerdictFigures(kind="input-bound", stage="augment", sentence="Input-bound.", confidence=1.0, rule="")
    told = card(Run(verdict=verdict, remedies=remedies)).next
    assert [one for one in told if one.startswith("It leaves")] == ([said] if said is not None else [])


def test_where_the_sampler_limits_the_card_says_that_no_remedy_acts_on_it() -> None:
    verdict = VerdictFigures(kind="input-bound", stage=None, sentence="Input-bound: the sampler.", confidence=1.0, rule="")
    told = card(Run(verdict=verdict, remedies=[remedy("a", "decode")])).next
    assert [one for one in told if one.startswith("It leaves")] == [
        "It leaves the sampler as it is, as every remedy does that pipefix knows; the verdict says what would help."
    ]
