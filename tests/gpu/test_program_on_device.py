"""`pipefix run` beside a real device: the program computes the same, and what it waited is what the device idled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torchvision.transforms.v2 import functional as tv

from tests.augment.lists import pictures
from tests.conftest import ROOT
from tests.gpu.conftest import Note

pytestmark = pytest.mark.gpu

TRAINS = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from torchvision.models import resnet18

torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
torch.use_deterministic_algorithms(True)
crop = transforms.Compose([transforms.RandomResizedCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
model = resnet18(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if __name__ == "__main__":
    data = datasets.ImageFolder("pictures", crop)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, pin_memory=True)
    for epoch in range(int(sys.argv[1])):
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(epoch, loss.item().hex())
"""

WAITS = """
import sys, time, torch
from torch.utils.data import DataLoader, IterableDataset

supply, demand = (float(word) / 1e3 for word in sys.argv[1:])

class Arriving(IterableDataset):
    def __iter__(self):
        for number in range(400):
            time.sleep(supply)
            yield torch.zeros(4)

def seconds_of(cycles):
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record(); torch.cuda._sleep(cycles); ended.record(); ended.synchronize()
    return begun.elapsed_time(ended) / 1e3

for _ in range(30):
    trial = seconds_of(20_000_000)
cycles = int(20_000_000 * demand / trial)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
busy = []
torch.cuda.synchronize()
begun = time.monotonic()
for batch in DataLoader(Arriving(), batch_size=None):
    kernel = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    kernel[0].record(); torch.cuda._sleep(cycles)
    model(batch.cuda(non_blocking=True)).sum().backward(); optimizer.step(); optimizer.zero_grad()
    kernel[1].record()
    busy.append(kernel)
torch.cuda.synchronize()
whole = time.monotonic() - begun
print(1 - sum(one.elapsed_time(other) for one, other in busy) / 1e3 / whole)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures" / "class").mkdir(parents=True)
    for place, picture in enumerate(pictures(256, 375, 500)):
        tv.to_pil_image(picture).save(tmp_path / "pictures" / "class" / f"{place}.jpg", quality=90)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "waits.py").write_text(WAITS)
    return tmp_path


def ran(folder: Path, *words: str) -> tuple[list[str], str, float]:
    """What a program printed, what pipefix said, and the seconds that all took."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    begun = time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr, time.monotonic() - begun


def observed(folder: Path) -> Any:
    program = json.loads((folder / "pipefix-run" / "run.json").read_text())["program"]
    assert program["errors"] == []
    (loop,) = [loop for loop in program["loops"] if loop["role"] == "training"]
    return loop


@pytest.mark.parametrize("probe", [(), ("--probe=8",)])
def test_losses_are_the_same_to_the_last_bit(probe: tuple[str, ...], folder: Path, note: Note) -> None:
    bare, _, alone = ran(folder, "train.py", "20")
    watched, said, beside = ran(folder, "-m", "pipefix", "run", *probe, "train.py", "20")
    assert watched[: len(bare)] == bare
    assert len(bare) == 160
    loop = observed(folder)
    name = " ".join(("ResNet-18, 160 steps, pipefix run", *probe))
    note(name, f"{beside:.1f} s, {alone:.1f} s bare; waited {loop['wait_share']['value']:.1%}, by device: {loop['by_device']}")
    for line in said.splitlines():
        note("", line)


@pytest.mark.parametrize(("supply", "demand"), [(20.0, 5.0), (10.0, 8.0), (2.0, 10.0)])
def test_what_a_program_waited_is_what_its_device_idled(supply: float, demand: float, folder: Path, note: Note) -> None:
    (idled,), said, _ = ran(folder, "-m", "pipefix", "run", "waits.py", str(supply), str(demand))
    loop = observed(folder)
    told = loop["wait_share"]["value"]
    note(f"run: supply {supply:g} ms, demand {demand:g} ms", f"waited {told:.1%}, the device idled {float(idled):.1%}")
    for line in said.splitlines():
        note("", line)
    assert loop["by_device"]
    assert told == pytest.approx(float(idled), abs=0.03)
