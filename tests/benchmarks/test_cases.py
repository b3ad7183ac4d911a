"""Every benchmark that there is: it has what the harness needs, and its kept results can be read, judged and shown."""

from __future__ import annotations

import pytest

from benchmarks.harness.bar import Bar
from benchmarks.harness.case import load, names
from benchmarks.harness.command import parser_of
from benchmarks.harness.page import page
from benchmarks.harness.record import RESULTS, result

BESIDE = {"test_matrix", "gpu"}
"""Results that no case writes."""


@pytest.mark.parametrize("name", names())
def test_a_case_has_what_the_harness_needs(name: str) -> None:
    case = load(name)
    assert case.title
    assert case.about.endswith((".", "?"))
    assert case.issue[0].isdigit()
    assert case.minutes > 0
    options = vars(parser_of(case).parse_args([name]))
    assert set(case.quick) <= set(options), "a quick run sets options that there are"


@pytest.mark.parametrize("name", names())
def test_kept_results_are_read_judged_and_shown(name: str) -> None:
    body = result(name)
    if body is None:
        pytest.skip("it has no results yet")
    case = load(name)
    bars = case.bars(body)
    assert all(isinstance(bar, Bar) and bar.met is not None for bar in bars)
    assert len({bar.claim for bar in bars}) == len(bars)
    text = page(case, body)
    assert text.startswith(f"# {case.title}\n\n**")
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == text, f"scripts/bench {name} --pages writes it anew"


def test_there_is_a_case_for_every_result() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} <= {*names(), *BESIDE}
