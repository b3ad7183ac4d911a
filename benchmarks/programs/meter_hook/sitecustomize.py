"""An independent meter for programs that nobody here wrote: how long their training loops waited, by its own clock.

A program's own ``sitecustomize``, as far as pipefix knows. Loops whose batches are asked for without gradients are evaluations.
"""

import atexit
import json
import os
import sys
import time
from importlib.machinery import PathFinder


class _Epoch:
    def __init__(self, trains, begun):
        self.trains, self.begun = trains, begun
        self.batches = 0
        self.waited = self.took = self.handed_out = 0.0
        """Seconds, and when the latest batch was handed out; 0 when there is none."""
        self.around = None
        """The training epoch that this one, an evaluation, began in."""


_epochs = []
_of = {}
"""By iterator: its present epoch."""


class _Finder:
    """Once torch's loaders are imported, their iterators are timed."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.utils.data.dataloader":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _time(module)

        spec.loader.exec_module = exec_module
        return spec


def _time(module):
    import torch

    begin, following = module.DataLoader.__iter__, module._BaseDataLoaderIter.__next__

    def began(self):
        epoch = _Epoch(torch.is_grad_enabled(), time.perf_counter())
        iterator = begin(self)
        epoch.waited = epoch.took = time.perf_counter() - epoch.begun
        if not epoch.trains:
            epoch.around = next((one for one in reversed(_epochs) if one.trains and one.handed_out), None)
        _epochs.append(epoch)
        _of[id(iterator)] = epoch
        return iterator

    def handed_out(self):
        asked = time.perf_counter()
        epoch = _of.get(id(self))
        ended = True
        try:
            batch = following(self)
            ended = False
            return batch
        finally:
            if epoch is not None:
                now = time.perf_counter()
                epoch.batches += not ended
                epoch.waited += now - asked
                epoch.took += now - (epoch.handed_out or asked)
                epoch.handed_out = 0.0 if ended else now
                if ended and epoch.around is not None:
                    epoch.around.took -= now - epoch.begun

    module.DataLoader.__iter__ = began
    module._BaseDataLoaderIter.__next__ = handed_out


def _tell():
    place = os.environ.get("METER")
    if place and _epochs:
        # Of a single batch nothing tells how long it was worked on.
        training = [epoch for epoch in _epochs if epoch.trains and epoch.batches > 1]
        with open(f"{place}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump({"waited_s": sum(one.waited for one in training), "took_s": sum(one.took for one in training)}, file)


sys.meta_path.insert(0, _Finder())
atexit.register(_tell)
