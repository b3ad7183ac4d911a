"""Finds what a module has to probe, where the target names nothing in it: datasets and loaders, or what makes one.

Of several the most whole is taken: a loader, a function that makes one, a dataset, a function that makes one, a class. Of several
that are alike the one for training.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from contextlib import suppress
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader, Dataset

from pipefix.subject import failure
from pipefix.subject.frameworks import is_data_module, is_module_class, is_node
from pipefix.vocabulary.attributes import names_in
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import NothingToProbe, TargetError
from pipefix.vocabulary.held_loaders import held_loader
from pipefix.vocabulary.held_transforms import datasets_in

_PLAIN = ("builtins", "collections", "numpy", "pandas", "torch", "torchvision", "types", "typing", "array", "pathlib", "h5py")
"""Packages whose containers have a length and items without being a dataset."""
_MOST_PARTS = 100_000
_OF = "(set|data|dataset|ds|loader|dataloader|dl)?s?"
_TRAINING = re.compile(f"(train|training){_OF}")
_EVALUATION = re.compile(f"(val|valid|validation|test|testing|eval|evaluation|dev){_OF}")


def named(module: ModuleType, attribute: str, location: str) -> Any:
    """What ``attribute`` (dotted, perhaps) names in ``module``."""
    value: Any = module
    with failure.as_target_error(f"Looking up {location}:{attribute}"):  # a property may raise anything
        for part in attribute.split("."):
            if not hasattr(value, part):
                known = [key for key, _ in candidates(module)]
                advice = f"It defines: {', '.join(f'{location}:{key}' for key in known)}." if known else None
                raise TargetError(f"{location!r} has no name {attribute!r}.", advice=advice)
            value = getattr(value, part)
    return value


def chosen(module: ModuleType, location: str) -> tuple[str, Any, str]:
    """The most whole candidate with its name, or an error that lists them all where several are alike; and in words what else there
    was, and how to name it: empty where there was nothing to choose."""
    ranked = _ranked(module)
    wanting = [] if ranked else _wanting_arguments(module)
    if wanting:
        name, kind = wanting[0]
        signatures = ", ".join(f"{key} {inspect.signature(value)}" for key, value in wanting)
        message = f"{location!r} defines classes whose arguments are not known: {signatures}."
        raise NothingToProbe(message, advice=f"Give them: {location}:{name} {arguments_of(kind)}")
    if not ranked:
        advice = f"Name what to probe: {location}:NAME, where NAME is a dataset, a loader or a callable that returns one; "
        advice += "a loader that is made while the program runs is looked at by: " + command("pipefix", "run", "--probe", location)
        message = f"{location!r} defines no Dataset, no DataLoader and no function without required arguments that makes one."
        raise NothingToProbe(message, advice=advice)
    alike = ranked[min(ranked)]
    if len(alike) > 1:
        known = candidates(module)
        every = [pair for pair in known if not inspect.isclass(pair[1])] or known
        listed = "\n".join(f"  {location}:{key}  ({_kind(value)})" for key, value in every)
        message = f"{location!r} defines {len(every)} candidates:\n{listed}"
        raise TargetError(message, advice="Name the one you mean, as listed above.")
    ((name, value),) = alike
    others = [f"{key} ({_kind(held)})" for key, held in candidates(module) if held is not value and not inspect.isclass(held)]
    words = f"{location} holds several targets, and {name} ({_kind(value)}) was taken; name another one with {location}:NAME"
    return name, value, f"{words} ({', '.join(others)})." if others else ""


def candidates(module: ModuleType) -> list[tuple[str, Any]]:
    """Everything that can be probed, the most whole first."""
    ranked = _ranked(module)
    return [pair for rank in sorted(ranked) for pair in ranked[rank]]


def _ranked(module: ModuleType) -> dict[tuple[int, int], list[tuple[str, Any]]]:
    """Candidates by how whole they are and by what their name says they are for; less is better."""
    public = [(key, value) for key, value in vars(module).items() if not key.startswith("_")]
    loaders = [(key, value) for key, value in public if _is_loader(value)]
    datasets = [(key, value) for key, value in public if isinstance(value, Dataset) and not inspect.isclass(value)]
    datasets = [pair for pair in datasets if not _is_loader(pair[1])]
    # What a loader or another dataset reads from is no candidate of its own, and neither are the leftovers of a split.
    held = [held_loader(value) for _, value in loaders]
    used = {id(part) for loader in held if loader is not None for part in parts(loader.dataset)}
    datasets = [(key, value) for key, value in datasets if not used & {id(part) for part in parts(value)}]
    inner = {id(part) for _, value in datasets for part in parts(value)[1:] if part is not value}
    datasets = [(key, value) for key, value in datasets if id(value) not in inner]
    makers = [pair for pair in public if _is_maker(pair[1], module)]
    functions = [pair for pair in makers if not inspect.isclass(pair[1])]
    classes = [pair for pair in makers if inspect.isclass(pair[1])]
    of_classes = [pair for pair in public if type(pair[1]) in [kind for _, kind in classes]]
    kinds = [
        loaders,
        [pair for pair in functions if _makes_a_loader(pair[1])],
        datasets,
        [pair for pair in functions if not _makes_a_loader(pair[1])],
        [pair for pair in of_classes if not isinstance(pair[1], (Dataset, DataLoader))],
        classes,
    ]
    if not any(kinds):  # what looks like a dataset
        sized = [pair for pair in public if hasattr(type(pair[1]), "__getitem__") and hasattr(type(pair[1]), "__len__")]
        kinds = [[pair for pair in sized if type(pair[1]).__module__.partition(".")[0] not in _PLAIN]]
    ranked: dict[tuple[int, int], list[tuple[str, Any]]] = {}
    known_ids: set[int] = set()  # aliases are no second candidate
    for rank, kind in enumerate(kinds):
        for name, value in kind:
            loader = held_loader(value) if rank == 0 else None
            known_id = id(value if loader is None else loader)  # a loader and what is wrapped around it are one
            if known_id not in known_ids:
                known_ids.add(known_id)
                ranked.setdefault((rank, _purpose(name)), []).append((name, value))
    return ranked


def _is_loader(value: Any) -> bool:
    """A loader, or what a framework makes of one."""
    return not inspect.isclass(value) and (held_loader(value) is not None or is_data_module(value) or is_node(value))


def _purpose(name: str) -> int:
    """0 for training, 2 for evaluation, 1 where a name says neither."""
    words = re.findall("[A-Z]?[a-z]+|[A-Z]+", name)
    if any(_TRAINING.fullmatch(word.lower()) for word in words):
        return 0
    return 2 if any(_EVALUATION.fullmatch(word.lower()) for word in words) else 1


def parts(dataset: Any) -> list[Any]:
    """A dataset and those it wraps (Subset, ConcatDataset …), the outermost first."""
    return [part for path, part in datasets_in(dataset, most=_MOST_PARTS) if not path or is_dataset(part)]


def is_dataset(value: Any) -> bool:
    """Whether a loader could read from it: subclassing Dataset is a habit, not a condition."""
    return isinstance(value, Dataset) or (hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, type)))


def callable_bare(value: Any) -> bool:
    return _missing_arguments(value) == []


def arguments_of(value: Any) -> str:
    """``--arg root=VALUE``: what is missing to call it."""
    missing = _missing_arguments(value)
    return "--arg NAME=VALUE" if missing is None else " ".join(f"--arg {name}=VALUE" for name in missing)


def unknown_argument(value: Any) -> str | None:
    """The first name among the arguments it was given that it does not take."""
    function, given = getattr(value, "func", value), getattr(value, "keywords", {})
    with suppress(TypeError, ValueError):
        parameters = inspect.signature(function).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return next((name for name in given if name not in parameters), None)
    return None


def _missing_arguments(value: Any) -> list[str] | None:
    """Names of what must be given to call it; None where it does not say."""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    with suppress(TypeError, ValueError):
        parameters = inspect.signature(value).parameters.values()
        return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    return None


def _wanting_arguments(module: ModuleType) -> list[tuple[str, Any]]:
    """Classes of datasets and loaders of the module's own that cannot be called as they are."""
    own = [
        pair for pair in vars(module).items() if inspect.isclass(pair[1]) and not pair[0].startswith("_")
        and pair[1].__module__ == module.__name__ and issubclass(pair[1], (Dataset, DataLoader))
    ]  # fmt: skip
    return [(name, value) for name, value in own if not inspect.isabstract(value) and arguments_of(value)]


def _is_maker(value: Any, module: ModuleType) -> bool:
    if getattr(value, "__module__", None) != module.__name__:
        return False
    if inspect.isclass(value):
        duck = "__len__" in dir(value) and "__getitem__" in dir(value) and not issubclass(value, (tuple, dict))
        whole = issubclass(value, (Dataset, DataLoader)) or is_module_class(value)
        return (whole or duck) and not inspect.isabstract(value) and callable_bare(value)
    if not inspect.isfunction(value) or not callable_bare(value):
        return False
    given = _given(value)
    if given is not None:
        return _is_said_to_be(given, Dataset) or _is_said_to_be(given, DataLoader)
    return "dataset" in value.__name__.lower() or "loader" in value.__name__.lower()


def _given(function: Any) -> Any:
    """What it says that it returns, by its annotation or in so many words; None where it does not say."""
    returned = inspect.signature(function).return_annotation
    return _returned(function) if returned is inspect.Signature.empty else str(returned) if returned is None else returned


def _is_said_to_be(given: Any, kind: type) -> bool:
    return issubclass(given, kind) if inspect.isclass(given) else kind.__name__ in str(given)


def _returned(function: Any) -> type | None:
    """The class of loaders or datasets that its code returns an object of, in so many words: ``return DataLoader(...)``."""
    try:
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(defined, ast.FunctionDef):
        return None
    for statement in ast.walk(defined):
        if not (isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call)):
            continue
        named_value: Any = function.__globals__
        for part in ast.unparse(statement.value.func).split("."):
            named_value = named_value.get(part) if isinstance(named_value, dict) else getattr(named_value, part, None)
        if inspect.isclass(named_value) and issubclass(named_value, (Dataset, DataLoader)):
            return named_value
    return None


def _makes_a_loader(function: Any) -> bool:
    """By what it says that it returns; else by its name and its code: many a function called a loader reads a file."""
    given = _given(function)
    if given is not None:
        return _is_said_to_be(given, DataLoader)
    return "loader" in function.__name__.lower() and any("loader" in name.lower() for name in names_in(function.__code__))


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "class"
    return "function" if inspect.isfunction(value) else type(value).__name__
