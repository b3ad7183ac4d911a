import torch
from made import Made, model, work
from meter import timed
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(4)
critic, maker = model(), nn.Linear(4, 8)
first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(maker.parameters())
for _epoch in range(2):
    for x, _ in timed(DataLoader(Made(), batch_size=8, shuffle=True)):
        first.zero_grad()
        loss = critic(maker(torch.rand(len(x), 4)).detach()).mean() - critic(x).mean()
        loss.backward()
        first.step()
        second.zero_grad()
        critic(maker(torch.rand(len(x), 4))).mean().backward()
        second.step()
        work()
    print(loss.item().hex())
