"""Windows as Prometheus metrics: served on a port, written to a file for the node exporter, and read back from either."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.watch.window import Cost, Spread, Window

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
_QUANTILES = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"), ("1", "max"))


class Collector:
    """Tells the latest window whenever it is asked."""

    def __init__(self) -> None:
        self.window: Window | None = None
        self.batches = self.samples = self.deaths = 0
        self._alarms: dict[tuple[str, str], int] = {}
        self._ratios: dict[str, float] = {}

    def take(self, window: Window) -> None:
        self.batches += window.batches
        self.samples += window.samples
        self.deaths += len(window.died)
        for notice in window.notices:
            stage = notice.stage or notice.kind
            if notice.alarm:
                self._alarms[notice.kind, stage] = self._alarms.get((notice.kind, stage), 0) + 1
                self._ratios[stage] = notice.ratio or 1.0
        self.window = window

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        window = self.window
        if window is None:
            return
        names, values = list(window.labels), list(window.labels.values())
        for key, (name, text) in _GAUGES.items():
            value = getattr(window, key)
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
        costs = window.stages.items()
        stage = [*names, "stage"]
        yield _gauge("pipefix_stage_seconds", "Seconds a sample (median)", stage, [([*values, one], cost.s) for one, cost in costs])
        looks = [([*values, one], float(cost.batches)) for one, cost in costs]
        yield _gauge("pipefix_stage_batches", "Batches that the stage's seconds rest on", stage, looks)
        for name, text, spread in (
            ("pipefix_wait_seconds", "Wait for a batch", window.wait),
            ("pipefix_step_seconds", "Training step", window.step),
        ):
            if spread is not None:
                rows = [([*values, share], float(getattr(spread, field))) for share, field in _QUANTILES]
                yield _gauge(name, text, [*names, "quantile"], rows)
        drifting = [([*values, one], self._ratios.get(one, 1.0)) for one in window.drifting]
        yield _gauge("pipefix_drift_ratio", "Cost over its level, of what is drifting", stage, drifting)
        alarms = CounterMetricFamily("pipefix_drift_alarms", "Alarms raised", labels=[*names, "kind", "stage"])
        for (kind, one), count in self._alarms.items():
            alarms.add_metric([*values, kind, one], float(count))
        yield alarms


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        gauge.add_metric(values, value)
    return gauge


class Endpoint:
    """Serves ``/metrics`` from a thread of its own."""

    def __init__(self, address: int | str) -> None:
        host, port = _address(address)
        self._collector = Collector()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._collector)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise BadUsage(
                f"The Prometheus endpoint {host}:{port} cannot be opened: {error.strerror or error}.",
                advice="Choose another port, such as prometheus=9401; each process of a job needs its own.",
            ) from error
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def write(self, window: Window) -> None:
        self._collector.take(window)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class Textfile:
    """For the node exporter's textfile collector; written whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.suffix != ".prom":
            raise BadUsage(
                f"textfile={str(path)!r}: the node exporter reads files that end with .prom.",
                advice=f"Name it so: textfile={str(self.path.with_suffix('.prom'))!r}",
            )
        self._collector = Collector()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)

    def write(self, window: Window) -> None:
        self._collector.take(window)
        write_to_textfile(str(self.path), self._registry)

    def close(self) -> None:
        """The file stays: it says that the watch ended."""


def _address(address: int | str) -> tuple[str, int]:
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadUsage(
            f"prometheus={address!r} is not a port.", advice="Write prometheus=9400, or prometheus='0.0.0.0:9400' for all."
        )
    return host or HERE, int(port)


# -- reading back ----------------------------------------------------------------------------------------------------------


def parse(text: str, *, origin: str) -> Window:
    """The window that an endpoint or a textfile tells."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    except ValueError as error:
        raise UnreadableFile(f"{origin} does not answer in Prometheus' text format: {error}.", advice=_ADVICE) from error
    plain: dict[str, Any] = {key: found[name][0][1] for key, (name, _) in _GAUGES.items() if found.get(name)}
    if "number" not in plain:
        raise UnreadableFile(f"{origin} holds no metrics of pipefix.watch, or none yet.", advice=_ADVICE)
    labels = found[_GAUGES["number"][0]][0][0]
    looks = {one["stage"]: value for one, value in found.get("pipefix_stage_batches", ())}
    stages = {
        one["stage"]: Cost(s=value, batches=int(looks.get(one["stage"], 0)))
        for one, value in found.get("pipefix_stage_seconds", ())
        if math.isfinite(value)
    }
    for key in ("number", "workers", "epochs"):
        plain[key] = int(plain.get(key, 0))
    plain["ended"] = bool(plain.get("ended", 0))
    return Window(
        **{"time": time.time(), "seconds": 0.0, **plain},
        stages=stages,
        wait=_spread(found.get("pipefix_wait_seconds", ())),
        step=_spread(found.get("pipefix_step_seconds", ())),
        batches=int(found.get("pipefix_batches_total", [({}, 0.0)])[0][1]),
        samples=int(found.get("pipefix_samples_total", [({}, 0.0)])[0][1]),
        drifting=[one["stage"] for one, _ in found.get("pipefix_drift_ratio", ())],
        labels=labels,
    )


def _spread(rows: Iterable[tuple[dict[str, str], float]]) -> Spread | None:
    by = {labels["quantile"]: value for labels, value in rows}
    if not all(share in by for share, _ in _QUANTILES):
        return None
    return Spread(**{field: by[share] for share, field in _QUANTILES})


_ADVICE = "A job serves them with: pipefix.watch(loader, prometheus=9400); the address is then http://127.0.0.1:9400/metrics"
