"""A program that trains without a loader, on a clock of its own or on the machine's, and what must hold of it either way."""

from __future__ import annotations

from tests.programs.conftest import Place, Ran

OWN_CLOCK = """\
    now = 100.0
    time.perf_counter = lambda: now  # fake clock
    def sleep(seconds):
        global now
        now += seconds"""
REAL_CLOCK = "    sleep = time.sleep"


def program(clock: str, *, model: str, transform: str) -> str:
    """``model`` and ``transform``: what each does beside computing, as a statement."""
    return f"""\
    import sys, time
{clock}
    import torch
    data, kind = torch.arange(1000.0), sys.argv[1]
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)
        def forward(self, x):
            {model}
            if len(x) < 4: raise ValueError("too short")
            return self.inner(x)
    class Shifted(torch.nn.Module):
        "A transform: no parameters."
        def forward(self, x):
            {transform}
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


def ran_as_alone(place: Place, kind: str) -> Ran:
    """Run both ways: the same end, no hook left, and what passes outside the models told."""
    ran, alone = place.run("train.py", kind), place.alone("train.py", kind)
    hooks, *others = ran.out.split()
    assert hooks in "01", "a step is looked into, or none is"
    assert others == ["0", "0"]
    assert "passes outside its models, their backward passes and the optimizer's steps" in " ".join(ran.err.split())
    assert (ran.code, ran.err.startswith(alone.err)) == (alone.code, True)
    return ran
