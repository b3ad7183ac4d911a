"""What was done in a folder, and what a command that names no target makes of it. No torch, nobody's code."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest

from pipefix.api.history import target_here
from pipefix.cli.main import main
from pipefix.fixes.fix_log import Log, undo
from pipefix.plan import planfile
from pipefix.report import runfile
from pipefix.report.runfile import Run
from pipefix.vocabulary.errors import BadUsage

GAIN = {"value": 2.5, "low": 2.3, "high": 2.7}
TOTAL = {
    "gain": GAIN, "before": {"value": 100.0, "low": 99.0, "high": 101.0}, "after": {"value": 250.0, "low": 249.0, "high": 251.0},
    "pairs": 5,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, a_run: Run) -> Path:
    """A probe, then a fix that kept one step, refused one and wrote a plan."""
    settings = msgspec.structs.replace(a_run.settings, length=36_000, drawn=None)
    probed = msgspec.structs.replace(a_run, target="data.py:loader", created="2026-01-02T03:04:05+00:00", settings=settings)
    runfile.write(probed, tmp_path / "run.json")
    with Log(tmp_path) as log:
        log.write("started", target="data.py:loader")
        log.write("refused", id="augment-gpu", why="no CUDA device is present")
        log.write("begun", step=1, id="workers-2")
        log.write("kept", step=1, id="workers-2", measured=TOTAL)
        log.write("ended", why="the next gain is less than 5 %", measured=TOTAL)
    return tmp_path


def test_everything_is_told_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(folder), "--epochs", "90", "--price", "2.50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data.py:loader"
    assert lines[1].startswith("  2026-01-02 03:04  probe  input-bound (decode)")
    assert lines[2].endswith("fix    left augment-gpu alone: no CUDA device is present")
    assert lines[3].endswith("fix    kept workers-2, 2.50x (2.30-2.70) measured")
    # 36,000 samples at 100 and then at 250 a second: 216 s.
    assert " ".join(lines[-2:]).strip().endswith("saves 3.6 min an epoch, 5.4 h in 90 epochs, which is 13.50 at 2.50 an hour.")


def test_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(folder), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [deed["what"] for deed in listed["done"]] == ["probe", "fix", "fix"]
    assert listed["saved_of_an_epoch_s"] == pytest.approx(216)


def test_a_file_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    read: list[Path] = []
    whole = runfile.read
    monkeypatch.setattr(runfile, "read", lambda path: read.append(path) or whole(path))
    assert main(["log", str(folder)]) == 0
    assert read == [folder / "run.json"]


def test_an_epoch_is_one_of_the_target_that_was_fixed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run file whose name came last said how long an epoch is, whatever it was made of."""
    run = runfile.read(folder / "run.json")
    other = msgspec.structs.replace(run.settings, length=1_000_000)
    runfile.write(msgspec.structs.replace(run, target="other.py:loader", settings=other), folder / "z.json")
    assert main(["log", str(folder), "--epochs", "1"]) == 0
    assert "saves 3.6 min an epoch, 3.6 min in 1 epoch." in " ".join(capsys.readouterr().out.split())


def test_moments_are_told_by_one_clock(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Plans are dated by UTC, probes by the clock of their machine."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert main(["log", str(folder)]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "2026-01-02 04:04  probe" in capsys.readouterr().out


def test_a_probe_that_two_files_hold_is_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fix that kept nothing leaves one probe, as pipefix.before.json and, with what became of each step, pipefix.after.json."""
    run = runfile.read(folder / "run.json")
    runfile.write(msgspec.structs.replace(run, outcomes=[{"id": "workers-2", "outcome": "refused"}]), folder / "after.json")
    assert main(["log", str(folder)]) == 0
    assert capsys.readouterr().out.count("  probe  ") == 1


def test_a_step_whose_end_nobody_told_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After an out-of-memory kill the folder held a log and a cache, and "nothing was done here"."""
    for _ in range(2):
        with Log(tmp_path) as log:
            log.write("started", target="data.py:loader")
            log.write("begun", step=1, id="cache-sample", makes="pipefix-caches/sample")
    assert main(["log", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("began cache-sample, of which no end is told: it is at work, or was killed") == 2
    with Log(tmp_path) as log:
        log.write("dropped", step=1, id="cache-sample", why="it is slower")
    assert main(["log", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("began") == 1


def test_what_an_interrupted_fix_left_is_told_by_name_or_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It told "took step 0 back" of caches, and "took step 1 back" of a step whose name the log holds."""
    with Log(tmp_path) as log:
        log.write("started", target="data.py:loader")
        log.write("begun", step=1, id="workers-2")
    (tmp_path / "pipefix.plan.before-1.toml").touch()
    undo(tmp_path)
    (tmp_path / "pipefix-caches" / "source" / "parts").mkdir(parents=True)
    undo(tmp_path)
    assert main(["log", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "took workers-2 back: it was not in effect" in told and told.endswith("took back what an interrupted run had left\n")


def test_steps_that_were_taken_back_save_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It told for ever what the last fix had measured. What one step saves holds again when the second is taken back."""

    def saved() -> float | None:
        assert main(["log", str(folder), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["saved_of_an_epoch_s"]  # type: ignore[no-any-return]

    # A day later the machine is half as fast: what was measured side by side counts, not one day's figure against another's.
    slower = {**TOTAL, "before": {"value": 50.0, "low": 49.0, "high": 51.0}, "after": TOTAL["after"]}
    with Log(folder) as log:
        log.write("started", target="data.py:loader")
        log.write("kept", step=2, id="cache-source", measured=TOTAL)
        assert saved() is None, "interrupted: nobody has measured both steps"
        assert main(["log", str(folder), "--epochs", "90"]) == 0
        assert "What fix kept saves cannot be told: " in capsys.readouterr().out, "it was asked for"
        log.write("ended", measured=slower)
        assert saved() == pytest.approx(36_000 * (1 / 50 - 1 / 250))
        log.write("undone", step=2, id="cache-source")
        assert saved() == pytest.approx(216)
        log.write("undone", step=1, id="workers-2")
        assert saved() is None
        log.write("kept", step=1, id="workers-4")
        assert saved() is None, "another step of that number was never measured"


def test_that_it_saves_nothing_is_told_where_it_was_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(folder) as log:
        log.write("ended", measured={**TOTAL, "before": TOTAL["after"], "after": TOTAL["before"]})
    assert main(["log", str(folder), "--epochs", "90"]) == 0
    assert "What fix kept saves nothing of an epoch: " in capsys.readouterr().out


def test_a_run_file_is_found_among_many_files_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first by name were looked at: beside annotations it was said that nothing had been done."""
    for number in range(600):
        (folder / f"{number}.json").write_text("{}")
        os.utime(folder / f"{number}.json", (0, 0))
    assert main(["log", str(folder)]) == 0
    assert "probe  input-bound (decode)" in capsys.readouterr().out


def test_files_of_others_and_broken_ones_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "cut.json").write_text('{"format": "pipefix.run/1", "crea')
    (tmp_path / "pipefix.log.jsonl").write_bytes(b"\xff\xfe\n")
    (tmp_path / planfile.NAME).write_text("= no TOML")
    assert main(["log", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Nothing was done here")


DATASET = "from torch.utils.data import Dataset\nclass Photos(Dataset):\n    pass\n"


class TestTargetHere:
    def test_what_was_probed_last(self, folder: Path) -> None:
        for name in ("data.py", "other.py"):
            (folder / name).write_text(DATASET)
        assert target_here(folder)[0] == "data.py:loader"

    def test_a_file_that_is_gone_is_passed_over(self, folder: Path) -> None:
        (folder / "other.py").write_text(DATASET)
        assert target_here(folder)[0] == "other.py"

    def test_a_log_names_no_code_to_run(self, folder: Path) -> None:
        (folder / "data.py").write_text(DATASET)
        with open(folder / "pipefix.log.jsonl", "a") as file:
            file.write('{"at": "2099-01-01T00:00:00+00:00", "event": "kept", "id": "x", "target": "evil.py:loader"}\n')
        assert target_here(folder)[0] == "data.py:loader"

    def test_the_only_file_with_a_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "data.py").write_text(DATASET)
        (tmp_path / "model.py").write_text("import torch\n")
        (tmp_path / "broken.py").write_text("def (\n")
        target, why = target_here(tmp_path)
        assert (target, why) == ("data.py", "the only file here with a dataset or a loader")

    def test_several_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "one.py").write_text(DATASET)
        (tmp_path / "two.py").write_text("loader = torch.utils.data.DataLoader(x)")
        with pytest.raises(BadUsage) as caught:
            target_here(tmp_path)
        assert caught.value.advice == "Name one: one.py, two.py"

    def test_none(self, tmp_path: Path) -> None:
        with pytest.raises(BadUsage, match="no run file, plan or Python file with a dataset is here"):
            target_here(tmp_path)

    def test_convert_takes_it(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.chdir(folder)
        (folder / "data.py").write_text("loader = 1 / 0")
        assert main(["convert", "--to", "lmdb"]) == 3  # told as of any target
        assert "converting data.py:loader: the target of the last probe" in capsys.readouterr().err
