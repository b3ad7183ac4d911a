"""`scripts/nightly`: a test that depends on how the gate is run is found, and what cannot be judged is no success."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.doubles.scripts import script

ROOT = Path(__file__).resolve().parents[2]
GATE = """#!/usr/bin/env bash
# A gate of two tests: one passes anywhere, the other where this holds: %s
told=${1#--junitxml=}
if %s; then how=""; code=0; else how="<failure/>"; code=1; fi
one="<testcase classname='tests.a' name='one'/>"
echo "<testsuite>$one<testcase classname='tests.a' name='two'>$how</testcase></testsuite>" >"$told"
exit $code
"""
SIGINT_HEARD = "[ $((0x$(grep SigIgn /proc/self/status | cut -f2) & 2)) = 0 ]"


@pytest.fixture(scope="module")
def nightly() -> ModuleType:
    return script("nightly")


@pytest.fixture
def gate(nightly: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a made-up gate in the place of scripts/test."""
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setenv("PIPEFIX_ENV_HOME", str(tmp_path))

    def write(condition: str) -> list[str]:
        (tmp_path / "scripts").mkdir()
        (tmp_path / "scripts" / "test").write_text(GATE % (condition, condition))
        (tmp_path / "scripts" / "test").chmod(0o755)
        return ["--logs", str(tmp_path / "logs")]

    return write


def test_equal_outcomes_are_told(nightly: ModuleType, gate: Any, capsys: Any) -> None:
    assert nightly.main([*gate("true"), "gate", "gate-busy", "gate-one-core", "gate-no-sigint"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["Logs:", "gate", "gate-busy", "gate-one-core", "gate-no-sigint"]
    assert told[1].endswith("ok      2 passed, 0 skipped")
    assert all(line.endswith("ok      2 tests, each as in the idle run") for line in told[2:])


def test_a_test_that_wants_to_hear_ctrl_c_is_named(nightly: ModuleType, gate: Any, capsys: Any) -> None:
    assert nightly.main([*gate(SIGINT_HEARD), "gate-no-sigint"]) == 1
    told = capsys.readouterr().out
    assert "FAILED  1 of 2 tests differ from the idle run\n    tests.a::two: passed idle, failure here\n" in told


def test_a_gate_that_is_red_is_no_success(nightly: ModuleType, gate: Any, capsys: Any) -> None:
    assert nightly.main([*gate("false"), "gate"]) == 1
    assert "    tests.a::two: failure\n" in capsys.readouterr().out


def test_a_gate_that_ran_no_test_is_no_success(nightly: ModuleType, gate: Any, capsys: Any) -> None:
    assert nightly.main([*gate("exit 0"), "gate-one-core"]) == 1
    assert "FAILED  no test ran: " in capsys.readouterr().out


def test_an_unknown_part_runs_nothing(nightly: ModuleType, capsys: Any) -> None:
    assert nightly.main(["gate", "moon"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("No such part: moon. The parts are: gate, gate-busy, ")


def test_its_parts_are_listed_and_what_they_run_is_there(nightly: ModuleType, capsys: Any) -> None:
    assert nightly.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(nightly.PARTS)
    assert nightly.PARTS.keys() == nightly.ABOUT.keys()
    assert all((ROOT / path).exists() for path in nightly.FRAMEWORK_TESTS)
