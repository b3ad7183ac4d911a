"""Reviews as lines of JSON, split into tokens by a regular expression each time they are read.

Slow on purpose: tokens of a text never change, and each epoch finds them anew, in one process.
"""

import json
import os
import random
import re
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("EXAMPLE_SAMPLES", "4000"))
FILE = Path(__file__).parent / "data" / f"reviews-{COUNT}.jsonl"
WORD = re.compile(r"\d+|[^\W\d_]+(?:'[a-z]+)?|[^\w\s]", re.UNICODE)


def write() -> None:
    if FILE.exists():
        return
    FILE.parent.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 10))) for _ in range(5000)]
    lines = []
    for number in range(COUNT):
        text = " ".join(chance.choices(words, k=chance.randint(200, 600)))
        lines.append(json.dumps({"text": text.capitalize() + ".", "stars": number % 5}))
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tokenize(text: str) -> list[int]:
    return [hash_of(token.lower()) for token in WORD.findall(text)]


def hash_of(token: str) -> int:
    value = 0
    for character in token:
        value = (value * 31 + ord(character)) % 20011
    return value


class Reviews(Dataset):
    def __init__(self) -> None:
        write()
        self.lines = FILE.read_text(encoding="utf-8").splitlines()

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int):
        review = json.loads(self.lines[index])
        tokens = (tokenize(review["text"]) + [0] * 256)[:256]
        return torch.tensor(tokens), review["stars"]


train_loader = DataLoader(Reviews(), batch_size=32, shuffle=True)

torch.set_num_threads(1)
model = nn.Sequential(nn.EmbeddingBag(20011, 16), nn.Linear(16, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(batch):
    tokens, stars = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens), stars)
    loss.backward()
    optimizer.step()
    return loss


if __name__ == "__main__":
    for batch in train_loader:
        train_step(batch)
