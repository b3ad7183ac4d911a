"""A small language model on tokens that lie in a mapped file, as nanoGPT keeps them: its data is nothing to worry about.

Slow on purpose: the model is. pipefix says that there is nothing to gain from the loader.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("EXAMPLE_SAMPLES", "4096"))
LENGTH, WORDS = 64, 512
FILE = Path(__file__).parent / "data" / f"tokens-{COUNT}.bin"


class Tokens(Dataset):
    def __init__(self) -> None:
        if not FILE.exists():
            FILE.parent.mkdir(parents=True, exist_ok=True)
            np.random.default_rng(0).integers(0, WORDS, COUNT + LENGTH + 1, dtype=np.uint16).tofile(FILE)
        self.tokens = np.memmap(FILE, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int):
        piece = torch.from_numpy(self.tokens[index : index + LENGTH + 1].astype(np.int64))
        return piece[:-1], piece[1:]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(128, WORDS)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(self.embedding(tokens), mask=mask, is_causal=True))


train_loader = DataLoader(Tokens(), batch_size=16, shuffle=True, num_workers=1)

torch.set_num_threads(1)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def train_step(batch):
    tokens, following = batch
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten()).backward()
    optimizer.step()


if __name__ == "__main__":
    for _, batch in zip(range(100), train_loader, strict=False):
        train_step(batch)
