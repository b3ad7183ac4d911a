from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipefix.api.tune import Tuned
from pipefix.cli.main import main
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.report import terminal, tune_report
from pipefix.report.tune_report import Certificate, TuneReport
from pipefix.tuning.limits import Usage
from pipefix.tuning.results import BatchSize, Trial
from pipefix.tuning.space import Settings
from pipefix.vocabulary.quantity import Interval
from tests.cli.conftest import Library

USED = Usage(memory_bytes=4.1e8, shm_bytes=2e7, files=60, cores=1.9)
REPORT = TuneReport(
    target="train.py:loader",
    before=Settings(0),
    after=Settings(6),
    sentence="Use 6 workers: 580 samples/s instead of 100 samples/s.",
    certificate=Certificate(
        fed=True, emulated=True, consumer="emulated: 25 ms a batch", allowed=0.01, stall=Interval(0.004, 0.002, 0.006),
        sentence="The emulated consumer (25 ms a batch) is fed: it waited 0.4 % (0.2 % to 0.6 %) of the time of 300 batches.",
    ),
    changes={"num_workers": 6, "persistent_workers": True},
    trials=[
        Trial(
            settings=Settings(0), status="run", why="the settings as they are",
            rate=Interval(100, 98, 102), stall=0.83, used=USED,
        ),
        Trial(settings=Settings(9), status="ended", reason="it took too much", used=USED),
        *(
            Trial(settings=Settings(n), status="refused", reason="it would take about 9 GB")
            for n in range(10, 17)
        ),
    ],
    enough="the limit is 8 trials",
    declined={"pin_memory": "no CUDA device is present"},
    notes=["Starting the workers took 200 ms."],
    batch_sizes=[
        BatchSize(batch_size=16, rate=Interval(90, 88, 92), batch_s=0.18, stall=0.1, used=USED),
        BatchSize(batch_size=32, reason="no room"),
    ],
    written="pipefix.plan.toml",
)  # fmt: skip


def text(report: TuneReport, **manner: Any) -> str:
    return "\n".join(terminal.lines(tune_report.report(report), **manner))


def test_the_whole_report() -> None:
    said = text(REPORT)
    assert "RESULT   Use 6 workers: 580 samples/s instead of 100 samples/s." in said
    assert "DataLoader(..., num_workers=6, persistent_workers=True)" in said
    assert "FED      The emulated consumer (25 ms a batch) is fed" in said
    assert "no workers" in said and "83 %" in said and "410 MB" in said and "the settings as they are" in said
    assert "ended: it took too much" in said
    assert said.count("it would take about 9 GB") == tune_report.REFUSALS
    assert "3 more, for the same kind of reason." in said
    assert "ENOUGH   No more was tried: the limit is 8 trials." in said
    assert "LEFT     pin_memory: no CUDA device is present." in said
    assert ["16", "90.0", "(88.0-92.0)", "180", "ms", "10", "%", "410", "MB"] in [line.split() for line in said.splitlines()]
    assert "no room" in said
    assert 'FastLoader(dataset, ..., plan="pipefix.plan.toml") reads it.' in said


def test_rates_of_different_moments_are_not_told_as_one_comparison() -> None:
    settings = [Settings(2), Settings(4), Settings(8)]
    trials = [Trial(settings[0], rate=Interval(9, 8, 10)), Trial(settings[1], rate=Interval(9, 8, 10), why="more", alone=True)]
    failed = Trial(settings[2], status="failed", reason="it failed: dataset[3] raised OSError")
    said = " ".join(text(msgspec.structs.replace(REPORT, trials=[*trials, failed])).split())
    assert "told at the pace that the first one had. What RESULT and FED say was measured at the end" in said
    assert "more (run by itself: the limits leave no room for both, and its rate is of another moment)" in said
    assert " failed: dataset[3] raised OSError" in said and "it failed" not in said
    assert "The sizes were run one after the other, not in turn" in said
    alone = " ".join(text(msgspec.structs.replace(REPORT, trials=trials[:1])).split())
    assert "measured at the end" in alone and "at the pace" not in alone


@pytest.fixture
def tune(library: Library) -> Library:
    library.answer = Tuned(LoaderChange(), PlanFile(), REPORT)
    return library


def test_what_is_asked(tune: Library, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tune.meanwhile = lambda: print("noise")
    plan = tmp_path / "plan.toml"
    words = "--stall 2% --step-ms 25 --budget 30 --trials 5 --max-memory 2GB --max-shm 64MB --max-files 500 --max-cores 3"
    words += " --max-vram 4GB"
    assert main(["tune", "train.py", *words.split(), "--keep-order", "--write", str(plan), "--batch-sizes", "-q"]) == 0
    (given, named) = tune.asked[0]
    assert given == ("train.py",)
    assert {key: value for key, value in named.items() if key != "progress"} == {
        "stall": 0.02, "step_ms": 25.0, "target_rate": None, "batch_size": None, "workers": None, "batch_sizes": True,
        "budget": 30.0,
        "trials": 5, "max_workers": None, "max_memory": 2_000_000_000, "max_shm": 64_000_000, "max_files": 500, "max_cores": 3.0,
        "max_vram": 4_000_000_000, "keep_order": True, "write": plan, "seed": 0,
    }  # fmt: skip
    told = capsys.readouterr()
    assert "noise" not in told.out
    assert "plan: pipefix.plan.toml" in told.err


def test_json_is_the_report_and_no_plan_is_written_where_none_is_wanted(tune: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "train.py", "--json", "--no-write", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "pipefix.tune/1"
    assert told["certificate"]["emulated"] is True
    assert tune.asked[0][1]["write"] is None


def test_an_interrupted_tuning_is_told_and_says_so(tune: Library, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted = msgspec.structs.replace(REPORT, partial=True, written=None)
    tune.answer = Tuned(LoaderChange(), PlanFile(), interrupted)
    assert main(["tune", "train.py", "--no-write", "-q"]) == 130
    told = capsys.readouterr()
    assert "RESULT" in told.out
    assert "no plan was written" in told.err


def test_a_file_that_is_no_plan_is_not_replaced(tune: Library, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert main(["tune", "train.py", "--write", str(tmp_path / "train.py")]) == 2
    assert not tune.asked
