"""Where windows go: lines of JSON, Prometheus by port and by file, TensorBoard; and what is read back is what was written."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipefix.vocabulary.errors import BadUsage, MissingExtra, UnreadableFile
from pipefix.watch import prometheus
from pipefix.watch import window as windows
from pipefix.watch.exporter import JsonLines
from pipefix.watch.tensorboard import Scalars
from pipefix.watch.watch import watch
from pipefix.watch.window import Notice, Spread, Window
from tests.watch.streams import Job

SPREAD = Spread(p50=0.01, p95=0.02, p99=0.03, max=0.04)


@pytest.fixture
def window() -> Window:
    first = next(iter(Job(1)))
    notice = Notice(kind="costlier", stage="decode", ratio=1.25, sentence="Decoding takes 25 % longer.")
    return msgspec.structs.replace(
        first, wait=SPREAD, step=SPREAD, busy=0.5, looking=0.001, labels={"rank": "0"}, notices=[notice], drifting=["decode"]
    )


def test_lines_come_back_as_they_were(tmp_path: Path, window: Window):
    path = tmp_path / "watch.jsonl"
    for _ in range(2):
        exporter = JsonLines(path)
        exporter.write(window)
        exporter.close()
    first, second = path.read_bytes().splitlines()
    assert windows.decode(first, origin="here") == windows.decode(second, origin="here") == window


def test_a_file_of_somebody_elses_is_left_alone(tmp_path: Path):
    path = tmp_path / "train.log"
    path.write_text("epoch 1\n")
    with pytest.raises(BadUsage, match="nothing will be added"):
        JsonLines(path)
    assert path.read_text() == "epoch 1\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"epoch 1", "is not JSON"),
        (b"[1]", '"format" is None'),
        (b'{"format": "pipefix.run/1"}', "'pipefix.run/1'"),
        (b'{"format": "pipefix.watch/2"}', "newer pipefix"),
        (b'{"format": "pipefix.watch/1", "time": "noon"}', "damaged"),
    ],
)
def test_lines_that_are_not_ours_are_refused(line: bytes, says: str):
    with pytest.raises(UnreadableFile, match=says):
        windows.decode(line, origin="watch.jsonl")


def test_what_later_versions_add_is_passed_over(window: Window):
    line = {**json.loads(windows.encode(window)), "format": "pipefix.watch/1.4", "mood": "good"}
    assert windows.decode(json.dumps(line).encode(), origin="here").number == window.number


def test_an_endpoint_tells_the_latest_window(window: Window):
    endpoint = prometheus.Endpoint("127.0.0.1:0")
    try:
        endpoint.write(window)
        endpoint.write(msgspec.structs.replace(window, number=2, notices=[]))
        with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
            text = answer.read().decode()
    finally:
        endpoint.close()
    assert 'pipefix_stage_seconds{rank="0",stage="decode"}' in text
    assert 'pipefix_drift_alarms_total{kind="costlier",rank="0",stage="decode"} 1.0' in text
    assert 'pipefix_samples_total{rank="0"} 76800.0' in text
    read = prometheus.parse(text, origin="here")
    assert read == msgspec.structs.replace(window, number=2, notices=[], batches=1200, samples=76800, starts=[])


def test_an_endpoint_before_the_first_window_says_nothing():
    with pytest.raises(UnreadableFile, match="or none yet"):
        prometheus.parse("# HELP other 1\nother 1\n", origin="http://here")


@pytest.mark.parametrize("address", ["port", "127.0.0.1:", 70000, "host:-1"])
def test_addresses_that_are_none(address: Any):
    with pytest.raises(BadUsage, match="is not a port"):
        prometheus.Endpoint(address)


def test_a_port_that_is_taken():
    endpoint = prometheus.Endpoint(0)
    try:
        port = endpoint.url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(BadUsage, match="cannot be opened"):
            watch([1], prometheus=int(port))
    finally:
        endpoint.close()


def test_a_textfile_is_whole(tmp_path: Path, window: Window):
    path = tmp_path / "pipefix.prom"
    exporter = prometheus.Textfile(path)
    exporter.write(window)
    exporter.close()
    assert prometheus.parse(path.read_text(), origin="here").stages == window.stages
    assert [found.name for found in tmp_path.iterdir()] == ["pipefix.prom"]
    with pytest.raises(BadUsage, match=r"end with \.prom"):
        prometheus.Textfile(tmp_path / "metrics.txt")


class Writer:
    """What a SummaryWriter takes."""

    def __init__(self) -> None:
        self.scalars: dict[str, tuple[float, int]] = {}
        self.texts: list[str] = []
        self.flushed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[name] = (value, step)

    def add_text(self, name: str, text: str, step: int) -> None:
        self.texts.append(text)

    def flush(self) -> None:
        self.flushed = True


def test_scalars_over_the_number_of_batches(window: Window):
    writer = Writer()
    exporter = Scalars(writer)
    exporter.write(window)
    exporter.write(window)
    exporter.close()
    assert writer.scalars["pipefix/stage/decode_s"] == (window.stages["decode"].s, 1200)
    assert writer.texts == ["Decoding takes 25 % longer."] * 2
    assert writer.flushed


def test_tensorboard_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra) as refused:
        watch([1], tensorboard=tmp_path / "runs")
    assert refused.value.advice == "Install it with: pip install 'pipefix[tensorboard]'"


def test_a_directory_gets_event_files(tmp_path: Path, window: Window):
    pytest.importorskip("tensorboard")
    exporter = Scalars(tmp_path / "runs")
    exporter.write(window)
    exporter.close()
    assert list((tmp_path / "runs").glob("events.*"))


def test_the_dashboard_asks_for_metrics_that_exist(root: Path, window: Window):
    dashboard = json.loads((root / "docs" / "grafana-dashboard.json").read_text())
    collector = prometheus.Collector()
    collector.take(window)
    told = {family.name for family in collector.collect()} | {f"{family.name}_total" for family in collector.collect()}
    asked = {
        word
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for word in target["expr"].replace("(", " ").replace("{", " ").replace("[", " ").replace(")", " ").split()
        if word.startswith("pipefix_")
    }
    assert asked
    assert asked <= told
    assert {"pipefix_stage_seconds", "pipefix_waiting_ratio", "pipefix_drift_ratio"} <= asked


def test_following_needs_no_torch():
    code = "import sys; import pipefix.watch.follow, pipefix.watch.prometheus; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
