"""Loads a TARGET: a file, ``FILE.py:name``, ``package.module:name``, a directory of class folders, a cache, or an object.

Runs the user's code.
"""

from __future__ import annotations

import copy
import inspect
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from pipefix.hooks.torch_internals import loader_arguments
from pipefix.subject import candidates, failure, importing, naming
from pipefix.subject.frameworks import unwrapped
from pipefix.subject.subject import Subject, length_of
from pipefix.vocabulary import user_modules
from pipefix.vocabulary.errors import BadUsage, TargetError

ASSUMED_BATCH_SIZE = 32
ASSUMED_TRANSFORMS = "the ImageNet training transforms (RandomResizedCrop 224, flip, normalise)"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Directory = Callable[[Path], Any]
"""Makes a dataset of a directory, or None where the directory is not of its kind."""


def load(
    target: Any, *, batch_size: int | None = None, workers: int | None = None, directories: Sequence[Directory] = ()
) -> Subject:
    """The subject that ``target`` names. ``batch_size`` and ``workers`` replace what was found.

    ``directories`` are asked in turn what a directory is, before it is taken for one of class folders.
    """
    if batch_size is not None and batch_size < 1:
        raise BadUsage(f"A batch of {batch_size} samples cannot be made.", advice="Give at least one: --batch-size 32.")
    if workers is not None and workers < 0:
        raise BadUsage(f"There cannot be {workers} workers.", advice="Give none or more: --workers 0.")
    begun = time.perf_counter()
    if isinstance(target, (str, Path)):
        resolved = _resolve(str(target), directories)
    else:
        resolved = Resolved(target, f"<{type(target).__name__} object>")
    module, label = resolved.module, resolved.label
    with importing.as_a_script(getattr(module, "__file__", None)):
        value, wrapper = unwrapped(_call(resolved.value, label), label)
    loader, assumed = _loader(value, label, batch_size, workers)
    _check_length(loader, label, loader_given=isinstance(value, DataLoader))
    names = vars(module) if module is not None else {}
    package = module.__name__.partition(".")[0] if module is not None and not user_modules.is_users(module.__name__) else ""
    user_modules.count_as_users(package)
    step, model = names.get("train_step"), names.get("model")
    consumer = step if _takes_a_batch(step) else None
    if callable(step) and consumer is None:
        wrapper = f"{wrapper} train_step takes {_signature(step)}, and not a batch alone: it is not the consumer.".lstrip()
    given = {name: value for name, value in (("batch_size", batch_size), ("workers", workers)) if value is not None}
    return Subject(
        target=label, loader=loader, assumed=(*assumed, *resolved.assumed), choice=resolved.choice, wrapper=wrapper,
        consumer=consumer, model=model if isinstance(model, nn.Module) else None,
        criterion=names.get("criterion"), load_seconds=time.perf_counter() - begun, package=package, given=given,
    )  # fmt: skip


# -- what is named -----------------------------------------------------------------------------------------------------


class Resolved(NamedTuple):
    """What a target names."""

    value: Any
    label: str
    """As it is called from now on."""
    module: ModuleType | None = None
    choice: str = ""
    """What else its file holds, and how to name it, where nothing of it was named."""
    assumed: tuple[str, ...] = ()


def _resolve(name: str, directories: Sequence[Directory]) -> Resolved:
    place = naming.named(name)
    if place.path is not None and place.path.is_dir():
        known = next((opened for directory in directories if (opened := directory(place.path)) is not None), None)
        if known is not None:
            return Resolved(known, name)
        return Resolved(_image_folder(place.path), name, assumed=(ASSUMED_TRANSFORMS,))
    module = importing.from_file(place.path) if place.path is not None else importing.from_name(place.location)
    if place.attribute:
        value = candidates.named(module, place.attribute, place.location)
        positional, named = place.given
        if positional or named:
            if not callable(value):
                message = f"{place.location}:{place.attribute} is of type {type(value).__name__}, which takes no arguments."
                raise BadUsage(message, advice=f"Name it without them: {place.location}:{place.attribute}")
            value = partial(value, *positional, **named)
        return Resolved(value, name, module)
    attribute, value, words = candidates.chosen(module, place.location)
    return Resolved(value, f"{place.location}:{attribute}", module, words)


def _image_folder(path: Path) -> Any:
    """Class folders, read as torchvision's ImageFolder with the usual ImageNet training list.

    What ImageFolder would refuse is refused at the first folder without a picture: it goes through all others before it says so.
    """
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import IMG_EXTENSIONS

    classes = sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
    if not classes:
        raise _not_in_layout(path, "it holds no folders")
    for folder in classes:
        names = (name for _, _, names in os.walk(folder, followlinks=True) for name in names)
        if not any(name.lower().endswith(IMG_EXTENSIONS) for name in names):
            raise _not_in_layout(path, f"no picture lies in its folder {os.path.basename(folder)!r}")
    usual = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION),
    ]
    return ImageFolder(str(path), transform=transforms.Compose(usual))


def _not_in_layout(path: Path, why: str) -> TargetError:
    advice = "It needs one folder a class with images inside, like photos/cat/1.jpg. Otherwise name a Python file: FILE.py."
    return TargetError(f"The directory {str(path)!r} is not in ImageFolder layout: {why}.", advice=advice)


def _call(value: Any, label: str) -> Any:
    """Call a maker; leave datasets and loaders as they are."""
    if not callable(value) or isinstance(value, DataLoader) or (candidates.is_dataset(value) and not inspect.isclass(value)):
        return value
    unknown = candidates.unknown_argument(value) if isinstance(value, partial) else None
    if unknown is not None:
        called = label.partition("(")[0]
        raise TargetError(f"{called} takes no argument {unknown!r}.", advice=f"Its arguments are {_signature(value.func)}.")
    if not candidates.callable_bare(value):
        advice = "name a callable that needs none: a function or a functools.partial of your file that gives them."
        if ":" in label:  # else an object of Python's own, which is given them by whoever hands it over
            advice = f"Give them: {label.partition('(')[0]} {candidates.arguments_of(value)}; or {advice}"
        raise TargetError(f"{label} takes arguments: {_signature(value)}.", advice=advice[0].upper() + advice[1:])
    with failure.as_target_error(f"Calling {label}"):
        return value()


def _takes_a_batch(step: Any) -> bool:
    """Whether it can be called as ``train_step(batch)``: many a file has a function of that name for its own loop."""
    try:
        inspect.signature(step).bind(None)
    except TypeError:
        return False
    except ValueError:  # written in C, which may not tell
        pass
    return callable(step)


def _signature(value: Any) -> str:
    with suppress(TypeError, ValueError):
        return str(inspect.signature(value))
    return "(unknown)"


# -- the loader --------------------------------------------------------------------------------------------------------


def _loader(value: Any, label: str, batch_size: int | None, workers: int | None) -> tuple[DataLoader[Any], tuple[str, ...]]:
    if isinstance(value, DataLoader):
        return (value if batch_size is None and workers is None else _rebuilt(value, batch_size, workers)), ()
    if not candidates.is_dataset(value) or isinstance(value, ModuleType):
        raise _no_dataset(value, label)
    assumed = []
    if batch_size is None:
        batch_size = ASSUMED_BATCH_SIZE
        assumed.append(f"batch_size={batch_size}")
    if workers is None:
        workers = 0
        assumed.append("num_workers=0")
    shuffle = not isinstance(value, IterableDataset) and bool(_length(value, label))
    if shuffle:
        assumed.append("shuffle=True")
    return DataLoader(value, batch_size=batch_size, shuffle=shuffle or None, num_workers=workers), tuple(assumed)


def _no_dataset(value: Any, label: str) -> TargetError:
    description, advice = f"of type {type(value).__name__}", None
    if value is None:
        description, advice = "None", "Let the function return what it makes."
    elif hasattr(type(value), "__iter__"):
        advice = "What can only be iterated becomes a target inside a subclass of torch.utils.data.IterableDataset."
    wanted = "not a Dataset, an IterableDataset, a DataLoader or a callable that returns one"
    return TargetError(f"{label} is {description}, {wanted}.", advice=advice)


def _rebuilt(loader: DataLoader[Any], batch_size: int | None, workers: int | None) -> DataLoader[Any]:
    """The same loader with another batch size or worker count."""
    own = loader.batch_sampler if loader.batch_size is None else None
    if batch_size is not None and loader.batch_size is None and own is None:
        message = "The loader has batch_size=None: what its dataset gives, whole batches perhaps, is passed on as it is."
        raise BadUsage(message, advice=f"Leave --batch-size {batch_size} out, or build the loader with a batch_size.")
    if batch_size is not None and own is not None and type(own) is not BatchSampler:
        kind = type(own).__name__
        message = f"The loader's batches are made by its batch_sampler, a {kind}: --batch-size {batch_size} cannot replace it."
        raise BadUsage(message, advice="Leave --batch-size out, or build the loader with another batch_sampler.")
    rebuilt = DataLoader(loader.dataset, **loader_arguments(loader, batch_size=batch_size, num_workers=workers))
    if not hasattr(loader, "another"):
        return rebuilt
    same = copy.copy(loader)  # a FastLoader with its options: its plan, what it does to batches
    vars(same).update(vars(rebuilt))
    return same


# -- its length --------------------------------------------------------------------------------------------------------


def _length(dataset: Any, label: str) -> int | None:
    """Its length, or None where it has none; raising is an error of the dataset's, except in a stream."""
    if isinstance(dataset, IterableDataset) or not hasattr(type(dataset), "__len__"):
        return length_of(dataset)
    with failure.as_target_error(f"len() of {label}"):
        return len(dataset)


def _check_length(loader: DataLoader[Any], label: str, *, loader_given: bool) -> None:
    dataset: Any = loader.dataset
    length = _length(dataset, label)
    if length is None:
        counted = isinstance(loader.sampler, (SequentialSampler, RandomSampler)) and loader.sampler.data_source is dataset
        if not isinstance(dataset, IterableDataset) and (not loader_given or counted):
            message = f"{label} has no length: a map-style dataset needs __len__ so that a sampler can draw indices from it."
            raise TargetError(message, advice="Give its class a __len__, or give the DataLoader a sampler of your own.")
        return
    if length == 0:
        raise TargetError(f"{label} is empty: its length is 0.", advice="Check the path and the filters it was built with.")
    if length == 1:
        message = f"{label} holds one sample: its length is 1, and pipefix needs at least 2."
        raise TargetError(message, advice="Name a dataset with at least a few batches of samples.")
    counted = loader.batch_sampler is None or hasattr(type(loader.batch_sampler), "__len__")
    # A batch_sampler's length is its own business: only one that says 0 is believed.
    if counted and not isinstance(dataset, IterableDataset) and length_of(loader) == 0:
        message = f"{label} yields no batch: {length} samples, batch_size {loader.batch_size} and drop_last={loader.drop_last}."
        raise BadUsage(message, advice="Use a smaller batch: --batch-size N, or drop_last=False.")
