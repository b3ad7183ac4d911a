import logging
import time
import warnings

import lightning
import torch
from made import Made, model, work
from meter import add
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Trained(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def training_step(self, batch, _):
        x, y = batch
        work()
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Meter(lightning.Callback):
    """The trainer asks for the next batch between the end of a step and the beginning of the next."""

    since = 0.0
    begun = 0.0

    def on_train_epoch_start(self, *_) -> None:
        self.since = self.begun = time.perf_counter()

    def on_train_batch_start(self, *_) -> None:
        add(time.perf_counter() - self.since, 0.0)

    def on_train_batch_end(self, *_) -> None:
        self.since = time.perf_counter()

    def on_train_epoch_end(self, *_) -> None:
        add(0.0, time.perf_counter() - self.begun)


lightning.seed_everything(11, verbose=False)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[Meter()],
)  # fmt: skip
net = Trained()
trainer.fit(net, DataLoader(Made(960), batch_size=8, shuffle=True))
print(sum(p.sum().item() for p in net.parameters()).hex())
