"""A training program on a device: what it waited is what the device idled, and not what the CPU did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.conftest import FakeDevice

TRAINS = """
import sys, time, torch
from torch.utils.data import DataLoader, IterableDataset

class Arriving(IterableDataset):
    def __iter__(self):
        for number in range(400):
            if number % int(sys.argv[1]) == 0: time.sleep(float(sys.argv[2]) / 1e3 * int(sys.argv[1]))
            yield torch.zeros(4)

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.zeros(1, device="cuda")
begun, launching = time.monotonic(), 0.0
for batch in DataLoader(Arriving(), batch_size=None):
    got = time.monotonic()
    optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
    launching += time.monotonic() - got
    torch.cuda._sleep(10_000_000)
torch.cuda.synchronize()
whole = time.monotonic() - begun
print(1 - 400 * 0.01 / whole, launching / whole)
"""


COPIES = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.zeros(1, device="cuda")
own = torch.Tensor.cuda
if __name__ == "__main__":
    data = torch.zeros(800, 10_000)
    for (batch,) in DataLoader(TensorDataset(data), batch_size=4):
        batch.to("cuda", non_blocking=True)
        torch.cuda._sleep(5_000_000)
        optimizer.zero_grad(); model(batch[:, :4]).sum().backward(); optimizer.step()
        torch.cuda._sleep(15_000_000)
    torch.cuda.synchronize()
    print("to" in vars(torch.Tensor), torch.Tensor.cuda is own)
"""


def test_copies_to_the_device_are_a_part_of_the_step(fake_device: FakeDevice, tmp_path: Path) -> None:
    """10 ms for 160 kB, 5 ms of the forward pass and 15 ms after the optimizer's step, all of it queued."""
    (tmp_path / "train.py").write_text(COPIES)
    run, said = fake_device.program(tmp_path, "train.py", FAKE_PAGEABLE_GBS="0.016")
    assert said == "False True\n", "nothing is left of what timed them"
    (loop,) = [loop for loop in run["program"]["loops"] if loop["role"] == "training"]
    split = loop["step_split"]
    whole = sum(split.values())
    assert whole == pytest.approx(loop["seconds"], rel=0.01)
    parts = {part: split[f"{part}_s"] / whole for part in ("copies", "forward", "other")}
    assert parts == pytest.approx({"copies": 10 / 30, "forward": 5 / 30, "other": 15 / 30}, abs=0.1)


@pytest.mark.parametrize(("burst", "supply_ms"), [(1, 20.0), (8, 6.0), (8, 20.0)])
def test_what_a_program_waited_is_what_its_device_idled(
    burst: int, supply_ms: float, fake_device: FakeDevice, tmp_path: Path
) -> None:
    """The step takes 10 ms of the device and next to nothing of the CPU, which waits for data nearly all the time."""
    (tmp_path / "train.py").write_text(TRAINS)
    run, said = fake_device.program(tmp_path, "train.py", str(burst), str(supply_ms))
    (loop,) = [loop for loop in run["program"]["loops"] if loop["role"] == "training"]
    assert loop["by_device"]
    idled, launching = map(float, said.split())
    # On a busy machine the CPU takes its time: from the step's begin to its kernel the device idles, and waits for no data.
    assert loop["wait_share"]["value"] == pytest.approx(idled, abs=max(0.06, 0.02 + launching))


@pytest.mark.parametrize(("supply_ms", "demand"), [(20.0, 10), (5.0, 10)])
def test_a_step_of_the_experiments_takes_as_long_as_on_the_device(
    supply_ms: float, demand: int, fake_device: FakeDevice, tmp_path: Path
) -> None:
    """The CPU hands it over in a millisecond or two, and goes on."""
    (tmp_path / "train.py").write_text(TRAINS)
    run, _ = fake_device.program(tmp_path, "--probe=3", "train.py", "1", str(supply_ms))
    emulated = float(run["consumer"].removeprefix("emulated: ").removesuffix(" ms a batch"))
    assert emulated == pytest.approx(demand, rel=0.3)
