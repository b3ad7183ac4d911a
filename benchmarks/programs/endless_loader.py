import torch
from made import Made, model, step
from meter import timed
from torch.utils.data import DataLoader


class Endless(DataLoader):
    """Its workers live for ever: the sampler repeats, and the iterator is made once."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Again:
    def __init__(self, sampler) -> None:
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


torch.manual_seed(8)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = Endless(Made(960), batch_size=8, shuffle=True, num_workers=1)
for _epoch in range(2):
    for x, y in timed(loader):
        loss = step(net, optimizer, x, y)
    print(loss.item().hex())
