"""Sockets lie where their names fit, whatever the directory for temporary files is called."""

from __future__ import annotations

import tempfile
from multiprocessing.process import current_process
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pipefix import FastLoader
from pipefix.measurement.failing import iterator_of
from pipefix.vocabulary import sockets


@pytest.fixture
def long_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
    return folder


@pytest.mark.parametrize("kind", [DataLoader, FastLoader])
def test_batches_arrive_under_a_long_name(long_folder: Path, kind: type[DataLoader]) -> None:
    """Torch's workers lose theirs, and the loader waits for ever."""
    loader = kind(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1)
    assert [len(batch[0]) for batch in iterator_of(loader)] == [4, 4]
    assert not list(long_folder.iterdir())


def test_a_short_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
    sockets.settle()
    assert current_process()._config["tempdir"] is None  # type: ignore[attr-defined]
