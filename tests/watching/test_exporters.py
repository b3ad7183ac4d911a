"""Where windows go: lines of JSON, Prometheus by port and by file, TensorBoard; and what is read back is what was written."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from pipefix.vocabulary.errors import BadUsage, MissingExtra, UnreadableFile
from pipefix.watching import drift, prometheus, sentences
from pipefix.watching import window as windows
from pipefix.watching.exporter import JsonLines, Scalars
from pipefix.watching.watch import watch
from pipefix.watching.window import Notice, Spread, Window
from tests.watching.streams import Job

SPREAD = Spread(p50=0.01, p95=0.02, p99=0.03, max=0.04)
MACHINE = {
    "cpu": 0.8, "memory": 0.4, "gpu_utilisation": 0.62, "gpu_memory_bytes": 8e9, "gpu_temperature_c": 61.0, "gpu_power_w": 210.0,
    "gpu_throttled": 0.05,
}  # fmt: skip


@pytest.fixture
def window() -> Window:
    first = next(iter(Job(1)))
    notice = Notice(kind="costlier", stage="decode", ratio=1.25, sentence="Decoding takes 25 % longer.")
    return msgspec.structs.replace(
        first, wait=SPREAD, step=SPREAD, busy=0.5, looking=0.001, labels={"rank": "0"}, notices=[notice], drifting=["decode"],
        machine=MACHINE,
    )  # fmt: skip


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


def test_an_endpoint_tells_the_latest_window(endpoint: prometheus.Endpoint, window: Window):
    endpoint.write(window)
    endpoint.write(msgspec.structs.replace(window, number=2, notices=[]))
    text, latest = (scraped(endpoint, path).decode() for path in ("/metrics", "/window"))
    assert 'pipefix_stage_seconds{rank="0",stage="decode"}' in text
    assert 'pipefix_drift_alarms_total{kind="costlier",rank="0",stage="decode"} 1.0' in text
    assert 'pipefix_samples_total{rank="0"} 76800.0' in text
    assert "pipefix_gpu_temperature_celsius" in text
    assert windows.decode(latest.encode(), origin="here") == msgspec.structs.replace(window, number=2, notices=[])


def test_larger_samples_and_slower_starts_drift_by_their_own_ratio(window: Window):
    """Theirs was 1, so that no rule could alert of them, and storage had that of the samples."""
    told = [("slower", "storage", 1.25), ("larger", "storage", 1.5), ("restarts", None, 2.0), ("machine", None, 1.75)]
    notices = [Notice(kind=kind, stage=stage, ratio=ratio) for kind, stage, ratio in told]
    drifting = {"storage": 1.25, drift.BYTES: 1.5, drift.STARTS: 2.0, drift.MACHINE: 1.75}
    collector = prometheus.Collector()
    collector.write(msgspec.structs.replace(window, labels={}, notices=notices, drifting=list(drifting)))
    text = generate_latest(collector.registry).decode()
    for name, ratio in drifting.items():
        assert f'pipefix_drift_ratio{{stage="{name}"}} {ratio}\n' in text


def test_labels_of_any_name_are_told(tmp_path: Path, window: Window):
    """One with a dash made a file that the node exporter refuses, and one called `stage` was lost beside those of the stages."""
    file = tmp_path / "watch.prom"
    prometheus.Textfile(file).write(msgspec.structs.replace(window, labels={"my-job": "a", "stage": "train"}))
    text = file.read_text()
    assert 'pipefix_stage_seconds{exported_stage="train",my_job="a",stage="decode"}' in text
    assert "my-job" not in text


@pytest.mark.parametrize("address", ["port", "127.0.0.1:", 70000, "host:-1"])
def test_addresses_that_are_none(address: Any):
    with pytest.raises(BadUsage, match="is not a port"):
        prometheus.Endpoint(address)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Whoever asks here may be held up by a busy machine; ``patience(0.1, 0.1)``: but not the first two who come from now on."""
    monkeypatch.setattr(prometheus, "PATIENCE", 60.0)
    accept = prometheus._Server.get_request

    def short(*seconds: float) -> None:
        left = iter(seconds)

        def get_request(server: prometheus._Server) -> Any:
            accepted = accept(server)
            monkeypatch.setattr(prometheus, "PATIENCE", next(left, 60.0))
            return accepted

        monkeypatch.setattr(prometheus._Server, "get_request", get_request)

    return short


@pytest.fixture
def endpoint() -> Iterator[prometheus.Endpoint]:
    endpoint = prometheus.Endpoint("127.0.0.1:0")
    yield endpoint
    endpoint.close()


def port_of(endpoint: prometheus.Endpoint) -> int:
    return int(endpoint.url.rpartition(":")[2].partition("/")[0])


def scraped(endpoint: prometheus.Endpoint, path: str = "/metrics") -> bytes:
    with urllib.request.urlopen(endpoint.url.replace("/metrics", path)) as answer:
        return bytes(answer.read())


def test_a_port_that_is_taken_is_told_and_training_goes_on(
    endpoint: prometheus.Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with watch([1, 2], prometheus=port_of(endpoint), jsonl=tmp_path / "watch.jsonl") as watched:
        assert list(watched) == [1, 2]
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"127.0.0.1:{port_of(endpoint)} cannot be opened: Address already in use" in message
    assert "prometheus=9401" in message
    assert json.loads((tmp_path / "watch.jsonl").read_text())["batches"] == 2


def test_a_port_is_free_again_while_workers_live_on():
    """They are forked with its socket: a second watch of a loader with persistent workers was told that the port is in use."""
    first = prometheus.Endpoint("127.0.0.1:0")
    with first._server.socket.dup():
        first.close()
        prometheus.Endpoint(f"127.0.0.1:{port_of(first)}").close()


def test_a_file_that_cannot_be_written_is_told_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with watch([1, 2], jsonl=tmp_path / "absent" / "watch.jsonl") as watched:
        assert list(watched) == [1, 2]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "could not be opened for writing: No such file or directory" in message


def test_an_exporter_that_fails_is_told_once_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    class Failing(Writer):
        def add_scalar(self, name: str, value: float, step: int) -> None:
            raise ValueError("a writer that was closed")

    with watch([1, 2], tensorboard=Failing(), jsonl=tmp_path / "watch.jsonl", every=60) as watched:
        watched.pulse()
        assert list(watched) == [1, 2]
        watched.pulse()
    assert caplog.text.count("a writer that was closed") == 1
    assert len((tmp_path / "watch.jsonl").read_text().splitlines()) == 3


def test_a_disk_that_was_full_for_a_while_costs_windows_and_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The second window is written by half, the third not at all, the fourth whole."""
    path, write, room = tmp_path / "watch.jsonl", os.write, iter([10_000, 40, 0, 10_000, 10_000])

    def writes(file: int, data: bytes) -> int:
        part = data[: next(room)]
        if not part:
            raise OSError(28, "No space left on device")
        return write(file, part)

    with watch([1, 2], jsonl=path, every=60) as watched:
        monkeypatch.setattr("pipefix.watching.exporter.os.write", writes)
        for _ in range(4):
            watched.pulse()
        monkeypatch.undo()
    whole = [line for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert [windows.decode(line, origin="here").number for line in whole] == [1, 4, 5]
    assert caplog.text.count("No space left on device") == 1


def test_a_line_that_a_killed_job_left_without_end_stays_one(tmp_path: Path, window: Window):
    path = tmp_path / "watch.jsonl"
    path.write_bytes(windows.encode(window) + windows.encode(window)[:30])
    exporter = JsonLines(path)
    exporter.write(window)
    exporter.close()
    first, _, last = path.read_bytes().splitlines()
    assert windows.decode(first, origin="here") == windows.decode(last, origin="here") == window


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_was_moved_away_is_made_anew(removed: bool, tmp_path: Path, window: Window, monkeypatch: pytest.MonkeyPatch):
    """Also where the program has changed its directory meanwhile, as Hydra does."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    exporter = JsonLines("watch.jsonl")
    exporter.write(window)
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = tmp_path / "watch.jsonl"
    path.unlink() if removed else path.rename(tmp_path / "old.jsonl")
    exporter.write(window)
    exporter.write(window)
    exporter.close()
    assert len(path.read_bytes().splitlines()) == 2
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_watches_of_one_name_do_not_mix_their_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture, window: Window):
    path = tmp_path / "watch.jsonl"
    code = (
        "import sys; from pipefix.watching.exporter import JsonLines\n"
        "held = [JsonLines(sys.argv[1]) for _ in range(2)]; print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout is not None
    job.stdout.readline()
    second = JsonLines(path)
    third = JsonLines(path)
    job.communicate(b"")
    first = JsonLines(path)
    names = [exporter.path.name for exporter in (first, second, third)]
    for exporter in (first, second, third):
        exporter.close()
    assert names == ["watch.jsonl", "watch.3.jsonl", "watch.4.jsonl"]
    assert caplog.text.count("another watch writes to") == 2
    again = JsonLines(path)
    assert again.path == path
    again.close()


def threads_at_work() -> int:
    """Without timers that were cancelled: on a busy machine it takes them a while to be gone."""
    return sum(not (isinstance(thread, threading.Timer) and thread.finished.is_set()) for thread in threading.enumerate())


def test_idle_connections_take_no_threads_and_are_ended(
    endpoint: prometheus.Endpoint, window: Window, patience: Callable[..., None]
):
    patience(*[0.1] * 5)
    endpoint.write(window)
    threads = threads_at_work()
    with ExitStack() as idle:
        for _ in range(5):
            idle.enter_context(socket.create_connection(("127.0.0.1", port_of(endpoint))))
        assert b"pipefix_window" in scraped(endpoint)
        assert threads_at_work() <= threads + 1


def test_a_request_that_dribbles_is_ended(endpoint: prometheus.Endpoint, window: Window, patience: Callable[..., None]):
    patience(0.3)
    endpoint.write(window)
    with socket.create_connection(("127.0.0.1", port_of(endpoint))) as slow:
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"reset|[Bb]roken|abort"):
            while time.monotonic() < begun + 60:
                slow.sendall(b"G")
                time.sleep(0.02)
    assert b"pipefix_window" in scraped(endpoint)


BESIEGED = """
import resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from pipefix.watching.watch import watch

with watch([1, 2, 3], prometheus=0, every=60) as watched:
    print(watched._exporters[0].url, flush=True)
    sys.stdin.readline()
    files = [tempfile.TemporaryFile() for _ in range(20)]
    print(list(watched), flush=True)
"""


def test_a_thousand_idle_connections_leave_training_its_files(preloaded: str):
    with subprocess.Popen(
        [*preloaded.split(), "-c", BESIEGED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        port = int(job.stdout.readline().rpartition(":")[2].partition("/")[0])
        idle = []
        for _ in range(200):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            idle.append(connection)
        out, err = job.communicate("go on\n")
        for connection in idle:
            connection.close()
    assert (out, job.returncode) == ("[1, 2, 3]\n", 0), err


def test_a_textfile_is_whole_and_stays_where_it_was_named(tmp_path: Path, window: Window, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    exporter = prometheus.Textfile("pipefix.prom")
    monkeypatch.chdir(tmp_path / "elsewhere")
    exporter.write(window)
    exporter.close()
    text = (tmp_path / "pipefix.prom").read_text()
    assert f'pipefix_stage_seconds{{rank="0",stage="decode"}} {window.stages["decode"].s}' in text
    assert {path.name for path in tmp_path.rglob("*")} == {"pipefix.prom", "elsewhere"}
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
    assert refused.value.advice == "Install it with: pip install tensorboard"


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist(root: Path, window: Window):
    dashboard = json.loads((root / "docs" / "grafana-dashboard.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    alerts = (root / "docs" / "alert-rules.yml").read_text()
    watched = re.findall(r"^ +expr: (.+)$", alerts, re.MULTILINE)
    assert len(watched) == alerts.count("- alert: ") > 5
    collector = prometheus.Collector()
    collector.write(window)
    exported = {family.name for family in collector.collect()} | {f"{family.name}_total" for family in collector.collect()}
    for names in ({name for text in some for name in re.findall(r"pipefix_\w+", text)} for some in (shown, watched)):
        assert names <= exported
        assert {"pipefix_waiting_ratio", "pipefix_drift_ratio", "pipefix_gpu_utilisation_ratio"} <= names


def test_figures_of_the_machine_are_told(window: Window):
    text = "\n".join(sentences.state(window))
    assert "machine    processors 80 % in use, memory 40 % in use" in text
    assert "GPU        busy 62 % of the time, 8.00 GB in use, 61 °C, 210 W, clocks held back 5.0 % of the time" in text
