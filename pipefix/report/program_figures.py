"""What a run file holds of a training program that was run as it is: its loops, the account of its time, how it ended."""

from __future__ import annotations

import msgspec

from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.quantity import Interval


class LoopSpan(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A while in which a loop ran."""

    begin: float
    """Seconds since the program's first process began."""
    end: float
    waited: float
    """Share of it that the loop waited for batches."""


class LoopFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The loops of one rank over the loaders that one line of a program made, and another goes through."""

    loader: str
    """File and line; empty for optimizer steps outside any loop over a loader."""
    iterated: str = ""
    """File and line that goes through its batches."""
    nth: int = 1
    """Of the loops in which that line goes through loaders of this one: a function makes those of training and of evaluation."""
    rank: int | None = None
    role: str = "unknown"
    """training, evaluation or unknown."""
    steps: int = 0
    samples: int = 0
    step_samples: int | None = None
    """That an optimizer's step is over, those of all ranks and of batches whose gradients are accumulated; None where unknown."""
    seconds: float = 0.0
    """Of waits and steps, without loops inside this one."""
    workers: int | None = None
    first_batch_s: list[float] = []
    """Seconds to the first batch of each epoch."""
    in_turn: list[str] = []
    """Other loops that its steps take batches of as well, as `named` gives them: two loaders that a program zips."""
    wait_share: Interval | None = None
    """Of the loop's time that it waited for batches."""
    outside_share: Interval | None = None
    """Without a loader: the part of its steps' time outside models, backward passes and optimizers' steps."""
    by_device: bool = False
    """Whether waits are the time that its CUDA device idled, and not that the CPU waited."""
    timeline: list[LoopSpan] = []
    step_split: dict[str, float] = {}
    """Seconds in all: wait_s, forward_s (from a batch to its backward pass: copies to the device and the model), backward_s,
    optimizer_s, inner_s for loops inside this one, and other_s for the rest of the step: logging, checkpoints. Where waits are told
    by the device, so are these, and copies_s apart from forward_s."""
    stages: dict[str, Interval] = {}
    """Parts of the making of its batches: storage, decode, augment, own (code of no stage) and collate, by looks at some."""
    looked: int = 0
    """Batches that were looked at."""
    starved_share: float | None = None
    """Of its time that its thread was ready to run and had no CPU; None where the system does not say."""
    workers_starved_share: float | None = None
    between_epochs_s: float = 0.0
    """Seconds between its epochs, without other loops that ran then: checkpoints, logging, schedulers."""

    @property
    def named(self) -> str:
        """By the line that made its loader and the one that goes through it."""
        return named(self.loader, self.iterated, self.nth)


def named(loader: str, iterated: str, nth: int) -> str:
    return " in ".join(filter(None, (loader, iterated))) + (f" ({nth})" if nth > 1 else "")


class ProgramAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a program, of the process that trains; together they are all that it took."""

    start_up: float = 0.0
    """Until the first batch was asked for: imports, models, data sets."""
    first_batch: float = 0.0
    """Waits for the first batches of its epochs."""
    training: float = 0.0
    evaluation: float = 0.0
    checkpoints: float = 0.0
    """Calls of torch.save in the main thread."""
    between_epochs: float = 0.0
    experiments: float = 0.0
    """Of pipefix, while which the program stood still."""
    end: float = 0.0
    """From its last line until its process had ended all workers."""
    rest: float = 0.0

    def shares(self) -> dict[str, float]:
        """Each part of the whole, by its name in words."""
        parts = msgspec.structs.asdict(self)
        whole = sum(parts.values()) or 1.0
        ours = {"experiments": "pipefix's experiments"}
        return {ours.get(name, name.replace("_", " ")): seconds / whole for name, seconds in parts.items()}


class ProgramFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A training program that was run as it is."""

    command: list[str] = []
    exit_code: int | None = None
    """A signal that ended it is negative. None where pipefix did not see it end."""
    at_limit: bool = False
    """It was asked to end, because --seconds or --steps were over."""
    seconds: float = 0.0
    ranks: int = 1
    overhead_share: float = 0.0
    """Of the program's time that noting took, as measured in the program itself."""
    loops: list[LoopFigures] = []
    account: ProgramAccount | None = None
    cuda: bool = False
    """Whether a CUDA device was used: clocks of the CPU do not see its backlog."""
    killed: int = 0
    """Processes with loops that did not come to their end."""
    running: bool = False
    """Whether it still ran when this was told: figures are what was noted by then."""
    errors: list[str] = []
    """What kept pipefix from observing."""
    findings: list[Finding] = []
    """What its ranks and its samplers do that they should not."""
    plan: str | None = None
    """The plan file that was to be applied."""
    planned: list[str] = []
    """Where the loaders were made that the plan was applied to."""
