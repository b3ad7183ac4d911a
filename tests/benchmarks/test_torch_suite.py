"""torch's own tests, run with either loader: what is told apart."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import torch_suite
from benchmarks.harness.bar import Bar

RESULTS = """<testsuites><testsuite>
<testcase classname="t.A" name="same"/>
<testcase classname="t.A" name="slow"><failure message="no">text</failure></testcase>
<testcase classname="t.B" name="gpu"><skipped/></testcase>
<testcase classname="t.B" name="gone"><error/></testcase>
</testsuite></testsuites>"""


def test_each_test_ends_in_one_way() -> None:
    assert torch_suite.read(RESULTS) == {"t.A.same": "passed", "t.A.slow": "failure", "t.B.gpu": "skipped", "t.B.gone": "error"}


def test_only_what_ends_otherwise_is_held_against_it() -> None:
    theirs = torch_suite.read(RESULTS)
    body: dict[str, Any] = {"DataLoader": theirs, "FastLoader": {**theirs, "t.A.same": "failure"}, "torch": "2"}
    assert torch_suite.unlike(body) == [["t.A.same", "passed", "failure"]]
    assert bar_of(body).met is False
    body["FastLoader"] = dict(theirs)
    assert bar_of(body).met
    assert "| none |  |  |" in torch_suite.table(body)
    del body["FastLoader"]["t.B.gpu"]
    assert torch_suite.unlike(body) == [["t.B.gpu", "skipped", "not run"]]


def bar_of(body: dict[str, Any]) -> Bar:
    return torch_suite.bars(body)[1]
