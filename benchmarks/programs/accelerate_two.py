import torch
from accelerate import Accelerator
from made import Made, model, work
from meter import timed
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
torch.manual_seed(12)
net = model()
net, optimizer, loader = accelerator.prepare(
    net, torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(Made(640), batch_size=8, shuffle=True)
)
for _epoch in range(2):
    for x, y in timed(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        work()
accelerator.print("trained")
accelerator.end_training()
