"""Scenes for the attacks, and what takes commands seconds to make: a folder in which `pipefix fix` kept a cache, and a cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.attacks.scene import Scene, cached_project, fixed_project, numbers_project, warm


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    warm()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """With a small project in it."""
    scene = Scene(tmp_path)
    numbers_project(scene.project)
    return scene


@pytest.fixture(scope="session")
def fixed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixed_project(tmp_path_factory.mktemp("fixed"))


@pytest.fixture
def fixed(fixed_once: Path, tmp_path: Path) -> Scene:
    shutil.copytree(fixed_once, tmp_path / "project", symlinks=True)
    return Scene(tmp_path)


@pytest.fixture(scope="session")
def cache_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached_project(tmp_path_factory.mktemp("cached"))


@pytest.fixture
def cached(cache_once: Path, tmp_path: Path) -> Scene:
    """A project with the finished caches `lmdb` and `parquet` in it."""
    shutil.copytree(cache_once, tmp_path / "project", symlinks=True)
    return Scene(tmp_path)
