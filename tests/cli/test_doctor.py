from __future__ import annotations

import json

import pytest

from pipefix.cli.main import main
from pipefix.report import doctor_report, terminal
from pipefix.report.runfile import Finding
from tests.cli.conftest import Library

MACHINE = {
    "cpu_model": "A processor",
    "logical_cores": 4,
    "effective_cores": 2.0,
    "memory_bytes": 8_000_000_000,
    "python": "3.12.1",
}
NOTE = Finding(id="restart", severity="note", found="Workers start anew every epoch.", advice="Set persistent_workers=True.")
PROBLEM = Finding(id="shm", severity="problem", found="/dev/shm holds 64 MB.", advice="Use --shm-size=1g.", rule="need above room")


@pytest.fixture
def doctor(library: Library) -> Library:
    library.answer = (MACHINE, [NOTE, PROBLEM])
    return library


def test_the_worst_comes_first() -> None:
    assert terminal.lines(doctor_report.report(MACHINE, [NOTE, PROBLEM])) == [
        "A processor, 2 of 4 CPUs, 8.00 GB of memory, no GPU, Python 3.12.1",
        "1 problem, 1 note.",
        "",
        "problem: /dev/shm holds 64 MB.",
        "  Use --shm-size=1g. (rule: need above room)",
        "",
        "note: Workers start anew every epoch.",
        "  Set persistent_workers=True.",
    ]


def test_what_workers_may_run_out_of_is_told() -> None:
    room = {"memory_available_bytes": 6_000_000_000, "shm_bytes": 64_000_000, "shm_free_bytes": 60_000_000, "fd_soft": 1024}
    assert terminal.lines(doctor_report.report(MACHINE | room, []), width=200)[1] == (
        "Free: 6.00 GB of memory, 60.0 MB of 64.0 MB in /dev/shm; at most 1,024 open files a process (ulimit -n)"
    )


def test_a_healthy_machine() -> None:
    (line,) = terminal.lines(doctor_report.report({}, []), width=200)
    assert line.startswith("No mistake was found in what can be seen without running the pipeline")


def test_the_machine_alone(doctor: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert doctor.asked == [((None,), {})]
    assert "problem: /dev/shm holds 64 MB." in capsys.readouterr().out
    assert main(["doctor", "data.py:loader"]) == 0
    assert doctor.asked[1:] == [(("data.py:loader",), {})]


def test_json(doctor: Library, capsys: pytest.CaptureFixture[str]) -> None:
    doctor.meanwhile = lambda: print("noise")
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["machine"] == MACHINE
    assert [finding["id"] for finding in told["audit"]] == ["restart", "shm"]
