"""The trainers' callbacks and TensorBoard, on the libraries themselves: the loader that trains is watched while it trains."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.watching.exporter import Scalars
from tests.frameworks.conftest import package
from tests.watching.pipelines import Files
from tests.watching.streams import Job


def windows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_hugging_face(tmp_path: Path):
    package("transformers")
    from pipefix.watching.transformers import TransformersWatch

    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    callback = TransformersWatch(jsonl=tmp_path / "watch.jsonl", every=60)
    callback.on_train_begin(None, None, None, model=None, train_dataloader=loader)
    assert len(list(loader)) == 4
    callback.on_train_end(None, None, None, train_dataloader=loader)
    (window,) = windows(tmp_path / "watch.jsonl")
    assert (window["batches"], window["ended"]) == (4, True)
    assert type(loader) is DataLoader


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("handed", "anew"), [(True, 0), (False, 0), (False, 1)])
@pytest.mark.parametrize("workers", [0, 1])
def test_lightning(tmp_path: Path, handed: bool, anew: int, workers: int):
    lightning = package("lightning.pytorch")
    from pipefix.watching.lightning import LightningWatch

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2000, 1)

        def training_step(self, batch, number):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    loader = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=workers)
    callback = LightningWatch(jsonl=tmp_path / "watch.jsonl", every=60)
    logger = lightning.loggers.CSVLogger(tmp_path / "logs")
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback], logger=logger, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        reload_dataloaders_every_n_epochs=anew,
    )  # fmt: skip
    if handed:
        trainer.fit(Model(), loader)
    else:
        model = Model()
        model.train_dataloader = lambda: copy.copy(loader) if anew else loader  # type: ignore[method-assign]
        trainer.fit(model)
    (window,) = windows(tmp_path / "watch.jsonl")
    assert (window["batches"], window["epochs"], window["ended"]) == (8, 2, True)
    assert window["stages"]["decode"]["s"] > 0
    assert type(loader) is DataLoader
    logger.save()
    assert "pipefix/stage/decode_s" in (Path(logger.log_dir) / "metrics.csv").read_text()


def test_tensorboard_gets_event_files(tmp_path: Path):
    package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    exporter = Scalars(tmp_path / "runs")
    exporter.write(next(iter(Job(1))))
    exporter.close()
    assert list((tmp_path / "runs").glob("events.*"))
    read = EventAccumulator(str(tmp_path / "runs"))
    read.Reload()
    assert "pipefix/stage/decode_s" in read.Tags()["scalars"]
