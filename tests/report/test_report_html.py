"""The page: well-formed, self-contained, safe from what names contain, and complete."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipefix.report import wording
from pipefix.report.compare import compare
from pipefix.report.compare_html import page as compare_page
from pipefix.report.html import page
from pipefix.report.markup import Markup, el, join, name, text
from pipefix.report.plots import Scale, spanning
from pipefix.report.run_figures import sample_classes
from pipefix.report.runfile import (
    Arm,
    Caveat,
    Finding,
    OpFigures,
    RemedyFigures,
    Run,
    StageFigures,
    Tail,
    Throughput,
    VerdictFigures,
    Waits,
    decode,
    read,
)
from pipefix.vocabulary.quantity import Interval

RUNS = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "runs").glob("*.json"))
VOID = {"meta", "br", "hr"}
WORST = Path(__file__).resolve().parents[2] / "fixtures" / "runs" / "strange-names.json"


class Reader(HTMLParser):
    """Notes every tag and attribute, and that each one opened is closed in turn."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []

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


def reading(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    assert reader.open == []
    return reader


def words(markup: str) -> str:
    return " ".join("".join(reading(markup).words).split())


@pytest.fixture(params=RUNS, ids=lambda path: path.stem)
def run(request: pytest.FixtureRequest) -> Run:
    return read(request.param)


def test_it_is_well_formed(run: Run) -> None:
    made = page(run)
    assert made.startswith("<!DOCTYPE html>\n<html")
    reader = reading(made)
    ids = [value for _, key, value in reader.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert made.encode("utf-8")


def test_it_asks_the_network_for_nothing(run: Run) -> None:
    reader = reading(page(run))
    fetching = {"src", "srcset", "data", "action", "poster", "background", "formaction", "xlink:href", "ping"}
    assert [found for found in reader.attributes if found[1] in fetching] == []
    assert all(value.startswith("#") for _, key, value in reader.attributes if key == "href")
    assert not set(reader.tags) & {"link", "img", "iframe", "object", "embed", "base", "use", "image", "form", "video", "audio"}
    styles, scripts = "".join(reader.blocks["style"]), reader.blocks["script"][-1]
    assert "url(" not in styles
    assert "@import" not in styles
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon|https?:", scripts)


def test_its_policy_allows_its_own_style_and_script_and_nothing_else(run: Run) -> None:
    reader = reading(page(run))
    policy = next(value for tag, key, value in reader.attributes if tag == "meta" and key == "content" and "default-src" in value)
    digests = [_digest("".join(reader.blocks["style"])), _digest(reader.blocks["script"][-1])]
    assert policy == (
        f"default-src 'none'; style-src '{digests[0]}'; script-src '{digests[1]}'; base-uri 'none'; form-action 'none'"
    )
    assert not any(key == "style" or key.startswith("on") for _, key, _ in reader.attributes), "the policy would refuse it"


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def test_it_holds_its_run_file(run: Run) -> None:
    blocks = reading(page(run)).blocks["script"]
    assert len(blocks) == 2
    held = decode(blocks[0].encode(), origin="the page")
    assert json.loads(blocks[0])["format"] == "pipefix.run/1"
    assert repr(held) == repr(run)


def test_every_figure_is_on_it(run: Run) -> None:
    said = words(page(run))
    expected = []
    for stage in run.stages:
        expected += [wording.seconds_between(stage.wall_s), wording.size(stage.bytes), wording.times_between(stage.marginal_gain)]
        expected += [wording.seconds(op.wall_s) for op in stage.ops] + [stage.declined or stage.stage]
    for remedy in run.remedies:
        expected += [wording.times_between(remedy.speedup), remedy.why, remedy.title, remedy.command or remedy.title]
    for finding in run.audit:
        expected += [finding.severity, finding.found, finding.advice]
    expected += [caveat.sentence for caveat in run.caveats]
    expected += [wording.number(wording.median(arm.rates)) for arm in run.arms]
    if run.throughput is not None:
        expected.append(wording.rate(run.throughput.delivered.value, run.throughput.unit))
    missing = [figure for figure in expected if figure != wording.UNKNOWN and " ".join(figure.split()) not in said]
    assert missing == []


def test_nothing_in_a_name_becomes_markup() -> None:
    made = page(read(WORST))
    reader = reading(made)
    assert reader.tags.count("script") == 2
    assert "img" not in reader.tags
    assert "<script>alert" not in made
    assert "<script>alert" in words(made), "shown as the text it is"
    assert "\x1b" not in made
    assert "\u202e" not in "".join(reader.words)


def everywhere(said: str) -> Run:
    """The same text wherever text can come from outside."""
    half = Interval(2.0, 1.5, 2.5)
    ops = [OpFigures(name=said, wall_s=1.0, opaque=said)]
    return Run(
        pipefix=said,
        created=said,
        target=said,
        machine={"cpu_model": said, "gpus": [{"name": said}], "note": said},
        consumer=said,
        verdict=VerdictFigures(kind=said, stage=said, sentence=said, confidence=0.5, rule=said),
        throughput=Throughput(delivered=half, unit=said),
        stages=[
            StageFigures(stage=said, wall_s=half, share=0.5, marginal_gain=half, ops=ops),
            StageFigures(stage=said, declined=said),
        ],
        cold={"declined": said},
        arms=[Arm(name=said, replaces=[said], rates=[1.0]), Arm(name=said, declined=said)],
        remedies=[
            RemedyFigures(id=said, stage=said, title=said, status="proposed", why=said, speedup=half, command="one two"),
            RemedyFigures(id=said, stage=said, title=said, status="declined", why=said),
        ],
        audit=[Finding(id=said, severity=said, found=said, advice=said, rule=said)],
        caveats=[Caveat(id=said, sentence=said)],
        waits=Waits(at_s=[0.0], wait_s=[1.0], step_s=[1.0]),
    )


hostile = st.one_of(
    st.text(min_size=1, max_size=30),
    st.sampled_from(
        ["</script><script>x", '"><b onclick=x>', "'-->", "<!--", "</title>", "&lt;", "]]>", "\udcff", "\u2028", "${x}", "\x00"]
    ),
)


@functools.cache
def structure(said: str) -> tuple[list[str], list[tuple[str, str]]]:
    reader = reading(page(everywhere(said)))
    return reader.tags, [(tag, key) for tag, key, _ in reader.attributes]


@given(hostile, hostile)
def test_the_structure_is_the_same_whatever_the_names(one: str, two: str) -> None:
    assert structure(one + two) == structure("plain")


def test_it_stays_small() -> None:
    many = Waits(at_s=[0.1 * n for n in range(2500)], wait_s=[0.001 * (n % 7) for n in range(2500)], step_s=[0.02] * 2500)
    assert len(page(Run(waits=many)).encode()) < 250_000


def test_a_command_is_copied_whole() -> None:
    command = 'pipefix convert "a  b" --out x && echo <done>'
    remedy = RemedyFigures(id="x", stage="decode", title="x", status="proposed", why="x", command=command)
    shown = re.findall(r"<code>(.*?)</code>", page(Run(remedies=[remedy])))
    assert "".join(reading(shown[-1]).words) == command


def test_markup_escapes_all_but_markup() -> None:
    assert (
        el("p", "a < b", Markup("<b>c</b>"), None, class_="x", hidden=True, title='"')
        == '<p class="x" hidden title="&quot;">a &lt; b<b>c</b></p>'
    )
    assert join(["<", ["&", Markup("<i></i>")]]) == "&lt;&amp;<i></i>"
    assert name("<x>") == "<bdi>&lt;x&gt;</bdi>"
    assert text("a\x00b\u202ec") == r"a\x00b\u202ec"


@pytest.mark.parametrize(
    ("values", "base", "ticks"),
    [
        ([0.61], 0.0, [0.0, 0.2, 0.4, 0.6, 0.8]),
        ([1.02, 2.18, 0.99], 1.0, [1.0, 1.5, 2.0, 2.5]),
        ([100.0, 90_000.0], 0.0, [100, 1_000, 10_000, 100_000]),
        ([], 0.0, [0.0, 0.5, 1.0]),
        ([float("nan"), float("inf")], 1.0, [1.0, 1.5, 2.0]),
    ],
)
def test_axes_have_few_round_ticks_and_hold_their_values(values: list[float], base: float, ticks: list[float]) -> None:
    scale = spanning(values, base=base)
    assert 2 <= len(scale.ticks) <= 7
    assert [round(tick, 6) for tick in scale.ticks][: len(ticks)] == ticks[: len(scale.ticks)]
    assert all(0.0 <= scale.at(value) <= 100.0 for value in values if value == value)
    assert scale.at(scale.high) == 100.0


def test_a_logarithmic_axis_keeps_equal_ratios_equal() -> None:
    scale = Scale(1.0, 100.0, True)
    assert scale.at(10.0) == pytest.approx(50.0)
    assert scale.at(0.0) == 0.0


class TestSampleCosts:
    TAIL = Tail(p50_s=1e-3, p95_s=2e-3, p99_s=3e-3, max_s=4e-3, samples=6, edges_s=[5e-4, 1e-3, 2e-3, 4e-3], counts=[1, 3, 2])

    def test_a_column_for_each_class_with_its_words(self) -> None:
        made = page(Run(tail=self.TAIL))
        assert "What samples cost: 6 samples, 500 µs to 4.00 ms (logarithmic)" in made
        assert "1.00 ms to 2.00 ms: 3 samples" in made

    def test_older_files_have_none(self) -> None:
        assert "What samples cost" not in page(Run(tail=replace(self.TAIL, edges_s=[], counts=[])))

    @given(st.lists(st.floats(1e-6, 1e3), min_size=2))
    def test_every_sample_is_in_a_class(self, costs: list[float]) -> None:
        edges, counts = sample_classes(costs)
        if len(set(costs)) > 1 and max(costs) > min(costs):
            assert sum(counts) == len(costs)
            assert len(edges) == len(counts) + 1
            assert edges == sorted(edges)
        else:
            assert (edges, counts) == ([], [])


def test_every_kind_of_page_can_be_printed_and_has_a_theme() -> None:
    run = read(RUNS[0].parent / "decode-bound-workers.json")
    for made in (page(run), compare_page(compare(run, run))):
        found = {value for _, key, value in reading(made).attributes if key == "id"}
        assert {"theme", "print"} <= found
