"""Documents as pages: well-formed, self-contained, safe from what names contain, and complete."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.fixes.outcome import Refused
from pipefix.report import fix_report, program_report, terminal
from pipefix.report.compare import compare
from pipefix.report.document import Document
from pipefix.report.page import page
from pipefix.report.probe_report import full
from pipefix.report.program_figures import LoopFigures, LoopSpan, ProgramFigures
from pipefix.report.run_figures import sample_classes
from pipefix.report.runfile import (
    Arm,
    Caveat,
    Finding,
    GainFigures,
    OpCost,
    RemedyFigures,
    Run,
    StageFigures,
    Tail,
    Throughput,
    Verdict,
    Waits,
    decode,
    read,
)
from pipefix.vocabulary import quantity
from pipefix.vocabulary.quantity import Interval
from tests.cli.test_fix import FIXED, GAIN
from tests.cli.test_swap import swapped
from tests.conftest import ROOT

RUNS = {path.stem: path for path in sorted((ROOT / "fixtures" / "runs").glob("*.json"))}
VOID = {"meta", "br", "hr", "img"}


class Reader(HTMLParser):
    """Notes every tag and attribute, and that each one opened is closed in turn."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.blocks:
            self.blocks[self.open[-1]].append(data)
        else:
            self.words.append(data)

    def values(self, wanted: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == wanted]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


SLOW = read(RUNS["decode-bound-workers"])
TRIED = Refused(id="workers-4", title="Workers", stage="ipc", why="slower <b>", predicted=Interval(1.2, 1.1, 1.3), measured=GAIN)
LOOP = LoopFigures(
    loader="t.py:1", role="training", steps=9, seconds=5.0, timeline=[LoopSpan(begin=0.0, end=2.0, waited=0.4)],
    wait_share=Interval(0.4, 0.3, 0.5), step_split={"forward_s": 1.0},
)  # fmt: skip
PROGRAM = Run(target="t.py", program=ProgramFigures(command=["t.py"], exit_code=0, seconds=9.0, loops=[LOOP]))
DOCUMENTS: dict[str, Document] = {name: full(read(path)) for name, path in RUNS.items()} | {
    "compare": compare(SLOW, SLOW, max_regression=0.05).document(full=True),
    "fix": fix_report.report(msgspec.structs.replace(FIXED, outcomes=[*FIXED.outcomes, TRIED]), SLOW, SLOW),
    "program": full(PROGRAM),
    "swap": swapped().document(),
    "nothing": full(Run()),
}


@pytest.fixture(params=DOCUMENTS, ids=str)
def made(request: pytest.FixtureRequest) -> str:
    return page(DOCUMENTS[request.param])


def test_it_is_well_formed_and_asks_the_network_for_nothing(made: str) -> None:
    assert made.startswith("<!DOCTYPE html>\n<html")
    reader = Reader(made)
    assert len(set(reader.values("id"))) == len(reader.values("id"))
    fetching = {"src", "srcset", "data", "action", "poster", "background", "formaction", "xlink:href", "ping"}
    assert [attribute for attribute in reader.attributes if attribute[1] in fetching] == []
    assert all(value.startswith("#") for value in reader.values("href"))
    assert not set(reader.tags) & {"link", "img", "iframe", "object", "embed", "base", "use", "image", "form", "video", "audio"}
    style, script = "".join(reader.blocks["style"]), reader.blocks["script"][-1]
    assert "url(" not in style and "@import" not in style
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon|https?:", script)


def test_its_policy_allows_its_own_style_and_script_and_nothing_else(made: str) -> None:
    reader = Reader(made)
    digests = [_digest("".join(reader.blocks["style"])), _digest(reader.blocks["script"][-1])]
    assert reader.values("content")[0] == (
        f"default-src 'none'; style-src '{digests[0]}'; script-src '{digests[1]}'; base-uri 'none'; form-action 'none'"
    )
    assert not any(key == "style" or key.startswith("on") for _, key, _ in reader.attributes), "the policy would refuse it"


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@pytest.mark.parametrize("name", RUNS)
def test_it_holds_its_run_file_and_every_figure(name: str) -> None:
    run = read(RUNS[name])
    reader = Reader(page(DOCUMENTS[name]))
    held = reader.blocks["script"][0]
    assert json.loads(held)["format"] == "pipefix.run/1"
    assert repr(decode(held.encode(), origin="the page")) == repr(run)
    expected = []
    for stage in run.stages:
        expected += [
            quantity.seconds_between(stage.wall_s),
            quantity.size(stage.bytes),
            quantity.times_between(stage.marginal_gain),
        ]
        expected += [quantity.seconds(op.wall_s) for op in stage.ops] + [stage.declined or stage.stage]
    for remedy in run.remedies:
        expected += [quantity.times_between(remedy.speedup), remedy.why, remedy.title, remedy.command or remedy.title]
    for finding in run.audit:
        expected += [finding.severity, finding.found, finding.advice]
    expected += [caveat.sentence for caveat in run.caveats]
    expected += [quantity.number(quantity.median(arm.rates)) for arm in run.arms]
    if run.throughput is not None:
        expected.append(quantity.rate(run.throughput.delivered.value, run.throughput.unit))
    assert [figure for figure in expected if figure != quantity.UNKNOWN and " ".join(figure.split()) not in reader.text] == []


def test_every_block_is_a_dot_and_every_interval_a_whisker() -> None:
    made = page(DOCUMENTS["decode-bound-workers"])
    assert made.count("<circle") == sum(len(arm.rates) for arm in SLOW.arms)
    assert made.count('class="whisker"') % 3 == 0 and made.count('class="whisker"') >= 3 * len(SLOW.stages)


def test_nothing_in_a_name_becomes_markup() -> None:
    made = page(DOCUMENTS["strange-names"])
    reader = Reader(made)
    assert reader.tags.count("script") == 2
    assert "<script>alert" not in made
    assert "<script>alert" in reader.text, "shown as the text it is"
    assert not set("\x1b\u202e") & set("".join(reader.words))


def everywhere(said: str) -> Run:
    """The same text wherever text can come from outside."""
    half, gain = Interval(2.0, 1.5, 2.5), GainFigures(2.0, 1.5, 2.5)
    op = OpCost(name=said, wall_s=1.0, opaque=said)
    return Run(
        pipefix=said, created=said, target=said, machine={"cpu_model": said, "gpus": [{"name": said}], "note": said}, consumer=said,
        verdict=Verdict(kind=said, stage=said, sentence=said, confidence=0.5, rule=said),
        throughput=Throughput(delivered=half, unit=said),
        stages=[
            StageFigures(stage=said, wall_s=half, share=0.5, marginal_gain=gain, ops=[op]),
            StageFigures(stage=said, declined=said),
        ],
        cold={"declined": said},
        arms=[Arm(name=said, replaces=[said], rates=[1.0]), Arm(name=said, declined=said)],
        remedies=[
            RemedyFigures(id=said, stage=said, title=said, status="proposed", why=said, speedup=gain, command="one two"),
            RemedyFigures(id=said, stage=said, title=said, status="declined", why=said),
        ],
        audit=[Finding(id=said, severity=said, found=said, advice=said, rule=said)],
        caveats=[Caveat(id=said, sentence=said)],
        waits=Waits(at_s=[0.0], wait_s=[1.0], step_s=[1.0]),
        program=ProgramFigures(command=[said], loops=[msgspec.structs.replace(LOOP, loader=said, role=said)], errors=[said]),
    )  # fmt: skip


HOSTILE = [
    "</script><script>x",
    '"><b onclick=x>',
    "'-->",
    "<!--",
    "</title>",
    "&lt;",
    "]]>",
    "\udcff",
    "\u2028",
    "{{ 7*7 }}",
    "{%",
]
hostile = st.one_of(st.text(min_size=1, max_size=30), st.sampled_from([*HOSTILE, "${x}", "{%", "\x00"]))


@functools.cache
def structure(said: str) -> tuple[list[str], list[tuple[str, str]]]:
    reader = Reader(page(full(everywhere(said))))
    return reader.tags, [(tag, key) for tag, key, _ in reader.attributes]


@given(hostile, hostile)
def test_the_structure_is_the_same_whatever_the_names(name: str, two: str) -> None:
    assert structure(name + two + "x") == structure("plain")


def test_it_stays_small() -> None:
    many = Waits(at_s=[0.1 * n for n in range(2500)], wait_s=[0.001 * (n % 7) for n in range(2500)], step_s=[0.02] * 2500)
    assert len(page(full(Run(waits=many))).encode()) < 250_000


def test_a_command_is_copied_whole() -> None:
    command = 'pipefix convert "a  b" --out x && echo <done>'
    remedy = RemedyFigures(id="x", stage="decode", title="x", status="proposed", why="x", command=command)
    shown = re.findall(r"<code>(.*?)</code>", page(full(Run(remedies=[remedy]))))
    assert "".join(Reader(shown[-1]).words) == command


class TestSampleCosts:
    TAIL = Tail(p50_s=1e-3, p95_s=2e-3, p99_s=3e-3, max_s=4e-3, samples=6, edges_s=[5e-4, 1e-3, 2e-3, 4e-3], counts=[1, 3, 2])

    def test_a_column_for_each_class_with_its_words(self) -> None:
        made = page(full(Run(tail=self.TAIL)))
        assert "6 samples, 500 µs to 4.00 ms (logarithmic)" in made
        assert "1.00 ms to 2.00 ms: 3 samples" in made

    def test_older_files_have_none(self) -> None:
        assert "What samples cost" not in page(full(Run(tail=msgspec.structs.replace(self.TAIL, edges_s=[], counts=[]))))

    @given(st.lists(st.floats(1e-6, 1e3), min_size=2))
    def test_every_sample_is_in_a_class(self, costs: list[float]) -> None:
        edges, counts = sample_classes(costs)
        if len(set(costs)) > 1 and max(costs) > min(costs):
            assert sum(counts) == len(costs)
            assert len(edges) == len(counts) + 1
            assert edges == sorted(edges)
        else:
            assert (edges, counts) == ([], [])


class TestFix:
    def test_the_page_shows_both_pipelines_and_both_gains(self) -> None:
        made = page(DOCUMENTS["fix"])
        for words in ("Before and after", "Predicted and measured", "Kept", "Left alone, and why", "saved of each epoch"):
            assert words in made
        assert "slower &lt;b&gt;" in made and "slower <b>" not in made
        assert "What each kept step added" in made and "the consumer could take" in made
        assert len(re.findall(r"<span>storage: [^<]+, decode: [^<]+</span>", made)) == 2, "colours alone would name the stages"

    def test_the_page_of_nothing_done_is_whole(self) -> None:
        nothing = msgspec.structs.replace(FIXED, outcomes=[], total=None, same=None, plan=None)
        made = page(fix_report.report(nothing))
        assert "Nothing was changed." in made and "Before and after" not in made

    def test_a_dry_run_lists_what_would_be_tried(self) -> None:
        why = "it takes 5.00 GB of disk"
        ahead = [Refused(id="cache-source", title="cache it", stage="storage", why=why, predicted=Interval(3, 2, 4))]
        dry = msgspec.structs.replace(FIXED, dry=True, outcomes=[], ahead=ahead, total=None, stopped="a dry run")
        said = " ".join(" ".join(terminal.lines(fix_report.report(dry))).split())
        assert "1 step would be tried, in this order." in said
        assert "1. cache-source: Cache it. 3.00x (2.00-4.00) predicted" in said and "asked before, or --yes" in said


def test_a_program_is_told_at_the_terminal_by_its_loops() -> None:
    said = "\n".join(terminal.lines(program_report.report(PROGRAM)))
    assert re.search(r"training t\.py:1 +40 % \(30-50\) +5\.00 s +9 +20 %", said)
    assert "ended with exit code 0" in said


def test_a_plan_that_failed_is_not_told_as_one_whose_loader_was_not_made() -> None:
    failed = "The plan could not be put in place, and the loader is as the program has it: UnreadableFile: There is no cache."
    assert PROGRAM.program is not None
    for errors, told in (([failed], False), ([], True)):
        program = msgspec.structs.replace(PROGRAM.program, plan="pipefix.plan.toml", errors=errors)
        assert ("changed nothing: no DataLoader was made" in " ".join(program_report.notes(program))) is told


def test_a_program_that_was_too_short_to_be_probed_is_not_sent_there_again() -> None:
    limited = msgspec.structs.replace(
        PROGRAM, verdict=Verdict(kind="input-bound", stage=None, sentence="Input-bound.", confidence=None, rule="loop-waits")
    )

    def run(*errors: str) -> Run:
        return msgspec.structs.replace(limited, program=msgspec.structs.replace(PROGRAM.program, errors=list(errors)))

    def said(*errors: str) -> str:
        return " ".join(" ".join(terminal.lines(program_report.report(run(*errors)))).split())

    assert "pipefix run --probe t.py" in said("a process was killed")
    assert "pipefix run --probe t.py" in page(full(run("a process was killed")))
    assert "pipefix run --probe t.py" not in page(full(run("Not probed: it ended too soon.")))
    short = said("Not probed: it ended too soon.")
    assert "--probe" not in short
    assert short.count("Not probed: it ended too soon.") == 1
