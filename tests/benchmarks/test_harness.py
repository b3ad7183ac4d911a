"""The benchmarks' harness on made-up measurements: bars, turns, portions, pages."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.harness import command, overview
from benchmarks.harness import record as records
from benchmarks.harness.bar import Bar, at_least, at_most, conclusion, none_of
from benchmarks.harness.case import Case
from benchmarks.harness.page import page
from benchmarks.harness.record import Record, record_path


class TestBars:
    @pytest.mark.parametrize(
        ("bar", "state"),
        [
            (at_least("rate", 2.0, 2.0), "met"),
            (at_least("rate", 1.99, 2.0), "MISSED"),
            (at_most("seconds", 60.0, 60.0), "met"),
            (at_most("seconds", 60.01, 60.0), "MISSED"),
            (none_of("losses", 0), "met"),
            (none_of("losses", 1), "MISSED"),
            (at_least("rate", None, 2.0), "not measured"),
            (at_least("rate", float("nan"), 2.0), "MISSED"),
            (at_most("rate", float("nan"), 2.0), "MISSED"),
        ],
    )
    def test_a_figure_is_held_against_its_limit(self, bar: Bar, state: str) -> None:
        assert bar.state == state

    def test_a_figure_that_only_rounds_to_its_limit_is_missed(self) -> None:
        bar = at_least("right", 0.97996, 0.98, "{:.1%}")
        assert (bar.figure, bar.wanted, bar.state) == ("98.0%", "at least 98.0%", "MISSED")

    def test_the_conclusion_names_what_was_missed_and_what_was_not_measured(self) -> None:
        met, missed, absent = at_least("a", 2, 1), at_most("b", 3, 2), at_least("c", None, 1)
        assert conclusion([met]) == "The bar is met."
        assert conclusion([met, met]) == "All bars are met."
        assert conclusion([met, missed, absent]) == "1 of 3 bars met; missed: b (3.00, wanted at most 2.00); not measured: c."


class TestPortions:
    def test_a_portion_goes_on_where_the_last_one_stopped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 100.0
        monkeypatch.setattr(records.time, "monotonic", lambda: now)
        path = tmp_path / "kept.json"
        first = Record(path, portion_s=10)
        first.body["done"] = 3
        assert not first.over()
        now = 111.0
        assert first.over()
        first.save()
        second = Record(path, portion_s=10)
        assert second.body == {"done": 3}
        now = 115.0
        assert not second.over()
        assert second.spent_s == 15.0, "seconds of all portions"

    def test_portions_are_not_gone_on_with_when_the_code_has_changed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(records, "ROOT", tmp_path)
        code = tmp_path / "pipefix" / "caches" / "a.py"
        code.parent.mkdir(parents=True)
        code.write_text("1")
        before = record_path("x", {}, ["caches"])
        code.write_text("2")
        assert record_path("x", {}, ["caches"]) != before


def made_up(limit: float = 3) -> ModuleType:
    """Counts to ``--count``, one a portion."""
    module = ModuleType("benchmarks.cases.made_up", "Counts.")
    module.TITLE, module.ISSUE, module.MINUTES, module.QUICK = "Counting", "0", 1.0, {"count": 1}  # type: ignore[attr-defined]

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--count", type=int, default=3)

    def measure(options: argparse.Namespace, record: Record) -> bool:
        record.body["counted"] = record.body.get("counted", 0) + 1
        return bool(record.body["counted"] >= options.count)

    module.options, module.measure = options, measure  # type: ignore[attr-defined]
    module.bars = lambda body: [at_least("counted", body["counted"], limit, "{:.0f}")]  # type: ignore[attr-defined]
    module.table = lambda body: f"Counted to {body['counted']}."  # type: ignore[attr-defined]
    return module


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = made_up()
    monkeypatch.setitem(sys.modules, "benchmarks.cases.made_up", module)
    monkeypatch.setattr(command, "names", lambda: ["made_up"])
    monkeypatch.setattr(records, "WORK", tmp_path / "work")
    return module


class TestCommand:
    def run(self, tmp_path: Path, *words: str) -> int:
        return command.main(["made_up", "--out", str(tmp_path / "results"), *words])

    def test_results_are_written_when_a_run_is_whole(self, case: ModuleType, tmp_path: Path, capsys: Any) -> None:
        assert self.run(tmp_path) == 3
        assert not (tmp_path / "results").exists(), "a portion is no result"
        assert self.run(tmp_path) == 3
        assert self.run(tmp_path) == 0
        body = json.loads((tmp_path / "results" / "made_up.json").read_text())
        assert body["counted"] == 3
        assert body["command"] == "scripts/bench made_up"
        assert {"date", "machine", "took_s"} <= set(body)
        assert self.run(tmp_path) == 3, "the next run begins anew"

    def test_a_missed_bar_is_the_exit_code(self, case: ModuleType, tmp_path: Path, capsys: Any) -> None:
        assert self.run(tmp_path, "--count", "1") == 1
        text = (tmp_path / "results" / "made_up.md").read_text()
        assert text.split("\n\n")[1] == "**0 of 1 bars met; missed: counted (1, wanted at least 3).**"

    def test_again_forgets_what_earlier_portions_measured(self, case: ModuleType, tmp_path: Path) -> None:
        self.run(tmp_path)
        self.run(tmp_path)
        assert self.run(tmp_path, "--again") == 3

    def test_a_quick_run_judges_nothing_and_keeps_nothing(self, case: ModuleType, tmp_path: Path, capsys: Any) -> None:
        assert self.run(tmp_path, "--quick") == 0
        assert not (tmp_path / "results").exists()

    def test_an_unknown_name_is_refused(self, case: ModuleType, capsys: Any) -> None:
        with pytest.raises(SystemExit) as ended:
            command.main(["no-such-benchmark"])
        assert ended.value.code == 2
        assert "no benchmark of this name: no-such-benchmark" in capsys.readouterr().err


class TestPage:
    BODY = {"counted": 3, "date": "2026-01-01", "command": "scripts/bench made_up", "machine": {"cores": 2, "python": "3.11"}}

    def test_it_begins_with_its_conclusion(self) -> None:
        assert page(Case("made_up", made_up()), self.BODY) == (
            "# Counting\n\n**The bar is met.**\n\n"
            "| claim | bar | figure |  |\n|---|---|---|---|\n| counted | at least 3 | 3 | met |\n\n"
            "`scripts/bench made_up`, 2026-01-01, 2 cores, Python 3.11.\n\nCounted to 3.\n"
        )


class TestOverview:
    def test_every_claim_is_listed_with_its_figure_and_command(
        self, case: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.setattr(overview, "names", lambda: ["made_up"])
        monkeypatch.setattr(overview, "RESULTS", tmp_path)
        monkeypatch.setattr(overview, "ELSEWHERE", ())
        overview.main([])
        assert "made_up (issue 0): scripts/bench made_up, 1 min; never" in capsys.readouterr().out
        (tmp_path / "made_up.json").write_text(json.dumps(TestPage.BODY | {"counted": 2, "took_s": 180}))
        overview.main(["--missed"])
        told = capsys.readouterr().out
        assert "made_up (issue 0): scripts/bench made_up, 3 min; 2026-01-01" in told
        assert "  MISSED                2  (at least 3)  counted" in told
        assert told.endswith("1 bars: 0 met, 1 missed, 0 not measured.\n")

    def test_the_matrix_of_torch_versions_is_a_claim(self, tmp_path: Path) -> None:
        versions = [
            {"torch": "2.6.0", "passed": 9, "failed": 1, "seconds": 60},
            {"torch": "2.15.0", "passed": 10, "failed": 0, "seconds": 60},
        ]
        (tmp_path / "test_matrix.json").write_text(json.dumps({"date": "2026-01-01", "versions": versions}))
        assert [bar.state for bar in overview.matrix(tmp_path).bars] == ["MISSED", "MISSED", "met"]
