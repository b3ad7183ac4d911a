"""What `fix` did, as text and as a page. Its sentences are asked for in tests/cli/test_fix.py."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from pipefix.fixes.outcome import Refused
from pipefix.report import fix_text
from pipefix.report.fix_html import page
from pipefix.report.runfile import read
from pipefix.vocabulary.quantity import Interval
from tests.cli.test_fix import FIXED, GAIN
from tests.conftest import ROOT

RUN = read(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")
TRIED = Refused(id="workers-4", title="Workers", stage="ipc", why="slower <b>", predicted=Interval(1.2, 1.1, 1.3), measured=GAIN)


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_shows_both_pipelines_and_both_gains():
    fixed = msgspec.structs.replace(FIXED, outcomes=[*FIXED.outcomes, TRIED])
    made = page(fixed, RUN, RUN)
    parser = Balanced()
    parser.feed(made)
    assert not parser.open
    for words in (
        "Before and after",
        "Predicted and measured",
        "What was kept",
        "What was left alone, and why",
        "saved of each epoch",
    ):
        assert words in made
    assert "slower &lt;b&gt;" in made and "slower <b>" not in made
    assert "What each kept step added" in made and "the consumer could take" in made
    assert len(re.findall(r'class="stacked"', made)) == 2


def test_the_page_of_nothing_done_is_whole():
    nothing = msgspec.structs.replace(FIXED, outcomes=[], total=None, same=None, plan=None)
    made = page(nothing, None, None)
    assert "Nothing was changed." in made and "Before and after" not in made


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_lines_fit(width, unicode):
    fixed = msgspec.structs.replace(FIXED, no_longer_read=["pipefix-caches/source"], outcomes=[*FIXED.outcomes, TRIED])
    for line in fix_text.lines(fixed, page="out/x.html", width=width, unicode=unicode):
        assert len(line) <= width
        assert unicode or line.isascii()


def test_a_dry_run_lists_what_would_be_tried():
    ahead = [
        Refused(id="cache-source", title="Cache it", stage="storage", why="it takes 5.00 GB of disk", predicted=Interval(3, 2, 4))
    ]
    dry = msgspec.structs.replace(FIXED, dry=True, outcomes=[], ahead=ahead, total=None, stopped="a dry run: nothing was changed")
    said = " ".join(" ".join(fix_text.lines(dry)).split())
    assert "1 step would be tried, in this order." in said
    assert "cache-source: Cache it. 3.00x (2.00-4.00) predicted." in said and "asked before, or --yes" in said
