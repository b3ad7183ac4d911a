"""FastLoader and `prepare` in the frameworks that rebuild loaders. Each test needs the real package, and is left out without it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.slots import arena as arenas
from pipefix.loader.slots.portable import Portable, prepare
from tests.frameworks.conftest import package
from tests.loader import pipelines

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Slots from which batches were opened."""
    found: list[int] = []
    original = arenas.Arena.opened
    monkeypatch.setattr(arenas.Arena, "opened", lambda self, slot: (found.append(slot), original(self, slot))[1])
    return found


class TestLightning:
    @pytest.fixture
    def lightning(self) -> Any:
        package("lightning")
        return importlib.import_module("lightning.pytorch")

    def model(self, lightning: Any, loader: Any = None) -> Any:
        class Model(lightning.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(16, 1)
                self.seen: list[float] = []

            def training_step(self, batch: Any, index: int) -> Any:
                self.seen.append(float(batch[0, 0]))
                return self.layer(batch).mean()

            def predict_step(self, batch: Any, index: int) -> Any:
                return batch[:, 0]

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-6)

            if loader is not None:

                def train_dataloader(self) -> Any:
                    return loader()

        return Model()

    def trainer(self, lightning: Any, tmp_path: Any, **options: Any) -> Any:
        return lightning.Trainer(
            accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, default_root_dir=tmp_path, **options,
        )  # fmt: skip

    def test_fit_with_a_loader_given(self, lightning: Any, tmp_path: Any, opened: list[int]) -> None:
        loader = FastLoader(pipelines.Tensors(32), batch_size=4, num_workers=1, engine="processes")
        model = self.model(lightning)
        self.trainer(lightning, tmp_path).fit(model, loader)
        assert model.seen == [4.0 * number for number in range(8)] * 2
        assert len(opened) >= 16

    def test_rebuilt_for_predicting_it_keeps_its_options(self, lightning: Any, tmp_path: Any) -> None:
        from lightning.pytorch.utilities.data import _update_dataloader

        loader = FastLoader(
            pipelines.Torn(), batch_size=4, engine="processes", on_bad="skip", max_bad=0.5, quarantine=None, rng="sample"
        )
        again = _update_dataloader(loader, loader.sampler)
        assert type(again) is FastLoader and again is not loader
        for name in ("engine", "on_bad", "max_bad", "quarantine", "rng", "plan", "device", "augment", "sample_timeout"):
            assert getattr(again, name) == getattr(loader, name)

    def test_a_loader_made_in_a_hook_and_overfitting(self, lightning: Any, tmp_path: Any) -> None:
        model = self.model(lightning, lambda: FastLoader(pipelines.Tensors(32), batch_size=4, shuffle=True, engine="torch"))
        self.trainer(lightning, tmp_path, overfit_batches=2).fit(model)
        assert model.seen == [0.0, 4.0] * 2

    def test_predicting(self, lightning: Any, tmp_path: Any) -> None:
        made = self.trainer(lightning, tmp_path).predict(self.model(lightning), FastLoader(pipelines.Tensors(8), batch_size=4))
        assert torch.cat(made).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


class TestAccelerate:
    @pytest.fixture
    def accelerator(self) -> Any:
        return package("accelerate").Accelerator(cpu=True)

    def test_a_prepared_loader_keeps_its_speed(self, accelerator: Any, opened: list[int]) -> None:
        loader = accelerator.prepare(prepare(DataLoader(pipelines.Tensors(32), batch_size=4, num_workers=1)))
        assert isinstance(loader.collate_fn, Portable)
        assert [float(batch[0, 0]) for batch in loader] == [4.0 * number for number in range(8)]
        assert len(opened) == 8

    def test_the_end_of_the_loader_is_seen(self, accelerator: Any) -> None:
        loader = accelerator.prepare(prepare(DataLoader(pipelines.Tensors(12), batch_size=4, num_workers=1)))
        assert [accelerator.gradient_state.end_of_dataloader for _ in loader] == [False, False, True]

    def test_each_rank_has_its_share(self) -> None:
        prepared = package("accelerate").data_loader.prepare_data_loader
        seen: list[float] = []
        for rank in range(2):
            loader = prepare(DataLoader(pipelines.Tensors(16), batch_size=2, num_workers=1))
            part = prepared(loader, num_processes=2, process_index=rank, put_on_device=False)
            assert isinstance(part.collate_fn, Portable)
            seen += [float(value) for batch in _without_ranks(part) for value in batch[:, 0]]
        assert sorted(seen) == [float(index) for index in range(16)]


def _without_ranks(loader: Any) -> Any:
    """The batches of one rank, where the others are not there to agree with."""
    loader.rng_types = None
    return list(loader)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Any = None, labels: Any = None) -> Any:
        made = self.layer(x)
        return {"loss": ((made[:, 0] - labels) ** 2).mean(), "logits": made}


def test_hugging_faces_trainer_keeps_its_speed(tmp_path: Any, opened: list[int]) -> None:
    transformers = package("transformers")
    package("accelerate")

    def collate(samples: Any) -> Any:
        return {"x": torch.stack([x for x, _ in samples]), "labels": torch.stack([label for _, label in samples])}

    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, num_train_epochs=1, dataloader_num_workers=1, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False, remove_unused_columns=False,
    )  # fmt: skip
    dataset = TensorDataset(torch.rand(32, 4), torch.rand(32))
    trainer = transformers.Trainer(model=Tiny(), args=arguments, train_dataset=dataset, data_collator=prepare(collate))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert trainer.train().global_step == 8
    assert len(opened) == 8
