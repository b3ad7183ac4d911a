"""pipefix.swap: cut a list of transforms into what stays in the dataset and what a module does to whole batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipefix.api.in_program import refuse_program
from pipefix.api.run_files import load
from pipefix.api.target import Progress, loaded, silent
from pipefix.caches.cut import Chain
from pipefix.report import swap_report
from pipefix.report.document import Document
from pipefix.report.shown import Shown
from pipefix.report.swap_report import PredictedGain
from pipefix.subject import failure
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import BadUsage, TargetError

if TYPE_CHECKING:
    from pipefix.augment.parity import Parity
    from pipefix.augment.swap import Swap


@dataclass(frozen=True, repr=False)
class Swapped(Shown):
    """A swap's two halves, and what is told of it."""

    swap: Swap
    parity: Parity | None
    """What was checked; None where that was not asked for, or nothing moves."""
    worth: PredictedGain
    subject: Subject

    def dataset(self) -> Any:
        """A copy of the dataset whose transforms are the part that stays. Its samples come as pairs: the sample, and what was
        recorded of the part that moves, which ``module`` takes."""
        return self._moving.dataset(self.subject.dataset)

    def collate(self, collate_fn: Any) -> Any:
        """Your own collate function, for such samples; `default_collate` takes them as they are."""
        return self.swap.collate(collate_fn)

    def module(self, **settings: Any) -> Any:
        """What is done to whole batches, on their device: ``images, labels = module((images, labels), calls)``."""
        return self._moving.module(**settings)

    @property
    def _moving(self) -> Swap:
        if not self.swap.split.on_batch:
            raise BadUsage(
                "None of these transforms can be moved to batches.",
                advice="Leave the dataset and its loop as they are. print(swapped) says why each transform stays.",
            )
        return self.swap

    def loader(self, **settings: Any) -> Any:
        """DALI's loader over the dataset's files: batches of (images, labels)."""
        return self.swap.loader(self.subject.dataset, **settings)

    def document(self, *, full: bool = False) -> Document:
        return swap_report.report(self.subject.target, self.swap, self.parity, self.worth, full=full)

    def figures(self) -> dict[str, Any]:
        return swap_report.figures(self.subject.target, self.swap, self.parity, self.worth)


def swap(
    target: Any,
    *,
    to: Literal["kornia", "dali"] = "kornia",
    transforms: str | None = None,
    check: bool = False,
    run: str | Path | None = None,
    samples: int = 16,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Swapped:
    """Read the transforms of a target's dataset and cut them into what stays there and what a module does to whole batches.

    Nothing of the target's is changed: the answer's ``dataset()`` and ``module()`` are the two halves. ``check`` runs ``samples``
    pictures of the dataset both ways with the same seed.

    Args:
        target: What `pipefix.probe` takes: a file, a module, a folder, a cache, a DataLoader or a Dataset.
        to: Where the transforms move.
        transforms: The attribute of the dataset that holds them, dotted perhaps (default: the usual names are looked for).
        check: Whether to show that the same seed gives the same samples both ways; the answer's ``parity``.
        run: A run file of the same target, which predicts the gain.
        samples: How many pictures of the dataset to check on.
        device: Where to check; by default a CUDA device where there is one.
        seed: Of the random numbers.
        progress: Called with a phase and the part that is done.

    Returns:
        The two halves, ``dataset()`` and ``module()`` (``loader()`` of DALI), with the parity and the predicted gain.
    """
    from pipefix.augment import parity, support
    from pipefix.augment import samples as sampled
    from pipefix.augment.split import split
    from pipefix.augment.swap import Swap
    from pipefix.augment.transforms import files_of, find

    say = progress or silent
    if samples < 1:
        raise BadUsage(f"With {samples} samples nothing is checked.", advice="Give at least one: samples=16.")
    probed = load(run) if run is not None else None
    support.check(to)
    where = _device(device)
    refuse_program(target)
    subject = loaded(target, say)
    place = find(subject.dataset, transforms)
    if place is None:
        names = f"under {transforms!r}" if transforms else "under any of the usual names (transform, transforms, augment)"
        raise TargetError(
            f"{subject.target}: the dataset keeps no transforms {names}.",
            advice="Say which attribute of the dataset holds them, and is called in __getitem__: --transforms NAME",
        )
    if isinstance(place.value, Chain):  # of a cache: what it does not store of its dataset's list
        place = place._replace(value=place.value.operations)
    files = files_of(subject.dataset) if to == "dali" else ""
    if files and isinstance(files, str):
        raise TargetError(
            f"{subject.target}: DALI begins with the encoded files, and {files}.",
            advice="Move to Kornia instead (--to kornia), keep the files as self.samples = [(path, label), ...], or give them to "
            "pipefix.augment.swap.dali_loader yourself.",
        )
    with failure.as_target_error("Reading samples of the dataset"):
        pictures = sampled.pictures(subject.dataset, place, max(8, samples if check else 0))
        described = sampled.described(pictures)
    cut = split(place.value, to, **described)
    if cut.on_batch:
        with failure.as_target_error("Reading samples of the dataset"):
            sampled.refuse_more_than_pictures(subject.dataset, place, cut)
            if isinstance(files, tuple):
                sampled.refuse_other_files(subject.dataset, place, *files)
    result = None
    if check and cut.on_batch:
        with failure.as_target_error("The dataset's transforms"):
            result = parity.check(
                cut, pictures[:samples], seed=seed, device=where, progress=lambda phase, done: say(phase, 0.1 + 0.9 * done)
            )
    worth = PredictedGain(None, "None: nothing moves.")
    if cut.on_batch:
        worth = swap_report.predicted(probed, subject.target, to)
    return Swapped(Swap(cut, place, seed), result, worth, subject)


def _device(name: Any) -> str:
    """The device to check on, which must be there: by its name, or a `torch.device`."""
    import torch

    there = ["cpu"]
    if torch.cuda.is_available():
        there = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count())), *there]
    device = str(there[0] if name is None else name)
    if device not in there:
        choice = f"Leave --device away, or give one of: {', '.join(there)}."
        raise BadUsage(f"The device {device!r} cannot be used on this machine.", advice=choice)
    return device
