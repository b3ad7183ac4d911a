"""Large PNG pictures and masks, made small and turned alike; a step that a device would take."""

import argparse
import random
import time
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import hflip, to_tensor


class Pairs(Dataset):
    def __init__(self, folder):
        self.pictures = sorted(Path(folder).glob("picture-*.png"))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        path = self.pictures[index]
        picture = Image.open(path).convert("RGB").resize((128, 128), Image.BILINEAR)
        mask = Image.open(path.with_name(path.name.replace("picture", "mask"))).resize((128, 128), Image.NEAREST)
        if random.random() < 0.5:
            picture, mask = hflip(picture), hflip(mask)
        return to_tensor(picture), torch.as_tensor(list(mask.getdata()), dtype=torch.long).reshape(128, 128)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("epochs", type=int)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pairs(f"{args.data}/pairs"), batch_size=8, shuffle=True, num_workers=1, drop_last=True)
    model = torch.nn.Conv2d(3, 2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for picture, mask in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(picture), mask)
            loss.backward()
            optimizer.step()
            time.sleep(0.01)
        print(epoch, loss.item())


main()
