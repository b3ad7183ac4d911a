from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import pipefix
from pipefix.cli.main import main
from pipefix.report import runfile
from pipefix.report.runfile import Run, Throughput
from pipefix.vocabulary.quantity import Interval


@pytest.fixture
def two(a_run: Run, tmp_path: Path) -> tuple[str, str]:
    """The same pipeline before, at 1000 samples a second, and after, at 800."""
    paths = []
    for name, rate in (("before", 1000.0), ("after", 800.0)):
        delivered = Throughput(delivered=Interval(rate, rate * 0.99, rate * 1.01))
        runfile.write(msgspec.structs.replace(a_run, throughput=delivered), tmp_path / f"{name}.json")
        paths.append(str(tmp_path / f"{name}.json"))
    return paths[0], paths[1]


def test_json_holds_the_ratio_and_every_stage(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *two, "--json", "--max-regression", "5%"]) == 1
    told = capsys.readouterr()
    figures = json.loads(told.out)
    assert figures["ratio"]["value"] == pytest.approx(0.8)
    assert figures["settled"] is True
    assert figures["sentence"].startswith("Delivered 0.80x (0.79-0.81)")
    decode = next(stage for stage in figures["stages"] if stage["stage"] == "decode")
    assert decode["ratio"]["low"] < decode["ratio"]["value"] == 1.0 < decode["ratio"]["high"]
    assert decode["settled"] is False
    assert figures["before"]["delivered"]["value"] == 1000
    assert figures["regressed"] is True and figures["gate"].startswith("Regression: "), "every format but this one told it"
    assert "Regression: " in told.err


def test_a_folder_of_a_program_is_read_as_show_reads_it(
    two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``pipefix run --probe --out DIR`` leaves its run file there."""
    for path in two:
        Path(path).with_suffix("").mkdir()
        Path(path).rename(Path(path).with_suffix("") / "run.json")
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    told = capsys.readouterr()
    assert "RESULT   Delivered 0.80x (0.79-0.81): 1,000 -> 800 samples/s" in told.out and told.err == ""
    assert pipefix.load(tmp_path / "before").throughput is not None
    (tmp_path / "bare").mkdir()
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "bare")]) == 4
    assert "is no folder of pipefix run" in capsys.readouterr().err


def test_runs_that_are_not_alike_need_force(two: tuple[str, str], a_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = two
    other = msgspec.structs.replace(runfile.read(Path(after)), target="another.py")
    runfile.write(other, Path(after))
    assert main(["compare", before, after]) == 2
    assert "add --force" in capsys.readouterr().err
    assert main(["compare", before, after, "--force"]) == 0


class TestFormats:
    def test_markdown_has_the_gate_and_a_table(self, two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compare", *two, "--format", "markdown", "--max-regression", "5%"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "### pipefix compare"
        assert lines[2].startswith("**Delivered 0.80x (0.79-0.81): 1,000 -\\> 800 samples/s")
        assert lines[4].startswith("Regression: ")
        assert lines[6:8] == ["| stage | after/before | a sample | share |", "| --- | ---: | ---: | ---: |"]

    @pytest.mark.parametrize(("limit", "level"), [("5%", "error"), ("30%", "notice")])
    def test_github_is_told_how_bad_it_is(
        self, two: tuple[str, str], limit: str, level: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["compare", *two, "--format", "github", "--max-regression", limit])
        assert capsys.readouterr().out.startswith(f"::{level} title=pipefix compare::")

    @pytest.mark.parametrize(("limit", "failures"), [("5%", "1"), ("30%", "0")])
    def test_junit_holds_one_case(
        self, two: tuple[str, str], limit: str, failures: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compare", *two, "--format", "junit", "--max-regression", limit]) == int(failures)
        suite = ElementTree.fromstring(capsys.readouterr().out).find("testsuite")
        assert suite is not None
        assert (suite.get("failures"), len(suite.findall("testcase/failure"))) == (failures, int(failures))

    def test_names_neither_end_a_cell_nor_a_command(
        self, two: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Of a target that somebody else named."""
        for path in two:
            runfile.write(msgspec.structs.replace(runfile.read(Path(path)), target="a|b\n::error::<x>&.py"), Path(path))
        for format in ("markdown", "github", "junit"):
            assert main(["compare", *two, "--format", format]) == 0
            said = capsys.readouterr().out
            assert "<x>" not in said
            assert not [line for line in said.splitlines() if line.startswith("::error")]

    def test_a_page(self, two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compare", *two, "--html", str(tmp_path / "page.html"), "--max-regression", "5%"]) == 1
        assert f"report: {tmp_path / 'page.html'}" in capsys.readouterr().err
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        for words in ("Delivered 0.80x", "Regression: ", "after over before", "peak memory", "first batch"):
            assert words in page
