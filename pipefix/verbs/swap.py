"""swap: cut the transforms into what stays with the dataset and what a module does to whole batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipefix.report import runfile
from pipefix.report.swapfile import PanelPicture, SwapReport
from pipefix.subject import failure
from pipefix.subject.subject import Subject
from pipefix.verbs.target import Progress, load_target, silent
from pipefix.vocabulary.errors import BadUsage, TargetError

if TYPE_CHECKING:
    from pipefix.augment.parity import Parity
    from pipefix.augment.swap import Swap


@dataclass(frozen=True)
class Swapped:
    """A swap's two halves, and what is told of it."""

    swap: Swap
    report: SwapReport
    parity: Parity | None
    subject: Subject

    def dataset(self, *, index: bool = False) -> Any:
        """A copy of the dataset whose transforms are the part that stays; with ``index`` samples come with their index."""
        return self.swap.dataset(self.subject.dataset, index=index)

    def module(self, **settings: Any) -> Any:
        """What is done to whole batches, on their device: ``images, labels = module((images, labels))``."""
        return self.swap.module(**settings)

    def loader(self, **settings: Any) -> Any:
        """DALI's loader over the dataset's files: batches of (images, labels)."""
        return self.swap.loader(self.subject.dataset, **settings)

    @property
    def sheet(self) -> list[PanelPicture]:
        """The rows of the contact sheet."""
        from pipefix.report import tell_swap

        return [] if self.parity is None else tell_swap.sheet(self.parity.sheet)


def swap(
    target: Any,
    *,
    to: str = "kornia",
    check: bool = False,
    write: Path | None = None,
    run: Path | None = None,
    samples: int = 16,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Swapped:
    """Read the transforms of a target's dataset and cut them into what stays there and what a module does to whole batches.

    Nothing of the target's is changed: the answer's ``dataset()`` and ``module()`` are the two halves. ``check`` holds them against
    torchvision on ``samples`` pictures of the dataset; ``write`` writes code that needs no pipefix; ``run`` is a run file of the
    same target, which predicts the gain.
    """
    from pipefix.augment import samples as sampled
    from pipefix.augment import support
    from pipefix.augment.hold import hold
    from pipefix.augment.parity import front_of
    from pipefix.augment.split import split
    from pipefix.augment.swap import Swap, find
    from pipefix.augment.translate import translate
    from pipefix.report import tell_swap

    say = progress or silent
    say("loading the target", 0.0)
    support.check(to)
    subject = load_target(target)
    place = find(subject.dataset)
    if place is None:
        raise TargetError(
            f"{subject.target}: the dataset keeps its transforms under none of the usual names (transform, transforms, augment).",
            advice="Keep them as an attribute of the dataset, self.transform, and call that in __getitem__.",
        )
    where = _device(device)
    with failure.told("Reading samples of the dataset"):
        pictures = sampled.pictures(subject.dataset, place, samples if check else 8)
    sizes = {sampled.size_of(picture) for picture in pictures}
    cut = split(translate(place.transform), to, size=sampled.size_of(pictures[0]), same_size=len(sizes) == 1 and len(pictures) > 1)
    made = Swap(cut, place, seed)
    parity = None
    if check:
        say("checking", 0.1)
        with failure.told("The part of the transforms that stays"):
            images = front_of(cut, pictures, seed)
        parity = hold(cut, pictures, images, to, seed=seed, device=where, progress=lambda phase, done: say(phase, 0.1 + 0.9 * done))
    if write is not None:
        _write(cut, to, seed, write)
    report = tell_swap.report(subject.target, made, parity, runfile.read(run) if run is not None else None, write)
    return Swapped(made, report, parity, subject)


def _device(name: str | None) -> str:
    """The device to check on, which must be there."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not (name.startswith("cuda") and torch.cuda.is_available()):
        has = "a CUDA device" if torch.cuda.is_available() else "no CUDA device"
        raise BadUsage(f"The device {name!r} cannot be used: this machine has {has}.", advice="Leave --device away, or give cpu.")
    return name


def _write(cut: Any, to: str, seed: int, path: Path) -> None:
    from pipefix.augment.write import code

    try:
        text = code(cut, to, seed=seed)
    except ValueError as error:
        raise BadUsage(str(error), advice="Write it with --to kornia, which has more operations.") from error
    runfile.write_whole(text.encode(), path, what="code")
