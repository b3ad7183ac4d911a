"""Resolve TARGET: a file, ``FILE.py:name``, ``package.module:name``, a directory of class folders, or an object. Runs the user's code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from pipefix.subject.adapters import image_folder
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import BadUsage, TargetError

ASSUMED_BATCH_SIZE = 32


def load(target: Any, *, batch_size: int | None = None, workers: int | None = None) -> Subject:
    """The subject that ``target`` names. ``batch_size`` and ``workers`` replace what was found."""
    begun = time.perf_counter()
    module: ModuleType | None = None
    if isinstance(target, (str, Path)):
        name = str(target)
        found, module, label = _resolve(name)
    else:
        found, label = target, f"<{type(target).__name__} object>"
    found = _call(found, label)
    loader, assumed = _loader(found, label, batch_size, workers)
    _check_length(loader, label)
    names = vars(module) if module is not None else {}
    step, model = names.get("train_step"), names.get("model")
    return Subject(
        target=label,
        loader=loader,
        assumed=assumed,
        consumer=step if callable(step) else None,
        model=model if isinstance(model, nn.Module) else None,
        load_seconds=time.perf_counter() - begun,
        source_file=getattr(module, "__file__", None),
        extras={key: names[key] for key in ("criterion", "optimizer") if key in names},
    )


def _resolve(name: str) -> tuple[Any, ModuleType | None, str]:
    path = Path(name).expanduser()
    if path.is_dir():
        return image_folder.dataset(path), None, name
    location, colon, attribute = name.rpartition(":")
    if not colon:
        location, attribute = name, ""
    if location.endswith(".py") or Path(location).is_file():
        module = _import_file(Path(location).expanduser(), name)
    elif colon:
        module = _import_module(location)
    else:
        raise TargetError(_not_found(path))
    if attribute:
        return _named(module, attribute, location), module, name
    key, value = _only_candidate(module, location)
    return value, module, f"{name}:{key}"


def _not_found(path: Path) -> str:
    if not path.suffix and not path.exists():
        return f"There is no file or directory {str(path)!r}, and it is not of the form package.module:name."
    return f"{str(path)!r} is not a Python file or a directory."


def _import_file(path: Path, name: str) -> ModuleType:
    if not path.exists():
        near = [str(other) for other in sorted(path.parent.glob("*.py"))[:5]] if path.parent.is_dir() else []
        hint = f"Python files there: {', '.join(near)}." if near else f"The folder {str(path.parent)!r} holds no Python files."
        raise TargetError(f"There is no file {str(path)!r}.", advice=f"{hint} A target is FILE.py or FILE.py:name.")
    path = path.resolve()
    stem = path.stem
    taken = sys.modules.get(stem)
    if taken is not None and getattr(taken, "__file__", None) != str(path):
        stem = f"pipefix_target_{stem}"
    elif str(path.parent) not in sys.path:
        # As ``python FILE.py`` does: the file's neighbours can be imported, here and in spawned workers.
        sys.path.insert(0, str(path.parent))
    specification = importlib.util.spec_from_file_location(stem, path)
    if specification is None or specification.loader is None:
        raise TargetError(f"{name!r} cannot be imported as Python: its name must end in .py.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[stem] = module
    try:
        specification.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(stem, None)
        raise _raised(f"Loading {name!r}", error) from error
    return module


def _import_module(location: str) -> ModuleType:
    try:
        sys.path.insert(0, "")
        return importlib.import_module(location)
    except ModuleNotFoundError as error:
        if error.name and (location == error.name or location.startswith(f"{error.name}.")):
            raise TargetError(f"There is no module {error.name!r} on the Python path.") from error
        raise _raised(f"Importing {location!r}", error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _raised(f"Importing {location!r}", error) from error
    finally:
        sys.path.remove("")


def _named(module: ModuleType, attribute: str, location: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [key for key, _ in _candidates(module)]
            advice = f"It defines: {', '.join(f'{location}:{key}' for key in known)}." if known else None
            raise TargetError(f"{location!r} has no name {attribute!r}.", advice=advice)
        value = getattr(value, part)
    return value


def _candidates(module: ModuleType) -> list[tuple[str, Any]]:
    """Datasets and loaders the file made; else functions and dataset classes it defines that make one without arguments."""
    public = [(key, value) for key, value in vars(module).items() if not key.startswith("_")]
    loaders = [(key, value) for key, value in public if isinstance(value, DataLoader)]
    inner = {id(value.dataset) for _, value in loaders}
    datasets = [(key, value) for key, value in public if isinstance(value, Dataset) and id(value) not in inner]
    if loaders:
        wrapped = {id(part) for _, loader in loaders for part in _parts(loader.dataset)}
        datasets = [(key, value) for key, value in datasets if id(value) not in wrapped]
    if loaders or datasets:
        return _once(loaders + datasets)
    return _once([(key, value) for key, value in public if _is_maker(value, module)])


def _once(candidates: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """One name an object: aliases are no second candidate."""
    seen: set[int] = set()
    return [pair for pair in candidates if id(pair[1]) not in seen and not seen.add(id(pair[1]))]  # type: ignore[func-returns-value]


def _parts(dataset: Any) -> list[Any]:
    """A dataset and those it wraps (Subset, ConcatDataset …)."""
    inner = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or [])]
    return [dataset, *(part for one in inner if one is not None for part in _parts(one))]


def _is_maker(value: Any, module: ModuleType) -> bool:
    if getattr(value, "__module__", None) != module.__name__:
        return False
    if inspect.isclass(value):
        return issubclass(value, Dataset) and _callable_bare(value)
    if not inspect.isfunction(value) or not _callable_bare(value):
        return False
    returned = inspect.signature(value).return_annotation
    if inspect.isclass(returned):
        return issubclass(returned, (Dataset, DataLoader))
    text = returned if isinstance(returned, str) else ""
    name = value.__name__.lower()
    return "Dataset" in text or "DataLoader" in text or "dataset" in name or "loader" in name


def _callable_bare(value: Any) -> bool:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in optional for p in parameters)


def _only_candidate(module: ModuleType, location: str) -> tuple[str, Any]:
    candidates = _candidates(module)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise TargetError(
            f"{location!r} defines no Dataset, no DataLoader and no function without required arguments that makes one.",
            advice=f"Name what to probe: {location}:NAME, where NAME is a dataset, a loader or a callable that returns one.",
        )
    listed = "\n".join(f"  {location}:{key}  ({type(value).__name__})" for key, value in candidates)
    raise TargetError(
        f"{location!r} defines {len(candidates)} candidates:\n{listed}", advice="Name the one you mean, as listed above."
    )


def _call(found: Any, label: str) -> Any:
    """Call a maker; leave datasets and loaders as they are."""
    if isinstance(found, (Dataset, DataLoader)) or not callable(found) or (_is_dataset(found) and not inspect.isclass(found)):
        return found
    if not _callable_bare(found):
        raise TargetError(
            f"{label} takes arguments: {inspect.signature(found)}.", advice="Give a callable that needs none, for example a lambda or a partial."
        )
    try:
        return found()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _raised(f"Calling {label}", error) from error


def _is_dataset(found: Any) -> bool:
    return hasattr(found, "__getitem__") or hasattr(found, "__iter__")


def _loader(found: Any, label: str, batch_size: int | None, workers: int | None) -> tuple[DataLoader[Any], tuple[str, ...]]:
    if isinstance(found, DataLoader):
        if batch_size is None and workers is None:
            return found, ()
        return _rebuilt(found, batch_size, workers), ()
    if not _is_dataset(found) or isinstance(found, (str, bytes, ModuleType)):
        raise TargetError(
            f"{label} is a {type(found).__name__}, not a Dataset, an IterableDataset, a DataLoader or a callable that returns one."
        )
    assumed = []
    if batch_size is None:
        batch_size = ASSUMED_BATCH_SIZE
        assumed.append(f"batch_size={batch_size}")
    if workers is None:
        workers = 0
        assumed.append("num_workers=0")
    shuffle = not _is_stream(found) and hasattr(found, "__len__") and len(found) > 0
    if shuffle:
        assumed.append("shuffle=True")
    return DataLoader(found, batch_size=batch_size, shuffle=shuffle or None, num_workers=workers), tuple(assumed)


def _is_stream(found: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(found, IterableDataset)


def _rebuilt(loader: DataLoader[Any], batch_size: int | None, workers: int | None) -> DataLoader[Any]:
    """The same loader with another batch size or worker count."""
    count = loader.num_workers if workers is None else workers
    options: dict[str, Any] = {
        "num_workers": count,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout if count else 0,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context if count else None,
        "generator": loader.generator,
        "prefetch_factor": loader.prefetch_factor if count else None,
        "persistent_workers": loader.persistent_workers and count > 0,
        "in_order": loader.in_order,
    }
    if batch_size is not None:
        options |= {"batch_size": batch_size, "drop_last": loader.drop_last}
        if not _is_stream(loader.dataset):
            options["sampler"] = loader.sampler
    elif loader.batch_sampler is not None and not _is_stream(loader.dataset):
        options["batch_sampler"] = loader.batch_sampler
    else:
        options |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        if not _is_stream(loader.dataset):
            options["sampler"] = loader.sampler
    return DataLoader(loader.dataset, **options)


def _check_length(loader: DataLoader[Any], label: str) -> None:
    dataset = loader.dataset
    if not hasattr(dataset, "__len__"):
        if not _is_stream(dataset):
            raise TargetError(f"{label} has no length: a map-style dataset needs __len__ so that a sampler can draw indices from it.")
        return
    try:
        length = len(dataset)
    except Exception as error:
        if _is_stream(dataset):
            return
        raise _raised(f"len() of {label}", error) from error
    if length == 0:
        raise TargetError(
            f"{label} is empty: its length is 0, so there is nothing to measure.",
            advice="Check the path and the filters it was built with, then probe it again.",
        )
    if length == 1:
        raise TargetError(
            f"{label} holds one sample: its length is 1, and a rate needs at least 2.",
            advice="Probe a dataset with at least a few batches of samples.",
        )
    try:
        batches = len(loader)
    except TypeError:
        return
    if batches == 0:
        raise BadUsage(
            f"{label} yields no batch: {length} samples, batch_size {loader.batch_size} and drop_last={loader.drop_last}.",
            advice="Use a smaller batch: --batch-size N, or drop_last=False.",
        )


def _raised(doing: str, error: BaseException) -> TargetError:
    """The user's code raised: their frames, without ours."""
    last = error.__traceback__
    frames = [frame for frame in traceback.extract_tb(last) if not _ours(frame.filename)]
    text = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(type(error), error))
    return TargetError(
        f"{doing} raised {type(error).__name__}: {error}",
        advice="Run the file alone (python FILE.py) to see the error in full, mend it, then probe again.",
        user_traceback=text,
    )


_HERE = str(Path(__file__).resolve().parent.parent)


def _ours(filename: str) -> bool:
    return filename.startswith((_HERE, "<frozen importlib"))
