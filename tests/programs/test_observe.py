"""What is seen of training programs as people write them, and that they are none the different for it."""

from __future__ import annotations

import json
import sys

import pytest

from pipefix.report.runfile import LoopFigures
from tests.programs.conftest import Place, Ran

MANY = """\
import argparse, sys, threading, time
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

class Samples(Dataset):
    def __init__(self, seconds=0.0): self.seconds = seconds
    def __len__(self): return 24
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((4,), float(index)), index % 2

class Endless(DataLoader):  # as ultralytics has it: the iterator is made once, in __init__
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.iterator = super().__iter__()
    def __iter__(self):
        for _ in range(len(self)):
            try:
                yield next(self.iterator)
            except StopIteration:
                self.iterator = super().__iter__()
                yield next(self.iterator)

class Reused(DataLoader):  # as later ones have it: made when it is first asked, and not by __iter__
    iterator = None
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
    def __len__(self): return len(self.batch_sampler.sampler)
    def __iter__(self):
        if self.iterator is None: self.iterator = self._get_iterator()
        for _ in range(len(self)): yield next(self.iterator)

class Again:
    def __init__(self, sampler): self.sampler = sampler
    def __iter__(self):
        while True: yield from iter(self.sampler)

class Ahead:  # as prefetchers have it: the next batch is taken before this one is used
    def __init__(self, loader): self.loader = loader
    def __iter__(self):
        batches = iter(self.loader)
        batch = next(batches, None)
        while batch is not None:
            following = next(batches, None)
            yield batch
            batch = following

class Own(DataLoader):  # its own iterator around torch's
    def __iter__(self): return Counting(super().__iter__())

class Counting:
    def __init__(self, batches): self.batches = batches
    def __iter__(self): return self
    def __next__(self): return next(self.batches)

model = nn.Linear(4, 2)
other = nn.Linear(4, 2)
first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))

def step(x, *optimizers):
    for optimizer in optimizers or (first,):
        optimizer.zero_grad()
        (model(x) + other(x)).square().mean().backward()
        optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.parse_args()
    training = DataLoader(Samples(0.003), batch_size=4)
    checked = DataLoader(Samples(), batch_sampler=BatchSampler(range(10), 5, False))
    for number, (x, y) in enumerate(training):
        step(x)
        if number == 2:
            with torch.no_grad():
                for x, y in checked: model(x)
    adversarial = DataLoader(Samples(), batch_size=8)
    for x, y in adversarial: step(x, first, second)
    endless = Endless(Samples(), batch_size=6)
    for epoch in range(3):
        for x, y in endless: step(x)
    reused = Reused(Samples(), batch_size=6)
    for epoch in range(3):
        for x, y in reused: step(x)
    for x, y in Ahead(DataLoader(Samples(), batch_size=12)): step(x)
    for x, y in Own(Samples(), batch_size=4): step(x)
    counted = DataLoader(Samples(), batch_size=4)
    for epoch in range(3):  # as trainers do that count batches: no epoch is taken to its end
        for number, (x, y) in enumerate(counted):
            step(x)
            if number == 2: break
    print("lr", sum(p.sum().item() for p in model.parameters()) != 0)
    for x, y in DataLoader(Samples(), batch_size=4): raise RuntimeError("of the loop's body")

if __name__ == "__main__": main()
"""


def line(text: str, what: str) -> str:
    return f"train.py:{text[: text.index(what)].count(chr(10)) + 1}"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, preloaded: str) -> tuple[Ran, Ran]:
    """A program with many loops, with pipefix and without."""
    import os

    from tests.programs.conftest import ROOT

    place = Place(tmp_path_factory.mktemp("many"), {**os.environ, "PYTHONPATH": str(ROOT)}, preloaded.split())
    place.write(MANY)
    return place.run("train.py", "--lr", "0.1"), place.alone("train.py", "--lr", "0.1")


def loop_at(ran: Ran, what: str) -> LoopFigures:
    (found,) = [loop for loop in ran.program.loops if loop.loader == line(MANY, what)]
    return found


def test_the_program_is_the_same(many: tuple[Ran, Ran]) -> None:
    ran, alone = many
    assert (ran.code, ran.out) == (alone.code, alone.out) == (1, "lr True\n")
    assert ran.err.startswith(alone.err), "its traceback, without a frame of ours"


@pytest.mark.parametrize(
    ("maker", "role", "steps", "samples", "epochs"),
    [
        ("training = ", "train", 6, 24, 1),
        ("checked = ", "evaluate", 2, 10, 1),
        ("adversarial = ", "train", 3, 24, 1),
        ("endless = ", "train", 12, 72, 3),
        ("reused = ", "train", 12, 72, 1),
        ("in Ahead(", "train", 2, 24, 1),
        ("in Own(", "train", 6, 24, 1),
        ("counted = ", "train", 9, 36, 3),
        ("DataLoader(Samples(), batch_size=4): raise", "other", 1, 4, 1),
    ],
)
def test_every_loop_is_seen(many: tuple[Ran, Ran], maker: str, role: str, steps: int, samples: int, epochs: int) -> None:
    loop = loop_at(many[0], maker)
    assert (loop.role, loop.steps, loop.samples, len(loop.first_batch_s)) == (role, steps, samples, epochs)


def test_time_goes_where_it_went(many: tuple[Ran, Ran]) -> None:
    training, checked = loop_at(many[0], "training = "), loop_at(many[0], "checked = ")
    assert training.wait_share is not None
    assert training.step_split["wait_s"] >= 24 * 0.003
    assert training.step_split["inner_s"] == pytest.approx(checked.seconds, rel=0.5, abs=0.01)
    assert training.seconds == pytest.approx(sum(training.step_split.values()) - training.step_split["inner_s"], rel=0.01)
    assert loop_at(many[0], "counted = ").step_split["inner_s"] == 0
    assert training.step_split["backward_s"] > 0 < training.step_split["optimizer_s"]
    assert many[0].program.overhead_share < 0.05


def test_the_parts_of_a_step_and_what_lies_between_epochs(place: Place) -> None:
    """The program times its own sleeps: on a busy machine they take longer than it asked for."""
    place.write("""\
        import json, time, torch
        from torch.utils.data import DataLoader
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(torch.ones(5, 1))
        checked = DataLoader(torch.ones(3, 1))
        model(torch.ones(1, 1)).sum().backward(); optimizer.step()
        spent = {"forward": 0.0, "other": 0.0, "checked": 0.0, "between": 0.0}
        def sleep(seconds, what):
            begun = time.perf_counter()
            time.sleep(seconds)
            spent[what] += time.perf_counter() - begun
        for epoch in range(3):
            for x in loader:
                begun = time.perf_counter()
                out = model(x).sum()
                spent["forward"] += time.perf_counter() - begun
                sleep(0.02, "forward")
                out.backward()
                optimizer.step()
                sleep(0.03, "other")
            for x in checked: sleep(0.1, "checked")
            if epoch < 2: sleep(0.8, "between")
        print(json.dumps(spent))
    """)
    ran = place.run()
    training = next(loop for loop in ran.program.loops if loop.role == "train")
    split, spent = training.step_split, json.loads(ran.out)
    assert 15 * 0.02 <= split["forward_s"] == pytest.approx(spent["forward"], abs=0.1)
    assert 15 * 0.03 <= split["other_s"] == pytest.approx(spent["other"], abs=0.1)
    assert 2 * 0.8 <= training.between_epochs_s == pytest.approx(spent["between"], abs=0.1), (
        f"the evaluation between them is a loop of its own, which took {spent['checked']} s"
    )
    assert "of the program's time passed between epochs of the loop over the loader made at train.py:5" in " ".join(ran.err.split())


def test_batches_without_a_loader(place: Place) -> None:
    place.write(
        """\
        import time, torch
        data, model = torch.arange(1000.0), torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        def get_batch():
            start = int(torch.randint(900, ()))
            return data[start : start + 4]
        for _ in range(30):
            optimizer.zero_grad()
            model(get_batch()).sum().backward()
            optimizer.step()
        """
    )
    ran = place.run()
    (loop,) = ran.program.loops
    assert (loop.loader, loop.role, loop.steps, loop.wait_share) == ("", "train", 30, None)
    assert "trains without a DataLoader" in ran.err
    text = (place.folder / "train.py").read_text()
    by_hand = "for one in model.parameters(): one.data.add_(one.grad, alpha=-0.1)"
    place.write(text.replace("optimizer.zero_grad()", "model.zero_grad()").replace("optimizer.step()", by_hand))
    (loop,) = place.run().program.loops
    assert (loop.role, loop.steps) == ("train", 30), "by its backward passes"


WITHOUT_LOADER = """\
    import sys, time, torch
    data, kind = torch.arange(1000.0), sys.argv[1]
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)
        def forward(self, x):
            time.sleep(0.04)
            if len(x) < 4: raise ValueError("too short")
            return self.inner(x)
    class Shifted(torch.nn.Module):
        "A transform: no parameters."
        def forward(self, x):
            if kind == "outside": time.sleep(0.04)
            return x + 1
    model, shifted = Model(), Shifted()
    optimizer = torch.optim.AdamW(model.parameters())
    def get_batch():
        start = int(torch.randint(900, ()))
        return shifted(data[start : start + 4])
    def step():
        optimizer.zero_grad()
        model(get_batch()).sum().backward()
        optimizer.step()
    for _ in range(50): step()
    hooks = torch.nn.modules.module
    print(len(hooks._global_forward_pre_hooks), len(model._forward_hooks), len(shifted._forward_hooks))
    if kind == "torn":
        # In a step that is looked into, torch itself calls the model by one function more, which a traceback shows.
        while hooks._global_forward_pre_hooks: step()
        model(data[:3])
    """


@pytest.mark.parametrize("kind", ["inside", "outside", "torn"])
def test_what_passes_outside_the_models_is_told(kind: str, place: Place) -> None:
    place.write(WITHOUT_LOADER)
    ran = place.run("train.py", kind)
    (loop,) = ran.program.loops
    share = loop.outside_share
    assert share is not None
    # About half, or next to nothing. A step that the machine held up widens the interval.
    assert share.high > 0.4 if kind == "outside" else share.low < 0.3
    hooks, *others = ran.out.split()
    assert hooks in "01", "a step is looked into, or none is"
    assert others == ["0", "0"]
    told = "passes outside its models, their backward passes and the optimizer's steps" in " ".join(ran.err.split())
    assert told
    alone = place.alone("train.py", kind)
    assert (ran.code, ran.err.startswith(alone.err)) == (alone.code, True)


def test_models_that_are_compiled_are_left_alone(place: Place) -> None:
    """A hook would have them compiled again."""
    place.write("""
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(model, backend="eager")
        for _ in range(3000):
            optimizer.zero_grad()
            compiled(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        from torch._dynamo.utils import counters
        print(counters["frames"]["total"], counters["stats"]["unique_graphs"])
    """)  # fmt: skip
    ran, alone = place.run(), place.alone()
    assert (ran.code, ran.out) == (alone.code, alone.out)
    assert ran.program.loops[0].outside_share is None


def test_spawned_workers(place: Place) -> None:
    place.write(
        """\
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        print("module", __name__)
        if __name__ == "__main__":
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, num_workers=1, multiprocessing_context="spawn")
            for (x,) in loader:
                optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
        """
    )
    ran, alone = place.run(), place.alone()
    assert (ran.code, ran.out) == (alone.code, alone.out)
    assert ran.out == "module __main__\nmodule __mp_main__\n"
    (loop,) = ran.program.loops
    assert (loop.loader, loop.role, loop.steps, loop.workers) == ("train.py:7", "train", 4, 1)
    assert loop.first_batch_s[0] > 0.2, "what it takes to start the worker"
    assert not ran.program.killed


@pytest.mark.skipif(sys.platform != "linux", reason="gloo over loopback is tried on Linux")
def test_two_ranks(place: Place) -> None:
    place.write(
        """\
        import os, time, torch, torch.distributed as dist
        from torch.utils.data import DataLoader, TensorDataset
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        class Slow(TensorDataset):
            def __getitem__(self, index):
                time.sleep(0.02 * dist.get_rank())
                return super().__getitem__(index)
        for (x,) in DataLoader(Slow(torch.ones(40, 2)), batch_size=2):
            optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
        # gloo ends a rank by SIGABRT now and then (3 of 8 runs, without pipefix too) where the model outlives the group
        dist.barrier(); del model, optimizer
        dist.destroy_process_group()
        """
    )
    ran = place.run(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py", env={"OMP_NUM_THREADS": "1"}
    )
    assert ran.code == 0, ran.err
    assert ran.program.ranks == 2
    quick, slow = sorted(ran.program.loops, key=lambda loop: loop.rank or 0)
    assert (quick.rank, slow.rank, quick.steps, slow.steps) == (0, 1, 20, 20)
    assert quick.wait_share is not None
    assert slow.wait_share is not None
    # Not by the share alone: a step that the machine holds up in one rank lengthens the time of both.
    assert slow.step_split["wait_s"] >= 40 * 0.02
    assert slow.wait_share.value == pytest.approx(slow.step_split["wait_s"] / slow.seconds)
    assert quick.step_split["wait_s"] < slow.step_split["wait_s"] / 2
    assert quick.wait_share.value < slow.wait_share.value / 2
    assert quick.step_split["backward_s"] > 19 * 0.02, "there it waits for the other"
    assert ran.run is not None
    assert ran.run.verdict is not None
    assert "rank 1 of 2" in ran.run.verdict.sentence


def test_nodes_are_a_loader(light: Place) -> None:
    """As torchdata's are: an iterator that is reset to begin again, and nodes within it that are iterators of the same class."""
    light.write("", "library/torchdata/__init__.py")
    light.write("", "library/torchdata/nodes/__init__.py")
    light.write(
        """\
        class BaseNode:
            def __iter__(self): return self
            def __next__(self): return self.next()
        class Inner(BaseNode):
            def reset(self): self.left = iter(range(6))
            def next(self): return next(self.left)
        class LoaderIterator(BaseNode):
            def __init__(self, loader): self.root = loader.root
            def next(self): return next(self.root)
        class Loader:
            def __init__(self, root): self.root, self._it = root, None
            def __iter__(self):
                if self._it is None: self._it = LoaderIterator(self)
                self.root.reset()
                return self._it
        """,
        "library/torchdata/nodes/loader.py",
    )
    light.write(
        """\
        import torch
        from torch.utils.data import DataLoader
        from torchdata.nodes.loader import Inner, Loader
        loader = Loader(Inner())
        optimizer = torch.Optimizer()
        for epoch in range(3):
            for batch in loader: optimizer.step()
        """
    )
    (loop,) = light.run().program.loops
    assert (loop.loader, loop.role, loop.steps) == ("train.py:4", "train", 18)


OWN_CLOCK = """
        import time
        now = 100.0
        time.perf_counter = lambda: now  # whoever asks for the time from here on gets this: no machine is busy by it
        def sleep(seconds):
            global now
            now += seconds
        import torch
        from torch.utils.data import DataLoader
"""


@pytest.mark.parametrize(("wait", "step", "kind"), [(0.02, 0.02, "input-bound"), (0.0005, 0.04, "step-bound")])
def test_a_program_of_a_second_has_a_verdict(wait: float, step: float, kind: str, light: Place) -> None:
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(30):
                    sleep({wait})
                    yield torch.autograd
        loader = DataLoader(Slow())
        optimizer = torch.Optimizer()
        for batch in loader:
            sleep({step})
            optimizer.step()
    """)  # fmt: skip
    ran = light.run()
    (loop,) = ran.program.loops
    assert loop.wait_share is not None and loop.wait_share.value == pytest.approx(wait / (wait + step))
    assert ran.run is not None and ran.run.verdict.kind == kind, ran.err


@pytest.mark.parametrize("taken", ["for batch in loader", "for batch in [next(iter(loader)) for _ in range(1)]"])
def test_steps_on_a_batch_after_which_none_is_asked_for_count(taken: str, light: Place) -> None:
    """Loops that are left, and loaders that a single batch is taken of each time."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                sleep(0.02)
                yield torch.autograd
                yield torch.autograd
        loader = DataLoader(Slow())
        optimizer = torch.Optimizer()
        for epoch in range(10):
            {taken}:
                sleep(0.06)
                optimizer.step()
                break
    """)  # fmt: skip
    ran = light.run()
    (loop,) = ran.program.loops
    assert loop.steps == 10
    assert loop.wait_share is not None and loop.wait_share.value == pytest.approx(0.02 / 0.08)
    assert loop.wait_share.low == loop.wait_share.high, "every batch is the first of its epoch: nothing is left to chance"
    assert ran.run is not None and ran.run.verdict.kind == "input-bound"
