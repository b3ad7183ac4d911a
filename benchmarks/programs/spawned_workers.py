import torch
from made import Made, model, step
from meter import timed
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.manual_seed(10)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Made(960), batch_size=8, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    for x, y in timed(loader):
        loss = step(net, optimizer, x, y)
    print(loss.item().hex())
