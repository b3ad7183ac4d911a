import argparse

import torch
from made import Made, model, step
from meter import timed
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, required=True)
    args = parser.parse_args()
    torch.manual_seed(1)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
    loader = DataLoader(Made(), batch_size=8, shuffle=True, num_workers=1)
    for epoch in range(args.epochs):
        for x, y in timed(loader):
            loss = step(net, optimizer, x, y)
        print(epoch, loss.item().hex())


if __name__ == "__main__":
    main()
