"""`scripts/test_matrix`: what it runs is there, and what pyproject.toml claims is what it runs on."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.doubles.scripts import script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    return script("test_matrix")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_floor_is_the_oldest_version_that_is_tested_and_the_pin_the_newest(matrix: ModuleType) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    versions = sorted(matrix.MATRIX, key=numbers)
    assert list(matrix.MATRIX) == versions
    for package, tested in (("torch", versions), ("torchvision", list(matrix.MATRIX.values()))):
        (floor,) = re.findall(rf'^    "{package}>=([\d.]+)",$', project, re.MULTILINE)
        assert numbers(tested[0])[: len(numbers(floor))] == numbers(floor)
        assert f"{package}=={tested[-1]};" in pins


def test_the_readme_names_the_versions(matrix: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(version in text for version in matrix.MATRIX)


def test_its_suites_are_there(matrix: ModuleType) -> None:
    assert all((ROOT / path).exists() for path in matrix.SUITES)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="it reads pyproject.toml with tomllib")
def test_an_environment_gets_what_the_suite_needs_and_no_other_torch(matrix: ModuleType) -> None:
    wanted = {re.split(r"[<>=;\s]", requirement)[0] for requirement in matrix.requirements()}
    assert {"numpy", "pytest", "hypothesis", "tokenizers", "lmdb"} <= wanted
    assert not wanted & {"torch", "torchvision", "nvidia-dali-cuda130", "ruff", "mypy"}
    kept = [line for line in matrix.constraints().splitlines() if not matrix.NOT_PINNED.match(line)]
    assert any(line.startswith("numpy==") for line in kept)
    assert not [line for line in kept if line.startswith(("torch", "nvidia-", "kornia", "triton"))]


def test_a_version_without_a_known_torchvision_is_refused(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["test_matrix", "--torch", "1.0"])
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(SystemExit):
        matrix.main()
    assert "Name it: --torchvision VERSION" in capsys.readouterr().err


def test_a_suite_that_did_not_begin_counts_as_failed(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix.environment, "call", lambda command: 2)
    row = matrix.suites(Path("python"), "2.6.0", "0.21.0", [])
    assert (row["passed"], row["failed"]) == (0, 1)
