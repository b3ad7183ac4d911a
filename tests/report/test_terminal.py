"""Documents on the terminal: the goldens compared whole, never too wide, and safe whatever the names are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipefix.report.compare import compare
from pipefix.report.document import (
    Bar,
    Bars,
    CommandLine,
    Document,
    Field,
    Item,
    Items,
    Paragraph,
    Points,
    Section,
    Table,
    field,
    to_do,
)
from pipefix.report.probe_report import full, short
from pipefix.report.program_figures import ProgramFigures
from pipefix.report.runfile import GainFigures, OpCost, RemedyFigures, Run, StageFigures, Verdict, read
from pipefix.report.terminal import lines
from pipefix.vocabulary.quantity import Interval
from tests.conftest import ROOT

RUNS = sorted((ROOT / "fixtures" / "runs").glob("*.json"))
GOLDEN = ROOT / "fixtures" / "reports"
SLOW = read(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")


def printed(*blocks: object, **how: object) -> list[str]:
    return lines(Document(sections=[Section(title="", blocks=list(blocks))]), **how)  # type: ignore[arg-type]


def test_the_users_random_numbers_go_on_where_it_is_imported() -> None:
    """rich draws a number at its first import: in the middle of a training program, where a probe is called from Python."""
    code = "import random; before = random.getstate(); import pipefix.report.terminal; assert random.getstate() == before"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_whole_text_is_as_it_was(path) -> None:
    golden = GOLDEN / f"{path.stem}.txt"
    assert golden.exists(), f"{golden} is missing; python tests/report/rewrite_golden.py writes it, to be looked at"
    assert lines(full(read(path))) == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("width", "color", "unicode"), [(1, False, False), (47, True, True), (80, False, False), (200, True, True)]
)
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_no_line_is_wider_than_asked_but_a_command(path, width: int, color: bool, unicode: bool) -> None:
    run = read(path)
    documents = [full(run)] if run.throughput is None else [full(run), compare(run, SLOW, force=True).document()]
    commands = {remedy.command for remedy in run.remedies} | {"pipefix probe"}
    for line in [line for document in documents for line in lines(document, width=width, color=color, unicode=unicode)]:
        shown = without_color(line)
        if not shown.strip().startswith(tuple(command[:20] for command in commands if command)):
            assert cell_len(shown) <= max(width, 40), f"{width}: {shown}"
        assert "\x1b" not in shown
        assert unicode or shown.isascii()


def without_color(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_colors_change_nothing_but_the_ink() -> None:
    painted = lines(full(SLOW), color=True)
    assert any("\x1b[" in line for line in painted)
    assert [without_color(line).rstrip() for line in painted] == lines(full(SLOW))


def test_escape_sequences_in_names_reach_no_terminal() -> None:
    sentence = "\x1b[2J \u202egpj [bold]:smile:"
    run = Run(target="\x1b]0;owned\x07.py", verdict=Verdict(kind="balanced", stage=None, sentence=sentence, confidence=1))
    text = "\n".join(lines(full(run)))
    assert not set("\x1b\x07\u202e") & set(text)
    assert "\\x1b]0;owned\\x07.py" in text
    assert "gpj [bold]:smile:" in text, "the printer's own markup is text too"


def test_a_command_is_one_line_whatever_the_width() -> None:
    command = "pipefix convert '/a b/" + "c" * 300 + "' --out x"
    assert printed(CommandLine(command), width=40) == [command]
    assert printed(CommandLine("def f(x):\n    return x")) == ["def f(x):", "    return x"]
    assert lines(Document(card=[Field("NEXT", [Paragraph("Do it."), CommandLine(command)])]))[1] == " " * 9 + command


def test_what_to_do_in_words_is_broken_as_text() -> None:
    assert printed(*to_do("Put pipefix.FastLoader(...) in DataLoader's place."), width=40) == [
        "Put pipefix.FastLoader(...) in",
        "DataLoader's place.",
    ]
    for command in ("pipefix fix train_data.py --only cache-source", "FastLoader(dataset, plan='x', batch_size=64)"):
        assert to_do(command) == [CommandLine(command)]


def test_what_shows_the_figures_behind_is_an_option_of_what_was_run() -> None:
    """``pipefix run`` has neither ``--full`` nor ``--html``: it says itself which command shows them."""
    alone = Run(target="data.py:loader")
    inside = Run(target="train.py:7", program=ProgramFigures(command=["train.py"], exit_code=0, seconds=9.0))
    assert "--full, or as a page for the browser: --html" in " ".join(lines(short(alone)))
    assert "--full" not in (told := " ".join(lines(short(inside)))) and "--html" not in told


def test_a_figure_is_not_parted_from_its_unit() -> None:
    assert printed(Paragraph("x" * 36 + " 12 ms on the way."), width=40) == ["x" * 36, "12 ms on the way."]


def test_every_block_has_its_place() -> None:
    bars = [
        Bar(cells=["decode", "61 %"], value=Interval(0.61, 0.6, 0.62), stage="decode", marked=True),
        Bar(cells=["ipc", "-"], note="declined: no workers"),
    ]
    document = Document(
        command="pipefix probe", target="x.py", created="today", about=["a dataset"], warning="Interrupted.",
        card=[field("WHY", "because"), Field("NEXT", [Points(["one", "two"])])],
        sections=[
            Section(title="Stages", blocks=[Bars(table=Table(["stage", "share"], [], "lr"), bars=bars, inline=True)]),
            Section(title="Pages only", blocks=[Paragraph("no")], only="page"),
            Section(title="Lists", blocks=[Items([Item(text="Do", figure="2x", blocks=[Paragraph("why")])], numbered=True)]),
        ],
        after=[Paragraph("the end")],
    )  # fmt: skip
    assert lines(document, width=60) == [
        "pipefix probe x.py" + " " * 37 + "today",
        "a dataset",
        "Interrupted.",
        "─" * 60,
        "WHY      because",
        "NEXT     - one",
        "         - two",
        "─" * 60,
        "",
        "Stages",
        "  stage                             share",
        "  decode  ███████████████████████▌   61 %",
        "  ipc: declined: no workers",
        "",
        "Lists",
        "   1. Do" + " " * 50 + "2x",
        "      why",
        "the end",
    ]


def test_columns_that_do_not_fit_are_left_out_in_their_order() -> None:
    table = Table(["name", "first", "second"], [["a" * 20, "1" * 10, "2" * 10]], "lrr", optional=["first", "second"])
    assert ["first" in line for line in printed(table, width=60)[:1]] == [True]
    assert printed(table, width=40)[0].split() == ["name", "second"]


@given(st.text(max_size=40), st.floats(), st.floats(), st.integers(min_value=40, max_value=130))
def test_any_run_is_told(name: str, first: float, second: float, width: int) -> None:
    interval, gain = Interval(first, second, first), GainFigures(first, second, first)
    stage = StageFigures(
        stage=name, wall_s=interval, cpu_s=interval, share=second, bytes=first, marginal_gain=gain,
        ops=[OpCost(name=name, wall_s=first)],
    )  # fmt: skip
    remedy = RemedyFigures(id=name, stage=name, title=name, status="proposed", why=name, speedup=gain)
    run = Run(target="x", created=name, stages=[stage], remedies=[remedy], unattributed_s=first, sample_s=interval)
    for line in lines(full(run), width=width):
        assert cell_len(line) <= width or line.strip().startswith("pipefix probe")
        assert line.isprintable() or "\u200d" in line
