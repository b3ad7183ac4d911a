"""The exporter for Prometheus: windows as metrics, served on a port, or written to a file for the node exporter."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from socketserver import BaseRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipefix.vocabulary.errors import BadUsage
from pipefix.watching.drift import BYTES, STARTS
from pipefix.watching.window import Window, encode

HERE = "127.0.0.1"
"""Who wants others to scrape says so: ``prometheus="0.0.0.0:9400"``."""
_GAUGES = {
    "rate": ("pipefix_samples_per_second", "Samples a second that the consumer received in the last window"),
    "waiting": ("pipefix_waiting_ratio", "Part of the training loop's time that it waited for data"),
    "bytes": ("pipefix_sample_bytes", "Bytes read from storage, a sample"),
    "cpu": ("pipefix_sample_cpu_seconds", "Processor seconds that making a sample took"),
    "busy": ("pipefix_workers_busy_ratio", "Part of their time that workers spent on making batches"),
    "workers": ("pipefix_workers", "Worker processes"),
    "looking": ("pipefix_watch_cost_ratio", "Part of the makers' time that looking at stages took"),
    "epochs": ("pipefix_epochs", "Epochs begun"),
    "number": ("pipefix_window", "Number of the last window"),
    "seconds": ("pipefix_window_seconds", "Length of the last window"),
    "time": ("pipefix_window_end_seconds", "When the last window ended (Unix time)"),
    "ended": ("pipefix_ended", "1 once the watch was closed"),
}
_MACHINE = {
    "cpu": ("pipefix_machine_cpu_ratio", "Part of the machine's processors that is in use"),
    "memory": ("pipefix_machine_memory_ratio", "Part of the machine's memory that is in use"),
    "gpu_utilisation": ("pipefix_gpu_utilisation_ratio", "Part of the time that the driver calls the job's GPU busy"),
    "gpu_memory_bytes": ("pipefix_gpu_memory_bytes", "Memory of the job's GPU that is in use"),
    "gpu_temperature_c": ("pipefix_gpu_temperature_celsius", "Temperature of the job's GPU"),
    "gpu_power_w": ("pipefix_gpu_power_watts", "Power that the job's GPU draws"),
    "gpu_throttled": ("pipefix_gpu_throttled_ratio", "Part of the time that the clocks of the job's GPU were held back"),
}
WINDOW = "/window"
"""Beside ``/metrics``."""
PATIENCE = 2.0
"""Seconds that a scrape may take."""
_QUANTILES = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"), ("1", "max"))
_DRIFTING = {"larger": BYTES, "restarts": STARTS}
"""What `Window.drifting` calls the figure of an alarm of this kind; any other is called as its stage."""


class Collector:
    """Tells the latest window whenever its registry is asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.window: Window | None = None
        self.batches = self.samples = self.deaths = 0
        self._alarms: dict[tuple[str, str], int] = {}
        self._ratios: dict[str, float] = {}

    def write(self, window: Window) -> None:
        self.batches += window.batches
        self.samples += window.samples
        self.deaths += len(window.died)
        for notice in window.notices:
            stage = notice.stage or notice.kind
            if notice.alarm:
                self._alarms[notice.kind, stage] = self._alarms.get((notice.kind, stage), 0) + 1
                self._ratios[_DRIFTING.get(notice.kind, stage)] = notice.ratio or 1.0
        self.window = window

    def collect(self) -> Iterator[Metric]:
        window = self.window
        if window is None:
            return
        names, values = [_label(name) for name in window.labels], list(window.labels.values())
        figures = [(described, getattr(window, key)) for key, described in _GAUGES.items()]
        figures += [(described, window.machine.get(key)) for key, described in _MACHINE.items()]
        for (name, text), value in figures:
            if value is not None:
                yield _gauge(name, text, names, [(values, float(value))])
        for name, text, count in (
            ("pipefix_batches", "Batches delivered", self.batches),
            ("pipefix_samples", "Samples delivered", self.samples),
            ("pipefix_worker_deaths", "Workers that ended by themselves", self.deaths),
        ):
            counter = CounterMetricFamily(name, text, labels=names)
            counter.add_metric(values, float(count))
            yield counter
        stage = [*names, "stage"]
        costs = [([*values, name], cost) for name, cost in window.stages.items()]
        yield _gauge("pipefix_stage_seconds", "Seconds a sample (median)", stage, [(row, cost.s) for row, cost in costs])
        looks = [(row, float(cost.batches)) for row, cost in costs]
        yield _gauge("pipefix_stage_batches", "Batches that the stage's seconds rest on", stage, looks)
        for name, text, spread in (
            ("pipefix_wait_seconds", "Wait for a batch", window.wait),
            ("pipefix_step_seconds", "Training step", window.step),
        ):
            if spread is not None:
                rows = [([*values, share], float(getattr(spread, field))) for share, field in _QUANTILES]
                yield _gauge(name, text, [*names, "quantile"], rows)
        drifting = [([*values, name], self._ratios.get(name, 1.0)) for name in window.drifting]
        yield _gauge("pipefix_drift_ratio", "Cost over its level, of what is drifting", stage, drifting)
        alarms = CounterMetricFamily("pipefix_drift_alarms", "Alarms raised", labels=[*names, "kind", "stage"])
        for (kind, name), count in list(self._alarms.items()):  # the watch's thread may add one
            alarms.add_metric([*values, kind, name], float(count))
        yield alarms


def _label(name: str) -> str:
    """Of letters, digits and `_` alone, or the node exporter refuses the file; beside one of ours as Prometheus renames it."""
    name = re.sub("[^a-zA-Z0-9_]", "_", name)
    return f"exported_{name}" if name in ("stage", "kind", "quantile") or name[:1].isdigit() else name


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        gauge.add_metric(values, value)
    return gauge


class _Server(socketserver.TCPServer):
    """Answers one connection after the other, each within `PATIENCE`.

    However many are opened, they take one file and two threads of the training process; the others wait in the kernel.
    """

    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, host: str, port: int, handler: type[BaseRequestHandler]) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host.strip("[]"), port), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.1)  # The process has no file left: the connection waits on, and is not asked for in a busy loop.
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        ending = threading.Timer(PATIENCE, _end, (request,))
        ending.daemon = True
        ending.start()
        try:
            super().finish_request(request, client_address)
        finally:
            ending.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was sent away, is nobody's concern."""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _handler(collector: Collector) -> type[BaseRequestHandler]:
    class Handler(MetricsHandler.factory(collector.registry)):  # type: ignore[misc]
        def do_GET(self) -> None:  # noqa: N802 - the library's name
            if self.path == WINDOW:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b"" if collector.window is None else encode(collector.window))
            else:
                super().do_GET()

    return Handler


class Endpoint(Collector):
    """Serves ``/metrics``, and for `pipefix watch` the latest window as it is, from a thread of its own. OSError where the address
    cannot be had."""

    def __init__(self, address: int | str) -> None:
        super().__init__()
        host, port = _address(address)
        try:
            self._server = _Server(host, port, _handler(self))
        except OSError as error:
            raise OSError(
                f"the Prometheus endpoint {host}:{port} cannot be opened: {error.strerror or error}. "
                "Choose another port, such as prometheus=9401; each process of a job needs its own."
            ) from error
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="pipefix-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        with contextlib.suppress(OSError):  # forked workers hold it as well, and would keep the port in use
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(timeout=5)


class Textfile(Collector):
    """For the node exporter's textfile collector; written whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path).absolute()
        """Wherever the program goes from here."""
        if self.path.suffix != ".prom":
            problem = f"textfile={str(path)!r}: the node exporter reads files that end with .prom."
            raise BadUsage(problem, advice=f"Name it so: textfile={str(Path(path).with_suffix('.prom'))!r}")

    def write(self, window: Window) -> None:
        super().write(window)
        write_to_textfile(str(self.path), self.registry)

    def close(self) -> None:
        """The file stays: it says that the watch ended."""


def _address(address: int | str) -> tuple[str, int]:
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        problem = f"prometheus={address!r} is not a port."
        raise BadUsage(problem, advice="Write prometheus=9400, or prometheus='0.0.0.0:9400' for all.")
    return host or HERE, int(port)
