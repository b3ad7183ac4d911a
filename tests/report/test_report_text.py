"""The terminal report: compared whole, never too wide, and safe whatever the names are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.report.columns import Paint, cells, clip, visible, wrap, wrap_command
from pipefix.report.runfile import Op, RemedyFigures, Run, StageFigures, Verdict, read
from pipefix.report.text import lines
from pipefix.vocabulary.quantity import Interval

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
        target="\x1b]0;owned\x07.py", verdict=Verdict(kind="balanced", stage=None, sentence="\x1b[2J \u202egpj", confidence=1)
    )
    text = "\n".join(lines(run))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\\x1b]0;owned\\x07.py" in text


def test_the_card_joins_stage_interval_and_gain() -> None:
    text = "\n".join(lines(read(FIXTURES / "runs" / "decode-bound-workers.json")))
    card = text.split("Where the time of a sample goes")[0]
    for label in ("VERDICT ", "WHY ", "NEXT "):
        assert label in card
    assert "clocks: decode takes 1.93 ms (1.88-1.99) a sample, 61 % of the delivered time" in card
    assert "delivers 2.18x (2.09-2.27)" in card
    assert "pipefix convert train_data.py:train_loader --to lmdb" in card


def test_the_manual_shows_the_card_as_it_is() -> None:
    manual = (FIXTURES.parent / "docs" / "reading-a-report.md").read_text(encoding="utf-8")
    shown = manual.split("```")[1].strip("\n").splitlines()
    rules = lines(read(FIXTURES / "runs" / "decode-bound-workers.json"))
    first, last = (number for number, line in enumerate(rules) if line.startswith("─"))
    assert shown == rules[first + 1 : last]


def test_an_inconclusive_run_says_what_would_settle_it() -> None:
    card = "\n".join(lines(read(FIXTURES / "runs" / "inconclusive-partial.json"))).split("Where the time")[0]
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
    stage = StageFigures(stage="decode", wall_s=Interval(nan, nan, nan), share=nan, ops=[Op(name="x", wall_s=nan)])
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


def test_lines_of_a_command_stay_lines() -> None:
    assert Paint(60).command("def f(x):\n    return x", indent=2) == ["  def f(x):", "      return x"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.integers(min_value=12, max_value=50))
def test_whatever_the_text_it_fits(text: str, width: int) -> None:
    safe = visible(text)
    assert safe.isprintable() or "\u200d" in safe
    assert cells(clip(safe, width)) <= width
    assert all(cells(row) <= width for row in wrap(safe, width))
    assert "".join(wrap(safe, width)).replace(" ", "") == safe.replace(" ", "")
    assert all(cells(row.removeprefix("\0")) <= width for row in wrap_command(safe, width))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.floats(), st.floats(), st.integers(min_value=40, max_value=130))
def test_any_run_is_told(name: str, first: float, second: float, width: int) -> None:
    interval = Interval(first, second, first)
    stage = StageFigures(stage=name, wall_s=interval, cpu_s=interval, share=second, bytes=first, marginal_gain=interval)
    remedy = RemedyFigures(id=name, stage=name, title=name, status="proposed", why=name, speedup=interval, command=name)
    run = Run(target=name, created=name, stages=[stage], remedies=[remedy], unattributed_s=first, sample_s=interval)
    assert all(cells(line) <= width for line in lines(run, width=width))


def test_reading_a_report_loads_no_torch() -> None:
    """The room of reports stays light: show and compare answer at once."""
    modules = "pipefix.report.text, pipefix.report.compare, pipefix.report.html, pipefix.report.trace"
    program = f"import sys, {modules}; print([name for name in ('torch', 'numpy', 'rich') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"
