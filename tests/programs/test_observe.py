"""What is seen of training programs as people write them, and that they are none the different for it."""

from __future__ import annotations

import os

import pytest

from pipefix.plan import planfile
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.report.program_figures import LoopFigures
from tests.programs import without_loader
from tests.programs.conftest import PATH, STAND_IN, Place, Ran

MANY = """\
import argparse, io, sys, threading, time
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

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

class Shards(IterableDataset):
    def __init__(self, *sizes): self.sizes = sizes
    def __iter__(self): return iter([torch.ones(4)] * self.sizes[get_worker_info().id])

def epochs(training, held_out):
    for epoch in range(2):
        for x in training:
            step(x)
            torch.save(model.state_dict(), io.BytesIO())
        with torch.no_grad():
            for x in held_out: model(x)

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
    in_workers = DataLoader(Shards(20, 20), batch_size=2, num_workers=2), DataLoader(torch.ones(8, 4), num_workers=1)
    epochs(*in_workers)
    idle = DataLoader(Shards(40, 0), batch_size=2, num_workers=2)
    kept = DataLoader(torch.ones(8, 4), batch_size=2, num_workers=1, persistent_workers=True)
    epochs(idle, kept)
    each_anew = DataLoader(Samples(), batch_size=4)
    for x, y in each_anew:  # as Hugging Face's Trainer has it
        with torch.no_grad(): model(x)
    mixed = DataLoader(Samples(), batch_size=4)
    checks = iter(DataLoader(Samples(), batch_size=2))
    for number, (x, y) in enumerate(mixed):
        if number in (1, 3):
            seen, _ = next(checks)
            with torch.no_grad(): model(seen)
        step(x)
    looked_at = DataLoader(Samples(), batch_size=4)
    for number, (x, y) in enumerate(looked_at):
        if number == 2: break
    with torch.no_grad():
        for x, y in checked: model(x)
    assert not torch.nn.modules.module._global_forward_pre_hooks
    threaded = DataLoader(Samples(), batch_size=4)
    def trains():
        for x, y in threaded: step(x)
    thread = threading.Thread(target=trains)
    thread.start()
    thread.join()
    planned = DataLoader(Samples(), batch_size=3)
    for x, y in planned: step(x)
    print("lr", sum(p.sum().item() for p in model.parameters()) != 0)
    for x, y in DataLoader(Samples(), batch_size=4): raise RuntimeError("of the loop's body")

if __name__ == "__main__": main()
"""


def line(text: str, what: str) -> str:
    return f"train.py:{text[: text.index(what)].count(chr(10)) + 1}"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, preloaded: str) -> tuple[Ran, Ran]:
    """A program with many loops, with pipefix and without; with a plan for one of its loaders."""
    place = Place(tmp_path_factory.mktemp("many"), {**os.environ, "PYTHONPATH": PATH}, preloaded.split())
    place.write(MANY)
    plan = PlanFile(target=line(MANY, "planned = "), loader=LoaderChange(num_workers=1))
    planfile.write(plan, place.folder / "pipefix.plan.toml")
    ran = place.run("train.py", "--lr", "0.1", options=["--plan", "pipefix.plan.toml"])
    return ran, place.alone("train.py", "--lr", "0.1")


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
        ("training = ", "training", 6, 24, 1),
        ("each_anew = ", "evaluation", 6, 24, 1),
        ("mixed = ", "training", 6, 24, 1),
        ("checks = ", "evaluation", 2, 4, 1),
        ("looked_at = ", "unknown", 3, 12, 1),
        ("adversarial = ", "training", 3, 24, 1),
        ("endless = ", "training", 12, 72, 3),
        ("reused = ", "training", 12, 72, 1),
        ("in Ahead(", "training", 2, 24, 1),
        ("in Own(", "training", 6, 24, 1),
        ("counted = ", "training", 9, 36, 3),
        ("threaded = ", "training", 6, 24, 1),
        ("planned = ", "training", 8, 24, 1),
        ("DataLoader(Samples(), batch_size=4): raise", "unknown", 1, 4, 1),
    ],
)
def test_every_loop_is_seen(many: tuple[Ran, Ran], maker: str, role: str, steps: int, samples: int, epochs: int) -> None:
    loop = loop_at(many[0], maker)
    assert (loop.role, loop.steps, loop.samples, len(loop.first_batch_s)) == (role, steps, samples, epochs)


def test_a_loader_that_is_gone_through_at_two_lines_is_one_loop(many: tuple[Ran, Ran]) -> None:
    checked = loop_at(many[0], "checked = ")
    assert (checked.role, checked.steps, checked.samples) == ("evaluation", 4, 20)


def test_time_is_told_apart(many: tuple[Ran, Ran]) -> None:
    training = loop_at(many[0], "training = ")
    split = training.step_split
    assert training.wait_share is not None
    assert training.seconds == pytest.approx(sum(split.values()) - split["inner_s"])
    assert split["inner_s"] > 0 == loop_at(many[0], "counted = ").step_split["inner_s"]
    assert split["backward_s"] > 0 < split["optimizer_s"]


def test_the_loader_that_a_plan_is_for_comes_up_with_it(many: tuple[Ran, Ran]) -> None:
    place = line(MANY, "planned = ")
    assert many[0].program.planned == [place]
    assert loop_at(many[0], "planned = ").workers == 1
    assert f"was in place for the loader made at {place}" in " ".join(many[0].err.split())


def test_what_loops_pay_beside_their_batches_is_told(many: tuple[Ran, Ran]) -> None:
    """Workers without a part of the stream, and a pool kept for an evaluation; nothing of loaders that have neither."""
    found = {finding.id: finding.found for finding in many[0].program.findings or ()}
    found.pop("workers-anew", None)  # where this machine takes long to start a process
    assert found.keys() == {"idle-workers", "idle-pools"}
    assert found["idle-workers"].startswith("the stream has no part, or a short one, for 1 of 2 workers")
    assert f"(loader made at {line(MANY, 'idle = ')})" in found["idle-workers"]
    assert f"1 of the loader made at {line(MANY, 'kept = ')}" in found["idle-pools"]


OWN_CLOCK = """
        import sys, time
        now = 100.0
        time.perf_counter = lambda: now  # whoever asks for the time from here on gets this: no machine is busy by it
        def passes(seconds):
            global now
            now += seconds
        import torch
        from torch.utils.data import DataLoader
"""


@pytest.fixture
def timed(light: Place) -> Place:
    """The stand-in's backward pass takes 1/16 s of the program's own clock, and its optimizer's step 1/8; a checkpoint 4."""
    light.write("def backward():\n    import __main__\n    __main__.passes(1 / 16)\n", "library/torch/autograd.py")
    light.write("def save():\n    import __main__\n    __main__.passes(4)\n", "library/torch/serialization.py")
    begin = "from . import autograd, serialization\nfrom .serialization import save\n"
    light.write(begin + STAND_IN["torch/__init__.py"], "library/torch/__init__.py")
    light.write(
        """\
        before, after = [], []
        register_optimizer_step_pre_hook, register_optimizer_step_post_hook = before.append, after.append
        class Optimizer:
            def step(self):
                import __main__
                for hook in before: hook(self, (), {})
                __main__.passes(1 / 8)
                for hook in after: hook(self, (), {})
        """,
        "library/torch/optim/optimizer.py",
    )
    return light


def test_the_parts_of_a_step_and_what_lies_between_epochs(timed: Place) -> None:
    timed.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(5):
                    passes(1 / 4)
                    yield torch.autograd
        loader = DataLoader(Slow())
        checked = DataLoader(Slow())
        optimizer = torch.Optimizer()
        for epoch in range(3):
            for number, batch in enumerate(loader):
                passes(1 / 2)
                torch.autograd.backward()
                optimizer.step()
                passes(1 / 32)
                if number == 2:
                    for batch in checked: passes(1 / 64)
            for batch in checked: passes(1 / 64)
            torch.save()
            if epoch < 2: passes(8)
    """)  # fmt: skip
    ran = timed.run()
    training = next(loop for loop in ran.program.loops if loop.role == "training")
    evaluation = 5 * (1 / 4 + 1 / 64)
    wanted = {"wait_s": 15 / 4, "forward_s": 15 / 2, "backward_s": 15 / 16, "optimizer_s": 15 / 8, "other_s": 15 / 32}
    assert training.step_split == pytest.approx({**wanted, "inner_s": 3 * evaluation})
    assert training.between_epochs_s == pytest.approx(2 * 12), "the evaluation between them is a loop of its own"
    account = ran.program.account
    assert account is not None
    assert (account.checkpoints, account.between_epochs) == pytest.approx((3 * 4, 2 * 8)), "also after an evaluation"
    assert account.first_batch + account.training == pytest.approx(training.seconds)
    assert training.seconds == pytest.approx(sum(wanted.values()))
    assert "of the program's time passed between epochs of the loop over the loader made at train.py:" in " ".join(ran.err.split())


def test_an_evaluation_that_is_left_early_is_no_time_between_epochs(light: Place) -> None:
    """As with ``limit_val_batches``: it was counted twice, and told as time in which no loop ran."""
    light.write(f"""{OWN_CLOCK}
        training, held_out = DataLoader([torch.autograd] * 4), DataLoader([torch.autograd] * 9)
        optimizer = torch.Optimizer()
        for epoch in range(3):
            for batch in training:
                passes(1 / 4)
                optimizer.step()
            for number, batch in enumerate(held_out):
                if number == 5: break
                passes(2)
            passes(1 / 8)
            for batch in DataLoader([torch.autograd]): passes(1 / 16)
    """)
    loops = light.run().program.loops
    assert (loops[0].role, loops[0].between_epochs_s) == ("training", pytest.approx(2 / 8))
    assert [loop.seconds for loop in loops] == pytest.approx([3, 3 * 10, 3 / 16])


def test_a_program_that_waits_for_its_workers_to_end(timed: Place) -> None:
    """As torch before 2.13 does for those that are kept and whose batches are pinned: its handler is there before ours."""
    timed.write(f"""{OWN_CLOCK}
        import atexit
        class Kept(DataLoader):
            num_workers, persistent_workers = 1, True
            def __iter__(self):
                atexit.register(passes, 5)
                return super().__iter__()
        optimizer = torch.Optimizer()
        for batch in Kept([torch.autograd] * 8):
            passes(1)
            torch.autograd.backward()
            optimizer.step()
        atexit.register(passes, 7)
    """)  # fmt: skip
    program = timed.run().program
    assert program.account is not None
    assert program.account.end == 5, "the program's own handler is its own line"
    assert [finding.id for finding in program.findings] == ["slow-end"]


@pytest.mark.parametrize("pair", ["zip(whole, itertools.cycle(kept))", "zip(itertools.cycle(kept), whole)"])
def test_batches_that_the_program_kept_beside_those_of_another_loader(pair: str, timed: Place) -> None:
    timed.write(f"""{OWN_CLOCK}
        import itertools
        whole = DataLoader([torch.autograd] * 30)
        kept = DataLoader([torch.autograd] * 8)
        for batches in {pair}: torch.autograd.backward()
        for batches in zip(DataLoader([torch.autograd] * 30), DataLoader([torch.autograd] * 12)): torch.autograd.backward()
    """)  # fmt: skip
    (finding,) = timed.run().program.findings or ()
    assert (finding.id, finding.found.split(" was gone")[0]) == ("batches-from-memory", "the loader made at train.py:13")


def test_batches_that_the_program_kept_are_no_loop_over_the_loader(timed: Place) -> None:
    """``itertools.cycle(loader)``: it told 321 % of backward passes, and "input-bound" of the eight steps that waited."""
    timed.write(f"""{OWN_CLOCK}
        import itertools
        class Slow:
            def __iter__(self):
                for number in range(8):
                    passes(4)
                    yield torch.autograd
        batches = itertools.cycle(DataLoader(Slow()))
        optimizer = torch.Optimizer()
        for step in range(200):
            next(batches)
            passes(1 / 2)
            torch.autograd.backward()
            optimizer.step()
    """)  # fmt: skip
    program = timed.run().program
    kept, seen = program.loops
    assert (kept.loader, kept.role, seen.role, seen.steps) == ("", "training", "training", 8)
    assert kept.steps == 200 - 2 * 8, "so many more of one loop might be of batches that were taken ahead"
    assert seen.step_split["backward_s"] == pytest.approx(8 / 16) and seen.step_split["optimizer_s"] == pytest.approx(8 / 8)
    assert [finding.id for finding in program.findings] == ["batches-from-memory"]


def test_an_iterator_that_was_made_early_and_is_kept_for_all_epochs(timed: Place) -> None:
    """As a `StatefulDataLoader` makes it to tell its state (Accelerate asks for that), and as persistent workers have it."""
    timed.write(f"""{OWN_CLOCK}
        class Batches:
            def __init__(self, dataset): self.dataset = dataset
            def __iter__(self): return self
            def begin(self): passes(1 / 32); self.left = iter(self.dataset)
            def __next__(self):
                passes(1 / 4)
                return next(self.left)
        class Early(DataLoader):
            def _get_iterator(self): return Batches(self.dataset)
            def state_dict(self): self.kept = self._get_iterator()
            def __iter__(self):
                self.kept.begin()
                return self.kept
        loaders = [Early([torch.autograd] * 3) for _ in range(2)]
        for loader in loaders: loader.state_dict()
        optimizer = torch.Optimizer()
        for epoch in range(3):
            for number, batch in enumerate(loaders[0]):
                optimizer.step()
                if number == 1 == epoch: break
            for batch in loaders[1]: passes(1 / 64)
            passes(8)
        """)
    training, other = timed.run().program.loops
    assert (training.role, training.steps, other.role, other.steps) == ("training", 3 + 2 + 3, "unknown", 3 * 3)
    assert training.first_batch_s == other.first_batch_s == [1 / 32 + 1 / 4] * 3
    assert training.between_epochs_s == 8, "after the first epoch; the second one was left, and nobody knows when"
    assert training.step_split["other_s"] == 0 < training.step_split["optimizer_s"] == 8 / 8


def test_an_optimizer_that_calls_for_the_gradients_itself(timed: Place) -> None:
    """As Lightning has it, and LBFGS: forward and backward are in its step, and count once."""
    optimizer = timed.folder / "library" / "torch" / "optim" / "optimizer.py"
    text = (
        optimizer.read_text()
        .replace("def step(self):", "def step(self, closure):")
        .replace("__main__.passes", "closure(); __main__.passes")
    )
    optimizer.write_text(text)
    timed.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(5):
                    passes(1 / 4)
                    yield torch.autograd
        def closure():
            passes(1 / 2)
            torch.autograd.backward()
        optimizer = torch.Optimizer()
        for batch in DataLoader(Slow()): optimizer.step(closure)
        """)
    (loop,) = timed.run().program.loops
    split = {"wait": 5 / 4, "forward": 5 / 2, "backward": 5 / 16, "optimizer": 5 / 8, "inner": 0.0, "other": 0.0}
    assert {name.removesuffix("_s"): seconds for name, seconds in loop.step_split.items()} == split


def test_what_passes_outside_the_models_is_told(place: Place) -> None:
    """Of a program without a loader; the step that is looked into when its model raises shows no frame of ours."""
    place.write(without_loader.program(without_loader.OWN_CLOCK, model="sleep(0.0625)", transform="sleep(1 / 64)"))
    ran = without_loader.ran_as_alone(place, "torn")
    (loop,) = ran.program.loops
    assert (loop.loader, loop.role, loop.wait_share) == ("", "training", None)
    assert loop.outside_share is not None
    assert loop.outside_share.value == pytest.approx(1 / 5)
    assert "trains without a DataLoader" in " ".join(ran.err.split())


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
    assert (loop.loader, loop.role, loop.steps) == ("train.py:4", "training", 18)
    planfile.write(PlanFile(target="train.py:4", loader=LoaderChange(num_workers=1)), light.folder / "pipefix.plan.toml")
    ran = light.run(options=["--plan", "pipefix.plan.toml"])
    assert (ran.code, ran.program.loops[0].steps, ran.program.errors) == (0, 18, []), "it is no DataLoader: left alone"
    assert "changed nothing: no DataLoader was made at the line" in " ".join(ran.err.split())


@pytest.mark.parametrize(("wait", "step", "kind"), [(0.02, 0.02, "input-bound"), (0.0005, 0.04, "step-bound")])
def test_a_program_of_a_second_has_a_verdict(wait: float, step: float, kind: str, light: Place) -> None:
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(30):
                    passes({wait})
                    yield torch.autograd
        loader = DataLoader(Slow())
        optimizer = torch.Optimizer()
        for batch in loader:
            passes({step})
            optimizer.step()
    """)  # fmt: skip
    ran = light.run()
    (loop,) = ran.program.loops
    assert loop.wait_share is not None and loop.wait_share.value == pytest.approx(wait / (wait + step))
    assert ran.run is not None and ran.run.verdict.kind == kind, ran.err


def test_steps_on_a_batch_after_which_none_is_asked_for_count(light: Place) -> None:
    """Loops that are left, and loaders that a single batch is taken of each time."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                passes(0.02)
                yield torch.autograd
                yield torch.autograd
        left = DataLoader(Slow())
        taken = DataLoader(Slow())
        optimizer = torch.Optimizer()
        def train(batches):
            for batch in batches:
                passes(0.06)
                optimizer.step()
                break
        for epoch in range(10): train(left)
        for epoch in range(10): train([next(iter(taken))])
    """)  # fmt: skip
    ran = light.run()
    assert len(ran.program.loops) == 2
    for loop in ran.program.loops:
        assert loop.steps == 10
        assert loop.wait_share is not None and loop.wait_share.value == pytest.approx(0.02 / 0.08)
        assert loop.wait_share.low == loop.wait_share.high, "every batch is the first of its epoch: nothing is left to chance"
    assert ran.run is not None and ran.run.verdict.kind == "input-bound"


def test_loaders_that_one_helper_makes_are_told_apart_by_the_lines_that_go_through_them(light: Place) -> None:
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(4):
                    passes(0.02)
                    yield torch.autograd
        def make(): return DataLoader(Slow())
        training, held_out, optimizer = make(), make(), torch.Optimizer()
        next(iter(training))  # a look at a batch, before
        for epoch in range(3):
            for batch in training:
                passes(0.02)
                optimizer.step()
            for batch in held_out: passes(0.01)
            for batch in make(): passes(0.01)  # made anew each time
    """)  # fmt: skip
    ran = light.run()
    assert [loop.steps for loop in ran.program.loops] == [13, 12, 12]
    assert len({loop.loader for loop in ran.program.loops}) == 1
    assert len({loop.iterated for loop in ran.program.loops}) == 3
    assert ran.program.loops[0].iterated in ran.err, "which is which is told"


ONE_LINE = "loaders = [DataLoader(Slow(1 / 4)), DataLoader(Slow(1 / 16))]"
TWO_LINES = "loaders = [DataLoader(Slow(1 / 4))]\n        loaders.append(DataLoader(Slow(1 / 16)))"


@pytest.mark.parametrize("made", [ONE_LINE, TWO_LINES])
def test_loaders_that_are_taken_of_in_turn_are_waited_for_together(made: str, light: Place) -> None:
    """Neither is inside the other: the waits for the one are no step of the other's."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __init__(self, seconds): self.seconds = seconds
            def __iter__(self):
                for number in range(20):
                    passes(self.seconds)
                    yield torch.autograd
        {made}
        optimizer = torch.Optimizer()
        for epoch in range(3):
            for batches in zip(*loaders):
                passes(1 / 8)
                optimizer.step()
    """)  # fmt: skip
    ran = light.run()
    loops = ran.program.loops
    assert {loop.role for loop in loops} == {"training"}
    waited, step = 60 * 5 / 16, 60 / 8
    assert sum(loop.seconds for loop in loops) == pytest.approx(waited + step)
    assert sum(loop.step_split["wait_s"] for loop in loops) == pytest.approx(waited)
    assert ran.run is not None and ran.run.verdict.kind == "input-bound"
    assert "71 %" in ran.run.verdict.sentence
    if len(loops) == 2:
        assert [loop.in_turn for loop in loops] == [[loops[1].named], [loops[0].named]]
        assert "its steps take batches of 2 loaders in turn" in ran.run.verdict.sentence


def test_a_loader_that_one_batch_is_taken_of_now_and_then(light: Place) -> None:
    """Its iterator is kept, and asked again after many steps on another's batches: these are no step of its own."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(40):
                    passes(1 / 16)
                    yield torch.autograd
        loader = DataLoader(Slow())
        checks = iter(DataLoader(Slow()))
        optimizer = torch.Optimizer()
        for epoch in range(2):
            for number, batch in enumerate(loader):
                if number % 4 == 0: next(checks)
                passes(1 / 8)
                optimizer.step()
    """)  # fmt: skip
    loops = light.run().program.loops
    assert sum(loop.step_split["wait_s"] for loop in loops) == pytest.approx(100 / 16)
    assert sum(loop.seconds for loop in loops) == pytest.approx(100 / 16 + 80 / 8)


@pytest.mark.parametrize(
    "steps",
    [
        "for batch in first:\n            other = next(iter(second))\n            step()",
        "for number in range(20):\n            batch, other = next(iter(first)), next(iter(second))\n            step()",
    ],
    ids=["beside each batch of another", "of both"],
)
def test_one_batch_of_a_loader_by_an_iterator_of_its_own_in_each_step(steps: str, light: Place) -> None:
    """Their steps were none of theirs: waits of 50 % were told as 100 %. And each iterator was kept, with all before it."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(20):
                    passes(1 / 16)
                    yield torch.autograd
        first = DataLoader(Slow())
        second = DataLoader(Slow())
        optimizer = torch.Optimizer()
        def step():
            passes(1 / 8)
            optimizer.step()
        {steps}
        epoch, deep = sys.modules["_pipefix_observing.patches"]._observer.here.current, 0
        while epoch: epoch, deep = epoch.outer, deep + 1
        print(deep)
    """)
    ran = light.run()
    loops = ran.program.loops
    assert [loop.role for loop in loops] == ["training", "training"]
    assert sum(loop.step_split["wait_s"] for loop in loops) == pytest.approx(40 / 16)
    assert sum(loop.seconds for loop in loops) == pytest.approx(40 / 16 + 20 / 8)
    assert ran.run is not None and ran.run.verdict.kind == "input-bound"
    assert "its steps take batches of 2 loaders in turn, and waited for them in 50 %" in ran.run.verdict.sentence
    assert int(ran.out) <= 2


@pytest.mark.parametrize(
    ("loaders", "each_epoch", "steps"),
    [
        ("training, held_out = make(1 / 4), make(1 / 64)", "epoch(training, optimizer); epoch(held_out)", [12, 12]),
        ("", "training, held_out = make(1 / 4), make(1 / 64); epoch(training, optimizer); epoch(held_out)", [12, 12]),
        ("", "epoch(make(1 / 4), optimizer)", [12]),
    ],
)  # fmt: skip
def test_loaders_that_one_function_makes_and_another_goes_through(
    loaders: str, each_epoch: str, steps: list[int], light: Place
) -> None:
    """``run_epoch(loader, optimizer=None)``: waits of evaluation were told as training's. One made anew is of the same loop."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __init__(self, seconds): self.seconds = seconds
            def __iter__(self):
                for number in range(4):
                    passes(self.seconds)
                    yield torch.autograd
        def make(seconds): return DataLoader(Slow(seconds))
        def epoch(loader, optimizer=None):
            for batch in loader:
                passes(1 / 8)
                if optimizer: optimizer.step()
        optimizer = torch.Optimizer()
        {loaders}
        for number in range(3):
            {each_epoch}
    """)
    ran = light.run()
    training, *others = ran.program.loops
    assert [loop.steps for loop in (training, *others)] == steps
    assert (training.role, [loop.role for loop in others]) == ("training", ["unknown"] * len(others))
    assert training.step_split["wait_s"] == pytest.approx(12 / 4)
    assert training.seconds == pytest.approx(12 / 4 + 12 / 8)
    for loop in others:
        assert loop.seconds == pytest.approx(12 / 64 + 12 / 8)
        assert loop.named != training.named
        assert loop.named in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("epoch", "others", "alike"),
    [
        ("train(loader); look(loader)", 12, False),
        ("look(loader); train(loader)", 12, False),
        ("train_ahead(loader); look(loader)", 12, False),
        ("train(loader, inside=True)", 6, False),
        ("train(make()); look(make())", 12, False),
        ("train(make()); train(make(), trains=False)", 12, True),
    ],
    ids=["accuracy", "statistics", "taken ahead", "inside a step", "made anew", "made anew, gone through by one line"],
)
def test_epochs_that_do_not_train_are_no_part_of_the_training(epoch: str, others: int, alike: bool, light: Place) -> None:
    """An accuracy on the samples that it trains on: its waits were told as training's, and its batches as accumulated ones."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(4):
                    passes(1 / 4)
                    yield torch.autograd
        optimizer = torch.Optimizer()
        def make(): return DataLoader(Slow())
        def train(loader, trains=True, inside=False):
            for number, batch in enumerate(loader):
                passes(3 / 4 if trains else 0)
                if trains: optimizer.step()
                if inside and number == 1: look(loader, 2)
        def train_ahead(loader):
            batches = iter(loader)
            following = next(batches)
            while following:
                batch, following = following, next(batches, None)
                passes(3 / 4)
                optimizer.step()
        def look(loader, upto=4):
            for number, batch in enumerate(loader, 1):
                if number == upto: break
        loader = make()
        for number in range(3):
            {epoch}
    """)
    training, looked = light.run().program.loops
    assert (training.role, training.steps, training.samples) == ("training", 12, 12)
    after_the_end = 3 * 3 / 4 if "ahead" in epoch else 0
    assert (training.step_split["wait_s"], training.seconds) == pytest.approx((12 / 4, 12 - after_the_end))
    assert training.step_samples == 1
    assert (looked.role, looked.steps) == ("unknown", others)
    assert looked.step_split["wait_s"] == pytest.approx(looked.seconds) == pytest.approx(others / 4)
    assert (looked.iterated == training.iterated, looked.nth) == ((True, 2) if alike else (False, 1))


@pytest.mark.parametrize(
    ("batches", "then"), [("zip(loader, loader)", ""), ("loader", "next(iter(loader))")], ids=["two views", "a peek"]
)
def test_epochs_beside_the_training_are_part_of_it(batches: str, then: str, light: Place) -> None:
    """Steps are counted as those of the iterator that was asked last; and one batch is no loop."""
    light.write(f"""{OWN_CLOCK}
        optimizer = torch.Optimizer()
        loader = DataLoader(range(1, 9))
        for epoch in range(2):
            for batch in {batches}: optimizer.step()
            {then}
    """)
    (loop,) = light.run().program.loops
    assert loop.role == "training"


def test_the_loaders_of_many_clients_are_not_as_many_loops(light: Place) -> None:
    light.write(f"""{OWN_CLOCK}
        optimizer = torch.Optimizer()
        for loader in [DataLoader(range(10)) for client in range(9)]:
            for batch in loader: optimizer.step()
    """)
    assert sorted(loop.steps for loop in light.run().program.loops) == [10, 10, 10, 60]


@pytest.mark.parametrize("around", ["Ahead({})", "map(list, {})", "{}", "Data({})", "Slots({})"])
def test_a_subclass_that_gives_an_iterator_around_its_base_class_s(around: str, light: Place) -> None:
    """A thread that fetches ahead (``DataLoaderX``) was counted beside the loop that takes its batches: twice the steps. What has
    no hash, or takes no weak references, ended the program by a TypeError."""
    light.write(f"""{OWN_CLOCK}
        import dataclasses, queue, threading
        class Ahead(threading.Thread):
            def __init__(self, batches):
                super().__init__(daemon=True)
                self.batches, self.ready = batches, queue.Queue()
                self.start()
            def run(self):
                for batch in self.batches: self.ready.put([batch])
                self.ready.put([])
            def __iter__(self): return self
            def __next__(self):
                for batch in self.ready.get(): return batch
                raise StopIteration
        class Slots:
            __slots__ = ("batches",)
            def __init__(self, batches): self.batches = batches
            def __iter__(self): return self
            def __next__(self): return next(self.batches)
        @dataclasses.dataclass
        class Data:
            batches: object
            __iter__, __next__ = Slots.__iter__, Slots.__next__
        class DataLoaderX(DataLoader):
            def __iter__(self): return {around.format("super().__iter__()")}
        optimizer = torch.Optimizer()
        loader = DataLoaderX([[number] for number in range(20)])
        for epoch in range(2):
            for batch in loader: optimizer.step()
    """)
    (loop,) = light.run().program.loops
    assert (loop.role, loop.steps) == ("training", 40)


@pytest.mark.parametrize("imported", ["before", "there"])
def test_a_process_that_multiprocessing_forks_comes_to_its_end(imported: str, light: Place) -> None:
    """It ends without handlers of exit, and was told as killed."""
    imports = "import torch; from torch.utils.data import DataLoader"
    light.write(
        f"""\
        import multiprocessing
        {imports if imported == "before" else ""}
        def train():
            {imports}
            optimizer = torch.Optimizer()
            for batch in DataLoader(range(1, 21)):
                optimizer.step()
        process = multiprocessing.get_context("fork").Process(target=train)
        process.start()
        process.join()
        """
    )
    ran = light.run()
    assert [(loop.role, loop.steps) for loop in ran.program.loops] == [("training", 20)]
    assert (ran.program.killed, "did not come to its end" in ran.err) == (0, False)


def test_a_loader_that_another_ones_dataset_goes_through(light: Place) -> None:
    """What is waited for it is part of that batch, and no step of anybody's."""
    light.write(f"""{OWN_CLOCK}
        class Slow:
            def __iter__(self):
                for number in range(40):
                    passes(1 / 16)
                    yield torch.autograd
        optimizer = torch.Optimizer()
        for batch in DataLoader(iter(DataLoader(Slow()))):
            passes(1 / 16)
            optimizer.step()
    """)  # fmt: skip
    (loop,) = light.run().program.loops
    assert (loop.role, loop.steps) == ("training", 40)
    assert loop.wait_share is not None and loop.wait_share.value == pytest.approx(1 / 2)


def test_a_loop_inside_a_step_is_none_of_its_parts(light: Place) -> None:
    """Steps on a support set, before the backward pass of the query set: these were a forward pass of 464 %."""
    light.write(f"""{OWN_CLOCK}
        optimizer = torch.Optimizer()
        inner = DataLoader(range(8))
        for batch in DataLoader(range(20)):
            for other in inner:
                passes(1 / 8)
                torch.autograd.backward()
            passes(1 / 16)
            torch.autograd.backward()
            optimizer.step()
    """)
    (outer,) = [loop for loop in light.run().program.loops if loop.steps == 20]
    assert outer.seconds == pytest.approx(20 / 16)
    assert outer.step_split["forward_s"] == pytest.approx(20 / 16)
