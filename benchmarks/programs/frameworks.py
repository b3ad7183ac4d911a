"""One framework's way to train, named by the first argument; every batch that a step works on is printed, as a checksum."""

import hashlib
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
CASE = sys.argv[1]
SAMPLES, BATCH, EPOCHS, STEP = 960, 8, 2, 0.03
FOLDER = Path(tempfile.mkdtemp())
"""Of this process's own files."""


def shown(batch) -> None:
    """A line for the batch that is worked on."""
    held = hashlib.sha1(usedforsecurity=False)
    for one in leaves(batch):
        held.update(one.detach().contiguous().numpy().tobytes())
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    os.write(1, f"{rank} {held.hexdigest()[:12]}\n".encode())  # whole lines, whatever other ranks write


def leaves(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves(one)


class Files(Dataset):
    """Reads a file a sample and computes for a while on what it read."""

    def __init__(self, length: int = SAMPLES, named: bool = False) -> None:
        self.length, self.named = length, named
        self.path = FOLDER / "values.npy"
        np.save(self.path, np.arange(8, dtype=np.float32))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if index >= self.length:
            raise IndexError(index)
        x = torch.from_numpy(np.load(self.path)) / 8 + index / self.length
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        return {"x": x, "labels": index % 2} if self.named else (x, index % 2)


class Net(nn.Module):
    """As HF's models are called; the loss is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x, labels=None):
        if self.training:
            shown([x, labels])
            time.sleep(STEP)
        out = self.layer(x)
        return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}


def trained(loader, net=None, epochs: int = EPOCHS) -> None:
    net = net or Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            net(x, y)["loss"].backward()
            optimizer.step()


# -- Lightning -----------------------------------------------------------------------------------------------------------------


def lightning_(*, fits: int = 1, **options) -> None:
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    lightning.seed_everything(1, verbose=False)
    net, made = Module(), DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=1)
    common = {
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "max_epochs": EPOCHS,
    }  # fmt: skip
    for fit in range(fits):
        last = fit == fits - 1
        trainer = lightning.Trainer(**common, **options, **({} if last else {"max_steps": 70}))
        trainer.fit(net, made, ckpt_path=str(FOLDER / "kept.ckpt") if fit else None, **({"weights_only": False} if fit else {}))
        if not last:
            trainer.save_checkpoint(FOLDER / "kept.ckpt")


def lightning() -> None:
    lightning_()


def lightning_ddp() -> None:
    lightning_(strategy="ddp", devices=2)


def lightning_overfit() -> None:
    lightning_(overfit_batches=100)


def lightning_resume() -> None:
    lightning_(fits=2)


def lightning_callback() -> None:
    from pipefix.watching.lightning import LightningWatch

    lightning_(callbacks=[LightningWatch(jsonl=str(FOLDER / "watch.jsonl"))])


def lightning_module() -> None:
    """A LightningDataModule makes the loader."""
    import lightning as lit

    class Data(lit.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=1)

    original = lit.Trainer.fit
    lit.Trainer.fit = lambda self, net, _, **more: original(self, net, datamodule=Data(), **more)
    lightning_()


# -- Accelerate ----------------------------------------------------------------------------------------------------------------


def accelerate(length: int = SAMPLES, **options) -> None:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    torch.manual_seed(1)
    net = Net()
    made = DataLoader(Files(length * accelerator.num_processes), batch_size=BATCH, shuffle=True, num_workers=1)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), made)
    for _epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(net(x, y)["loss"])
            optimizer.step()
    accelerator.end_training()


def accelerate_two() -> None:
    accelerate()


def accelerate_split() -> None:
    accelerate(split_batches=True)


def accelerate_dispatch() -> None:
    accelerate(dispatch_batches=True)


def accelerate_uneven() -> None:
    accelerate(even_batches=False)


# -- Hugging Face --------------------------------------------------------------------------------------------------------------


def trainer(data, collate=None, kind=None, **options) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    net = Net()
    arguments = transformers.TrainingArguments(
        str(FOLDER), per_device_train_batch_size=BATCH, report_to=[], disable_tqdm=True, save_strategy="no", use_cpu=True,
        logging_strategy="no", dataloader_num_workers=1, **options,
    )  # fmt: skip
    made = (kind or transformers.Trainer)(net, arguments, train_dataset=data, data_collator=collate)
    made.remove_callback(transformers.PrinterCallback)
    made.train()


def hf_map() -> None:
    trainer(Files(named=True), num_train_epochs=EPOCHS)


def table(stored: bool):
    import datasets

    datasets.disable_progress_bars()
    data = datasets.Dataset.from_dict(
        {"x": [[index / SAMPLES] * 8 for index in range(SAMPLES)], "labels": [i % 2 for i in range(SAMPLES)]}
    )
    if stored:
        data.save_to_disk(str(FOLDER / "arrow"))
        data = datasets.load_from_disk(str(FOLDER / "arrow"))
    return data


def hf_arrow() -> None:
    trainer(table(stored=True), num_train_epochs=EPOCHS)


def hf_memory() -> None:
    trainer(table(stored=False), num_train_epochs=EPOCHS)


def hf_stream() -> None:
    trainer(table(stored=True).to_iterable_dataset(num_shards=2), max_steps=240)


def hf_batch_sampler() -> None:
    import transformers
    from torch.utils.data import BatchSampler, RandomSampler, default_collate

    class Own(transformers.Trainer):
        def get_train_dataloader(self):
            order = BatchSampler(RandomSampler(self.train_dataset), BATCH, drop_last=True)
            return self.accelerator.prepare(
                DataLoader(self.train_dataset, batch_sampler=order, num_workers=1, collate_fn=default_collate)
            )

    trainer(Files(named=True), kind=Own, num_train_epochs=EPOCHS)


# -- others --------------------------------------------------------------------------------------------------------------------


class Pictures(Dataset):
    """As torchvision's: a picture and a label, with a transform that others set."""

    transform = None

    def __init__(self) -> None:
        from PIL import Image

        drawn = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)
        Image.fromarray(drawn).save(FOLDER / "picture.png")

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int):
        from PIL import Image

        with open(FOLDER / "picture.png", "rb") as file:
            picture = Image.open(file).convert("RGB")
        return (self.transform(picture) if self.transform is not None else picture), index % 2


class Seen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, labels):
        shown([x, labels])
        time.sleep(STEP)
        return {"loss": nn.functional.cross_entropy(self.layer(x.float().mean((2, 3))), labels)}


def timm(**options) -> None:
    from timm.data import create_loader

    torch.manual_seed(1)
    made = create_loader(
        Pictures(), (3, 32, 32), BATCH, is_training=True, num_workers=1, device=torch.device("cpu"), pin_memory=False, **options
    )
    trained(made, Seen())


def timm_plain() -> None:
    timm(use_prefetcher=False)


def webloader() -> None:
    import webdataset

    with webdataset.TarWriter(str(FOLDER / "shard-0.tar")) as writer:
        for index in range(SAMPLES):
            writer.write({"__key__": f"{index:05d}", "x.npy": np.full(8, index / SAMPLES, np.float32), "y.cls": index % 2})
    torch.manual_seed(1)
    data = webdataset.WebDataset(str(FOLDER / "shard-0.tar"), shardshuffle=False).decode().to_tuple("x.npy", "y.cls").batched(BATCH)
    trained(webdataset.WebLoader(data, batch_size=None, num_workers=1))


def stateful() -> None:
    """Its place is kept in the middle of an epoch, and another loader goes on from there."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made():
        return StatefulDataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=1)

    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state = None
    for _part in range(2):
        loader = made()
        if state is not None:
            loader.load_state_dict(state)
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            net(x, y)["loss"].backward()
            optimizer.step()
            if state is None and number == 100:
                break
        state = loader.state_dict()


def nodes() -> None:
    from torch.utils.data import RandomSampler, default_collate
    from torchdata.nodes import Batcher, Loader, ParallelMapper, SamplerWrapper

    torch.manual_seed(1)
    data = Files()
    order = SamplerWrapper(RandomSampler(data))
    made = ParallelMapper(Batcher(order, BATCH), lambda order: default_collate([data[index] for index in order]), num_workers=1)
    trained(Loader(made))


def ultralytics() -> None:
    from PIL import Image
    from ultralytics import settings
    from ultralytics.models.yolo.detect import DetectionTrainer

    settings.update({"sync": False})
    for part, count in (("train", 160), ("val", 8)):
        for kind in ("images", "labels"):
            (FOLDER / kind / part).mkdir(parents=True)
        for number in range(count):
            drawn = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(drawn).resize((160, 160)).save(FOLDER / "images" / part / f"{number}.jpg")
            (FOLDER / "labels" / part / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (FOLDER / "data.yaml").write_text(f"path: {FOLDER}\ntrain: images/train\nval: images/val\nnames: [thing]\n")

    class Trainer(DetectionTrainer):
        def preprocess_batch(self, batch):
            shown([batch["img"], batch["cls"], batch["bboxes"]])
            return super().preprocess_batch(batch)

    logging.getLogger("ultralytics").setLevel(logging.ERROR)
    options = {
        "model": "yolo11n.yaml", "data": str(FOLDER / "data.yaml"), "epochs": EPOCHS, "imgsz": 96, "batch": BATCH, "workers": 1,
        "device": "cpu", "plots": False, "val": False, "save": False, "verbose": False, "project": str(FOLDER / "runs"),
        "amp": False, "seed": 1,
    }  # fmt: skip
    Trainer(overrides=options).train()


if __name__ == "__main__":
    try:
        globals()[CASE]()
    finally:
        import shutil

        shutil.rmtree(FOLDER, ignore_errors=True)
