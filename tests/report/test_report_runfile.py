"""The run file: read back as it was written, refused with one sentence where it cannot be, never left torn."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from pipefix.report.runfile import Arm, OpCost, Run, StageFigures, Verdict, decode, encode, read, write
from pipefix.vocabulary import versioned
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import Interval

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
REFUSED = {
    "not-json": "{path} is not a pipefix run file: it is not JSON (JSON is malformed: invalid character (byte 0)).",
    "truncated": "{path} is not a pipefix run file: it is not JSON (Input data was truncated).",
    "empty": "{path} is empty: it is not a pipefix run file.",
    "not-a-run": "{path} is not a pipefix run file: its \"format\" is None, not 'pipefix.run/1'.",
    "a-list": "{path} is not a pipefix run file: its \"format\" is None, not 'pipefix.run/1'.",
    "newer-major": (
        "{path} was written by a newer pipefix: its format is 'pipefix.run/2', and this one reads up to 'pipefix.run/1'."
    ),
    "missing-field": "{path} is damaged: Object missing required field `stage` - at `$.verdict`.",
}


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_read_is_written_and_read_again(path: Path, tmp_path: Path) -> None:
    run = read(path)
    write(run, tmp_path / "again.json")
    assert repr(read(tmp_path / "again.json")) == repr(run)


def test_the_contract_s_field_names_are_there() -> None:
    written = json.loads(encode(read(RUNS / "decode-bound-workers.json")))
    assert list(written)[:6] == ["format", "pipefix", "created", "target", "partial", "machine"]
    assert set(written["verdict"]) >= {"kind", "stage", "sentence", "confidence"}
    assert set(written["throughput"]) == {"delivered", "demand", "unit"}
    assert set(written["stages"][0]) >= {"stage", "wall_s", "cpu_s", "share", "bytes", "marginal_gain", "ops", "declined"}
    assert set(written["stages"][0]["wall_s"]) == {"value", "low", "high"}
    assert set(written["arms"][0]) >= {"name", "replaces", "rates"}
    assert set(written["remedies"][0]) >= {"id", "stage", "status", "why", "speedup", "cost", "command"}
    assert set(written["remedies"][0]["cost"]) == {"disk_bytes", "seconds"}
    assert set(written["audit"][0]) >= {"id", "severity", "found", "advice"}
    assert set(written["caveats"][0]) == {"id", "sentence"}


def test_the_oldest_run_file_is_still_read() -> None:
    assert read(RUNS / "minimal.json") == Run()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_damaged_file_is_refused_in_one_sentence(name: str) -> None:
    path = RUNS / "damaged" / f"{name}.json"
    with pytest.raises(UnreadableFile) as caught:
        read(path)
    assert str(caught.value) == REFUSED[name].format(path=path)
    assert caught.value.exit_code == 4


def test_a_figure_of_the_wrong_kind_is_named_with_its_place() -> None:
    with pytest.raises(UnreadableFile, match=r"wrong-types\.json is damaged: .*got `str` - at `\$\.stages\[.+\]\.wall_s`\.$"):
        read(RUNS / "damaged" / "wrong-types.json")


@pytest.mark.parametrize("name", ["pipefix.run/1.7", "pipefix.run/0"])
def test_minor_versions_and_older_ones_are_read(name: str) -> None:
    assert decode(json.dumps({"format": name, "target": "x"}).encode(), origin="it").target == "x"


@pytest.mark.parametrize("version", ["", "x", "-1", "²", "9" * 10_000], ids=lambda version: version[:9])
def test_a_version_that_is_no_number_is_refused(version: str) -> None:
    with pytest.raises(UnreadableFile, match="newer pipefix") as refused:
        decode(json.dumps({"format": f"pipefix.run/{version}"}).encode(), origin="it")
    assert len(str(refused.value)) < 400


def test_a_file_nested_without_end_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not a pipefix run file"):
        decode(b"[" * 200_000, origin="it")


def test_missing_and_forbidden_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"The run file .*gone\.json could not be read: No such file or directory\."):
        read(tmp_path / "gone.json")
    with pytest.raises(UnreadableFile, match=r"could not be read: Is a directory\."):
        read(tmp_path)


def test_figures_without_an_end_stay_so() -> None:
    nan, inf = float("nan"), float("inf")
    stage = StageFigures(stage="decode", wall_s=Interval(1.0, -inf, inf), share=nan, ops=[OpCost(name="x", wall_s=nan)])
    verdict = Verdict(kind="balanced", stage=None, sentence="", confidence=nan)
    run = Run(stages=[stage], arms=[Arm(name="real", rates=[1.0, nan, inf])], verdict=verdict)
    assert "NaN" not in encode(run)
    again = decode(encode(run), origin="it")
    assert again.stages[0].wall_s == Interval(1.0, -inf, inf)
    assert again.stages[0].share is None
    assert repr(again.stages[0].ops[0].wall_s) == "nan"
    assert repr(again.arms[0].rates) == "[1.0, nan, nan]"
    assert again.verdict is not None
    assert repr(again.verdict.confidence) == "nan"


def test_a_file_name_that_is_not_utf_8_can_be_written() -> None:
    run = Run(target="donn\udce9es.py", machine={"where\udcff": ["\udcff", 1]})
    again = decode(encode(run), origin="it")
    assert again.target == r"donn\udce9es.py"
    assert again.machine == {r"where\udcff": [r"\udcff", 1]}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_full_is_no_traceback() -> None:
    with pytest.raises(UnreadableFile, match=r"The run file /dev/full could not be written: No space left on device\.") as caught:
        write(Run(), Path("/dev/full"))
    assert caught.value.advice == "Choose a place with room that you may write to, such as DIR/full"
    assert not Path("/dev/full").is_file()


def test_a_pipe_is_written_straight(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(Run(target="through"), pipe)
    reader.join()
    assert decode(got[0], origin="the pipe").target == "through"


def test_rights_are_those_of_any_new_file_and_survive_a_rewrite(tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "run.json"
    plain.write_bytes(b"")
    write(Run(), ours)
    assert ours.stat().st_mode == plain.stat().st_mode
    ours.chmod(0o640)
    write(Run(), ours)
    assert ours.stat().st_mode & 0o777 == 0o640


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "runs" / "run.json", tmp_path / "latest.json"
    target.parent.mkdir()
    link.symlink_to(target)
    write(Run(target="x"), link)
    assert link.is_symlink()
    assert read(target).target == "x"


@pytest.mark.parametrize("name", ["a\0b", "missing/run.json", "n" * 300])
def test_a_place_that_cannot_be_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableFile, match=r"^The page .* could not be written: "):
        versioned.write(b"x", tmp_path / name, what="page")
    assert os.listdir(tmp_path) == []


def test_unknown_fields_of_a_later_minor_version_are_passed_over() -> None:
    later = {
        "format": "pipefix.run/1",
        "later": 1,
        "stages": [{"stage": "decode", "later": [None], "wall_s": {"value": 1, "low": 1, "high": 1, "n": 3}}],
    }
    assert decode(msgspec.json.encode(later), origin="it").stages[0].wall_s == Interval(1, 1, 1)
