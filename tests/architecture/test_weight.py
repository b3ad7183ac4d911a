"""What must answer at once stays light: no torch, nor anything that needs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.architecture.house import ROOT

HEAVY = ("torch", "torchvision", "numpy", "pyarrow", "kornia", "pandas", "cv2")

SPY = """
import json, sys
from pipefix.cli.main import main
code = main(json.loads(sys.argv[1]))
print(json.dumps({"code": code, "loaded": sorted(name for name in sys.modules if "." not in name)}), file=sys.stderr)
"""


JOB = str(ROOT / "fixtures" / "runs" / "watch.jsonl")
RUN = str(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")


def loaded_by(*arguments: str) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", SPY, json.dumps(arguments)], check=True, capture_output=True, text=True, timeout=60
    )
    told = json.loads(done.stderr.strip().splitlines()[-1])
    return told["code"], set(told["loaded"])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["probe", "--help"], ["doctor", "--help"]])
def test_help_loads_the_standard_library_only(arguments: list[str]) -> None:
    code, loaded = loaded_by(*arguments)
    assert code == 0
    assert not loaded & {*HEAVY, "rich", "psutil"}


@pytest.mark.parametrize("command", ["show", "show-html", "compare", "watch"])
def test_reports_never_load_torch(command: str, tmp_path: Path) -> None:
    arguments = {
        "show": ["show", RUN],
        "show-html": ["show", RUN, "--html", str(tmp_path / "run.html")],
        "compare": ["compare", RUN, RUN],
        "watch": ["watch", JOB, "--once"],
    }[command]
    code, loaded = loaded_by(*arguments)
    assert code == 0
    assert not loaded & set(HEAVY)


def test_importing_the_package_is_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pipefix, sys; dir(pipefix); print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    assert not set(done.stdout.split()) & {*HEAVY, "msgspec", "rich"}


@pytest.mark.timing
def test_help_answers_in_a_quarter_of_a_second() -> None:
    """Best of several, so that a busy machine is not mistaken for a slow program."""
    best = min(_seconds_for_help() for _ in range(7))
    assert best < 0.25


def _seconds_for_help() -> float:
    """From start to end, less what it waited for a CPU that other programs had."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "pipefix", "--help"], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.perf_counter() - begun
    queued = Path(f"/proc/{process.pid}/schedstat")
    if queued.exists():
        seconds -= int(queued.read_text().split()[1]) / 1e9
    assert process.wait() == 0
    return seconds
