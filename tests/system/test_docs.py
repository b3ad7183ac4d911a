"""The pages as a newcomer types them: every command and every block of Python, in a page's order, in a project like theirs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pipefix.plan.planfile import LoaderChange, PlanFile, write

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```(sh|python|yaml)\n(.*?)^ *```$", re.M | re.S)
SIGNATURES = "python.md"
"""Its blocks are signatures, and made of the code."""

DATA = """
from pathlib import Path
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

torch.set_num_threads(1)
transform = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
v2_transforms = v2.RandomHorizontalFlip()
dataset = ImageFolder(Path(__file__).parent / "data" / "imagenet" / "train", transform)
train_loader = DataLoader(dataset, batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def make_loader():
    return train_loader

def train_step(batch):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()

class Stream(IterableDataset):
    def __iter__(self):
        return ((v2.functional.pil_to_tensor(dataset.loader(path)), label) for path, label in dataset.samples)

stream = Stream()
"""
PROGRAM = """
import argparse
from train_data import train_loader, train_step

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", "--max_epochs", type=int, default=1)
parser.add_argument("--lr", type=float)
for epoch in range(100 * parser.parse_args().epochs):
    for batch in train_loader:
        train_step(batch)
"""
CLASSES = """
from train_data import ImageFolder, DataLoader, train_loader, transform

class Photos(ImageFolder):
    def __init__(self, root, split="train"):
        super().__init__(root, transform)

def make_train_loader():
    return train_loader
"""
TEXTS = """
from torch.utils.data import Dataset

class Texts(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {"text": f"the picture number {index}", "label": index}

dataset = Texts()
"""
BEFORE_A_CHANGE = """
import pipefix
from train_data import train_loader, train_step

pipefix.probe(train_loader, step=train_step, budget="1s").save("before.json")
"""
SAME = "from train_data import *\n"
PLANS = ("pipefix.plan.toml", "fixed/pipefix.plan.toml", "fixed-program/pipefix.plan.toml")
FILES = {
    "train_data.py": DATA, "train.py": PROGRAM, "my_data.py": CLASSES, "speech.py": SAME, "clips.py": SAME, "coco.py": SAME,
    "before.py": BEFORE_A_CHANGE,
    "my_package/__init__.py": "", "my_package/data.py": SAME, "package/__init__.py": "", "package/train.py": PROGRAM,
}  # fmt: skip
BEGINNING = """
import pipefix
from pipefix import CachedDataset, FastLoader
from train_data import *

loader = FastLoader(dataset, batch_size=8)
root = "data/imagenet/train"
"""
"""What a reader of a block has already."""

ELSEWHERE = {
    "pip install": "installs",
    "scripts/": "a checkout's own",
    "srun ": "a cluster's",
    "s3://": "a store's",
    "--to dali": "needs DALI",
    "http://127.0.0.1": "needs a job that runs",
    'device="cuda"': "needs a GPU",
    "load_dataset": "needs a network",
    "accelerator.prepare": "tests/frameworks",
    "watching.lightning": "tests/frameworks",
}  # fmt: skip
"""What is not run here, and why."""
BEFORE = {
    "caches.md": [
        f"pipefix convert train_data.py --to lmdb --store {store} --out {out}"
        for store, out in (
            ("source", "cache-source"),
            ("sample", "cache-sample"),
            ("resized", "cache-resized"),
            ("resized", "cache"),
        )
    ],
    "doctor.md": ["pipefix probe train_data.py --out run.json", "pipefix run train.py", "mkdir fixed"],
    "probing.md": ["python before.py"],
    "swap.md": ["pipefix probe train_data.py --out run.json"],
}
"""What an earlier page has made."""
ASKED = {"doctor": (0, 1), "--max-regression": (0, 1), "--undo": (0, 2)}
"""Exit codes where an answer hangs on the machine: findings, a regression, nothing that was kept."""


def parts(page: Path) -> list[tuple[str, str]]:
    """Every command and every block of Python of a page that is run here."""
    found: list[tuple[str, str]] = []
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            found.append((kind, re.sub(r"^ {4}", "", block, flags=re.M) if block.startswith("    ") else block))
        else:
            lines = (line.strip().removeprefix("- run: ") for line in block.replace("\\\n", " ").splitlines())
            found += [("sh", line) for line in lines if kind == "sh" or line.startswith("pipefix ")]
    return [(kind, text) for kind, text in found if not any(word in text for word in ELSEWHERE)]


TYPED = {page: parts(page) for page in PAGES if page.name != SIGNATURES}


@pytest.fixture
def project(tmp_path: Path, preloaded: str) -> Path:
    """A folder with the files that the pages name, and the commands `pipefix` and `python`."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for number in range(32):
        place = tmp_path / "data" / "imagenet" / "train" / "ab"[number % 2] / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((80, 64), 60).convert("RGB").save(place)
    (tmp_path / "data" / "photos").symlink_to(tmp_path / "data" / "imagenet" / "train")
    write(PlanFile(target="train_data.py:1", loader=LoaderChange(num_workers=1)), tmp_path / "spare.toml")
    Tokenizer(WordLevel({"?": 0, "picture": 1}, unk_token="?")).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "bin").mkdir()
    for name in ("pipefix", "python"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec ${{ALONE:-{preloaded}}} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page, typed in TYPED.items() if typed], ids=lambda page: page.name)
def test_it_works_as_printed(page: Path, project: Path) -> None:
    for line in BEFORE.get(page.name, []):
        typed(line, project)
    for kind, text in TYPED[page]:
        for plan in (project / name for name in PLANS if f'"{name}"' in text or f" {name}" in text):
            if not plan.exists():  # nothing helped here
                plan.parent.mkdir(exist_ok=True)
                plan.write_bytes((project / "spare.toml").read_bytes())
        if kind == "python":
            (project / "block.py").write_text(
                BEGINNING + text.replace("range(90)", "range(1)").replace('"cuda"', '"cpu"'), encoding="utf-8"
            )
            typed("python block.py", project)
        elif "MyDataModule" not in text or importlib.util.find_spec("lightning"):
            (project / "train_data.py").write_text(TEXTS if "--text" in text else DATA, encoding="utf-8")
            typed(text, project)
    if page.name == "quickstart.md":
        assert (project / "before.html").exists() and (project / "fixed" / "pipefix.fix.html").exists()


def typed(line: str, project: Path) -> None:
    """One line in a shell, briefly: with a budget of a second, and places outside in the project."""
    brief = re.sub(r"(?<![\w./])/(data|shared)\b", f"{project}/\\1", re.sub(r"--probe(?![\w=-])", "--probe=1", line))
    places = [str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ, "PATH": os.pathsep.join(places), "PYTHONPATH": f"{project}{os.pathsep}{ROOT}", "PIPEFIX_BUDGET": "1s",
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
    }  # fmt: skip
    if "|" in line:  # what is preloaded runs one command after the other
        environment["ALONE"] = f"{sys.executable} -m pipefix"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", brief],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    allowed = next((codes for words, codes in ASKED.items() if words in line), (0,))
    assert done.returncode in allowed, f"{line}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}"
