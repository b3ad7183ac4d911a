"""A training program whose process uses a device: those that are forked from it cannot, and must not try to."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.conftest import FakeDevice

TRAINS = """
import sys, torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

class HeldOut(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return torch.zeros(4, dtype=torch.float64).to(torch.float32)

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.zeros(1, device="cuda")
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.randn(160, 4)), batch_size=4, num_workers=1, pin_memory=True, shuffle=True)
    for epoch in range(int(sys.argv[1])):
        for step, (batch,) in enumerate(loader):
            batch.to("cuda", non_blocking=True)
            torch.cuda._sleep(20_000_000); torch.cuda.synchronize()
            loss = model(batch).mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
            if step == 20:
                for held_out in DataLoader(HeldOut(), num_workers=1): model(held_out)
        print(epoch, loss.item().hex())
"""


def test_a_program_is_watched_and_its_loader_probed_beside_it(tmp_path: Path, fake_device: FakeDevice) -> None:
    """Workers of later epochs, and of an evaluation within a step, note nothing on the device and free nothing of it; the process
    in which the loader is probed pins and copies nothing."""
    (tmp_path / "train.py").write_text(TRAINS)
    run, printed = fake_device.program(tmp_path, "--probe=1", "train.py", "3")
    assert len(printed.splitlines()) == 3
    assert [loop["by_device"] for loop in run["program"]["loops"]] == [True, True]
    stages = {stage["stage"]: stage for stage in run["stages"]}
    assert "in another process" in stages["transfer"]["declined"]
    assert stages["ipc"]["wall_s"] is not None
