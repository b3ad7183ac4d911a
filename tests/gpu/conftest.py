"""Figures that the device tests found, printed together at the end of the run; and the fake device, where there is none."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.conftest import ROOT
from tests.gpu.fake import build

_figures: list[tuple[str, str]] = []

Note = Callable[[str, str], None]


@pytest.fixture
def note() -> Note:
    """Say a figure in the summary: ``note("copy from pinned memory", "24 GB/s")``."""

    def add(name: str, value: str) -> None:
        _figures.append((name, value))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _figures:
        return
    terminalreporter.section("figures of this device")
    width = max(len(name) for name, _ in _figures)
    for name, value in _figures:
        terminalreporter.write_line(f"{name:<{width}}  {value}")
    kept = os.environ.get("PIPEFIX_FIGURES")
    if kept:
        rows = "\n".join(f"| {name} | {value} |" for name, value in _figures)
        device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no device"
        Path(kept).write_text(f"# Figures of a device\n\n`scripts/gpu_check`, {device}.\n\n| figure | value |\n|---|---|\n{rows}\n")


class FakeDevice:
    """Calls functions of test modules where CUDA is a device that computes nothing (docs/gpu.md says what it shows)."""

    def __init__(self, libraries: Path) -> None:
        preloaded = {"LD_PRELOAD": str(libraries / "libfakecudart.so"), "LD_LIBRARY_PATH": str(libraries), "OMP_NUM_THREADS": "1"}
        self.environment = preloaded
        """That puts a program of its own on the device."""
        self._host = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.fake.host"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **preloaded},
        )  # fmt: skip
        self.owner = json.loads(self._line())["owner"]
        """The process that had used the driver when everything was imported; 0: none had."""

    def __call__(self, function: Callable[..., Any], *arguments: Any, timeout: float = 100, **environment: Any) -> Any:
        """What ``function`` returns there, which JSON can say. ``environment``: settings of the device (see its sources)."""
        asked = {
            "function": f"{function.__module__}.{function.__qualname__}",
            "arguments": arguments,
            "environment": {name: str(value) for name, value in environment.items()},
            "timeout": timeout,
        }
        assert self._host.stdin is not None
        self._host.stdin.write(json.dumps(asked) + "\n")
        self._host.stdin.flush()
        told = json.loads(self._line())
        assert told["code"] == 0, told["said"] or told
        return told["answer"]

    def program(self, folder: Path, *words: str, **environment: str) -> tuple[Any, str]:
        """The run file of ``pipefix run`` of a program on the device, and what the program printed."""
        command = [sys.executable, "-m", "pipefix", "run", "-q", *words]
        on_device = {**os.environ, **self.environment, **environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=on_device, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        run = json.loads((folder / "pipefix-run" / "run.json").read_text())
        assert run["program"]["errors"] == []
        return run, done.stdout

    def _line(self) -> str:
        assert self._host.stdout is not None
        return self._host.stdout.readline()

    def close(self) -> None:
        """Not by closing its standard input: a process that another test forked may hold that open."""
        self._host.kill()
        self._host.wait()
        for stream in (self._host.stdin, self._host.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="session")
def fake_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDevice]:
    """Compiled once for all test processes; skipped, with the reason, where that cannot be done."""
    why = build.why_not()
    if why is not None:
        pytest.skip(why)
    together = tmp_path_factory.getbasetemp()
    folder = (together.parent if os.environ.get("PYTEST_XDIST_WORKER") else together) / "fake-device"
    folder.mkdir(exist_ok=True)
    with open(folder / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (folder / "libfakecudart.so").exists():
            build.build(folder)
    device = FakeDevice(folder)
    yield device
    device.close()


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 48 pictures, each of one colour."""
    folder = tmp_path_factory.mktemp("colours")
    (folder / "class").mkdir()
    for number in range(48):
        Image.new("RGB", (48, 48), (5 * number, 255 - 5 * number, number)).save(folder / "class" / f"{number:02}.jpg", quality=95)
    return folder
