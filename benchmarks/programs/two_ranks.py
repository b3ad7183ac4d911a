import torch
import torch.distributed as dist
from made import Made, model, step
from meter import timed
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(9)
net = torch.nn.parallel.DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = Made(640)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in timed(loader):
        step(net, optimizer, x, y)
if dist.get_rank() == 0:
    print("trained")
dist.destroy_process_group()
