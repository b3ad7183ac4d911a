"""Cuts a dataset's transforms for a cache: what gives the same every time is stored, the random rest runs when a sample is read.

The dataset's code is not changed. Its attribute that holds the transforms (``transform``, ``transforms``, ``aug`` …) is replaced,
in the converter's own processes, by an object that runs only the first operations, and notes what came out of it; in the sample
that the dataset then returns, those very objects are looked up. Code that goes on working on them cannot be cut there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from pipefix.caches.code_digest import holds_generator
from pipefix.caches.fingerprint import digest_of
from pipefix.caches.manifest import Call, Cut
from pipefix.caches.pictures import record_of
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.held_transforms import held_transforms
from pipefix.vocabulary.nested import at, with_at
from pipefix.vocabulary.random_state import RandomState, seeded

_SAYS_RANDOM = re.compile(
    r"Random|Jitter|AutoAugment|RandAugment|TrivialAugment|AugMix|MixUp|CutMix|Dropout|Noise|Erasing|Elastic|OneOf|SomeOf|Flip(?!.*functional)"
)
"""Names of operations that draw numbers, whether or not a few tries show it."""
_TRIES = 3
_DEEPEST = 6
_BY_HAND = "Give the operations that are to run live yourself: CachedDataset(..., transform=...)"
_LISTS = ("Compose", "Sequential")


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _following(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """What the operation after one that was called so is called with: one value, several, or values by name."""
    if kwargs:
        return (), {**kwargs, **result}
    return ((result,) if len(args) == 1 else tuple(result)), {}


class Chain:
    """Operations one after the other, as the list had them."""

    def __init__(self, operations: Sequence[Any]) -> None:
        self.operations = list(operations)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for operation in self.operations:
            args, kwargs = _following(operation(*args, **kwargs), args, kwargs)
        return kwargs or (args[0] if len(args) == 1 else args)


class Hook(Chain):
    """Stands in the transforms' place: runs the first of them, and remembers what it gave."""

    def __init__(self, first: Sequence[Any]) -> None:
        super().__init__(first)
        self.given: list[Any] = []
        """Results of the last sample's calls: one value, or several."""
        self.keywords: list[str] = []
        self.calls = 0

    def begin(self) -> None:
        self.given, self.calls = [], 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        result = super().__call__(*args, **kwargs)
        args, kwargs = _following(result, args, kwargs)
        self.keywords, self.given = list(kwargs), list(kwargs.values()) if kwargs else list(args)
        return result

    def gave(self, call: Call, sample: Any) -> bool:
        """Whether its results lie in the sample where ``call`` finds them."""
        held: dict[Any, Any] = dict(zip(self.keywords or range(len(self.given)), self.given, strict=False))
        names: Any = call.keywords or range(len(call.leaves))
        with suppress(LookupError, TypeError):
            return all(at(sample, path) is held[name] for name, path in zip(names, call.leaves, strict=True))
        return False


class Holder:
    """A dataset's attribute that holds transforms."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.value = getattr(owner, name)
        self.operations = listed(self.value)

    def places(self) -> list[tuple[Any, str]]:
        """The attribute, and that of the `transforms` in which torchvision's datasets hold the same list once more."""
        joint = getattr(self.owner, "transforms", None)
        same = joint is not None and joint is not self.value and getattr(joint, "transform", None) is self.value
        return [(self.owner, self.name), *([(joint, "transform")] if same else [])]


@contextmanager
def replaced(holders: Sequence[Holder], stand_in: Any) -> Iterator[None]:
    """Inside, ``stand_in`` is in the transforms' place."""
    with ExitStack() as stack:
        for owner, name in [place for holder in holders for place in holder.places()]:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        yield


def holders(dataset: Any) -> list[Holder]:
    """The attributes of a dataset, and of those it wraps, that hold transforms."""
    return [Holder(held.owner, held.name) for held in held_transforms(dataset)]


def listed(value: Any) -> list[Any]:
    """The operations of a Compose, or the one operation."""
    held = getattr(value, "transforms", None)
    if getattr(value, "processors", None) or _chance(value) < 1:
        return [value]  # albumentations: with boxes or key points, which the list as a whole looks after; or all of it by chance
    if isinstance(held, (list, tuple)) and type(value).__name__ in _LISTS:
        return [inner for operation in held for inner in listed(operation)]
    if type(value).__name__ == "Sequential" and hasattr(value, "_modules"):
        return [inner for operation in value for inner in listed(operation)]
    return [value]


def label(operation: Any) -> str:
    """What an operation is called in reports."""
    if isinstance(operation, type) or hasattr(operation, "__qualname__"):
        return str(operation.__qualname__)
    name = type(operation).__name__
    size = getattr(operation, "size", None)
    return f"{name}({size})" if isinstance(size, (int, tuple, list)) else name


# -- which operations are fixed --------------------------------------------------------------------------------------------


def fixed_operations(holder: Holder, inputs: Sequence[Arguments]) -> int:
    """How many leading operations give the same every time, up to the last whose results can be stored. ``inputs``: what the
    dataset called its transforms with."""
    values, storable = list(inputs), 0
    with suppress(Exception):  # whatever the user's operation raises alone: it stays where it is, live
        for count, operation in enumerate(holder.operations, 1):
            tried = [] if _may_draw(operation) else [_tried(operation, args, kwargs) for args, kwargs in values]
            fixed = [result for result in tried if result is not None]
            if len(fixed) < len(values):
                break
            values = [following for following, _ in fixed]
            if all(is_storable for _, is_storable in fixed):
                storable = count
    return storable


def says_random(name: str) -> bool:
    return _SAYS_RANDOM.search(name) is not None


def _may_draw(operation: Any) -> bool:
    drawn = says_random(label(operation)) or 0 < _chance(operation) < 1
    # Those of albumentations all hold generators, used or not; what is random of them has a chance or a name that says so.
    return drawn or (not type(operation).__module__.startswith("albumentations.") and holds_generator(operation))


def _chance(operation: Any) -> float:
    chance = getattr(operation, "p", 1.0)
    return chance if isinstance(chance, float) else 1.0


def _tried(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Arguments, bool] | None:
    """The next call's arguments, and whether a record can hold them; None where calls differ, or drew random numbers."""
    results = []
    for attempt in range(_TRIES):
        with seeded(attempt):
            before = RandomState()
            own_args, own_kwargs = copied(args, kwargs)
            results.append(operation(*own_args, **own_kwargs))
            if before.changed():
                return None
    records = {record_of(result) for result in results}
    return (_following(results[0], args, kwargs), None not in records) if len(records) == 1 else None


def copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Arguments of their own for a call that may change them, as far as they can be copied."""
    from pipefix.hooks.snapshot import NotCopyable, snapshot

    def own(value: Any) -> Any:
        with suppress(NotCopyable):
            return snapshot(value)
        return value

    return tuple(map(own, args)), {key: own(value) for key, value in kwargs.items()}


# -- where the results lie in the sample -----------------------------------------------------------------------------------


def ways(sample: Any, depth: int = 0) -> Iterator[tuple[list[int | str], Any]]:
    """Every value in a sample, itself and containers included, and the way to it: positions and keys."""
    yield [], sample
    pairs: Any = sample.items() if isinstance(sample, dict) else enumerate(sample) if isinstance(sample, (tuple, list)) else ()
    for key, value in pairs if depth <= _DEEPEST else ():
        if isinstance(key, (int, str)):
            for path, inner in ways(value, depth + 1):
                yield [key, *path], inner


def call_of(hook: Hook, sample: Any) -> Call | None:
    """How the hook's results are found again in the sample; None where they are not in it as they were."""
    if hook.calls != 1:
        return None
    places, keywords = [], []
    for place, value in enumerate(hook.given):
        path = next((path for path, held in ways(sample) if held is value), None)
        if path is not None:
            places.append(path)
            keywords += hook.keywords[place : place + 1]
        elif not hook.keywords:
            return None
    return Call(keywords=keywords, leaves=places, joint=len(hook.given) > 1 and not hook.keywords) if places else None


def run_live(rest: Callable[..., Any], call: Call, sample: Any) -> Any:
    """The sample with the live operations run on the values that the dataset would have handed them."""
    if call.keywords:
        result = rest(**{name: at(sample, path) for name, path in zip(call.keywords, call.leaves, strict=True)})
        values = [result[name] for name in call.keywords]
    elif call.joint:
        values = list(rest(*(at(sample, path) for path in call.leaves)))
    else:
        if call.leaves == [[0]] and type(sample) is tuple and len(sample) == 2:
            return rest(sample[0]), sample[1]  # (image, label), as most datasets have it
        values = [rest(at(sample, call.leaves[0]))]
    for path, value in zip(call.leaves, values, strict=True):
        sample = with_at(sample, path, value)
    return sample


def state_of(holders: Sequence[Holder], count: int | None = None) -> str:
    """Digest of the transforms whose results are stored: of each list the first ``count``, None for all."""
    return digest_of([operation for holder in holders for operation in holder.operations[:count]])


def rest_of(dataset: Any, cut: Cut, refresh: Callable[[], str]) -> Callable[..., Any] | None:
    """What is to run live of a dataset's own transforms, checked by name and settings against the cache's cut. ``refresh`` gives
    what to type where the stored ones differ."""
    own = holders(dataset)
    if cut.attribute is None:
        if state_of(own) != cut.state:
            stored = "its transforms, all of which are stored," if cut.state else "it had no transforms, and those of this one"
            raise _other_transforms(stored, refresh())
        return None
    for holder in own:
        names = [label(operation) for operation in holder.operations]
        if holder.name == cut.attribute:
            if names != [*cut.kept, *cut.live]:
                raise BadUsage(
                    f"The cache was made with {cut.attribute} = {', '.join([*cut.kept, *cut.live]) or 'nothing'}, and this dataset "
                    f"has {', '.join(names)}.",
                    advice=_BY_HAND,
                )
            if cut.state and state_of(own, len(cut.kept)) != cut.state:
                are = "is" if len(cut.kept) == 1 else "are"
                raise _other_transforms(f"{', '.join(cut.kept)} of {cut.attribute}, which {are} stored,", refresh())
            if not cut.kept:
                value: Callable[..., Any] = holder.value
                return value
            return Chain(holder.operations[len(cut.kept) :]) if cut.live else None
    raise BadUsage(f"The cache was cut in the dataset's attribute {cut.attribute!r}, and this dataset has none.", advice=_BY_HAND)


def _other_transforms(difference: str, advice: str) -> BadUsage:
    told = f"The cache was made from a dataset whose code or settings differ: {difference} would give other samples today."
    return BadUsage(told, advice=advice)
