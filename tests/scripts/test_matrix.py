"""`scripts/test_matrix`: what it runs is there, and what pyproject.toml claims is what it runs on."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

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
