import tempfile
import time

import torch
import transformers
from made import model, work
from meter import add
from torch import nn
from torch.utils.data import Dataset

transformers.logging.set_verbosity_error()


class Rows(Dataset):
    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int):
        time.sleep(0.002)
        return {"x": torch.full((8,), index / 640), "labels": index % 2}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, x, labels=None):
        work()
        out = self.net(x)
        return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}


class Meter(transformers.TrainerCallback):
    since = 0.0
    begun = 0.0

    def on_epoch_begin(self, *_, **__) -> None:
        self.since = self.begun = time.perf_counter()

    def on_step_begin(self, *_, **__) -> None:
        add(time.perf_counter() - self.since, 0.0)

    def on_step_end(self, *_, **__) -> None:
        self.since = time.perf_counter()

    def on_epoch_end(self, *_, **__) -> None:
        add(0.0, time.perf_counter() - self.begun)


torch.manual_seed(13)
net = Net()
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=2, per_device_train_batch_size=8, report_to=[], disable_tqdm=True, save_strategy="no",
        use_cpu=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(net, arguments, train_dataset=Rows(), callbacks=[Meter()])
    trainer.remove_callback(transformers.PrinterCallback)  # prints how long it took
    trainer.train()
print(sum(p.sum().item() for p in net.parameters()).hex())
