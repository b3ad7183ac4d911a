"""Looks at a few samples of a source and decides how its parts are made: where transforms are cut, how large parts are.

Everything here depends on the source alone, never on time or chance: the same source and recipe give the same blueprint.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipefix.caches import cut as cuts
from pipefix.caches import learn_reads, pictures, pool, record, rows
from pipefix.caches.cut import Chain, Holder, Hook
from pipefix.caches.fingerprint import Fingerprint
from pipefix.caches.maker import TreeMaker, getter, is_stream, root_of
from pipefix.caches.manifest import Blueprint, Call, Cut, Recipe, Source
from pipefix.caches.record import Unstorable
from pipefix.caches.witness import Witness
from pipefix.caches.writer import is_interrupt, not_stored, program_ended
from pipefix.hooks.install import loaded_libraries
from pipefix.vocabulary.errors import BadUsage, PipefixError, TargetError
from pipefix.vocabulary.generators import generators
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.random_state import RandomState, seeded
from pipefix.vocabulary.tracebacks import frames, is_raised_here, summary

_LOOKED_AT = 32
_ROWS_LOOKED_AT = 64
_PARTS = 32
"""How many parts a cache is divided into, unless they became too small or too large."""
_SMALLEST_PART, _LARGEST_PART = 1 << 20, 256 << 20
_MOST_SAMPLES = 1 << 16
_RANDOM = (
    "the dataset draws random numbers besides its transforms, or works on what random ones give",
    "Hold the random part in an attribute such as self.transform, or keep what samples read: --store source",
)
_RANDOM_ROWS = (
    "rows hold whole samples, and random transforms would be frozen into them",
    "Keep what comes before the first random transform, --to lmdb --store sample, or what samples read, --to lmdb --store source",
)


@dataclass
class Surveyed:
    """A source that can be converted."""

    dataset: Any
    blueprint: Blueprint
    unseen_bytes: float = 0.0
    """Of a sample, what it reads in ways that a ``source`` cache cannot answer."""

    @contextlib.contextmanager
    def hooked(self) -> Iterator[Hook | None]:
        """Inside, the operations that are kept stand in the transforms' place, in this process."""
        cut = self.blueprint.cut
        if cut is None or cut.attribute is None:
            yield None
            return
        holders = cuts.holders(self.dataset)
        hook = Hook(holders[0].operations[: len(cut.kept)])
        with cuts.replaced(holders, hook):
            yield hook


def survey(dataset: Any, recipe: Recipe, target: str, *, apart: bool = False) -> Surveyed:
    """Settle everything, or raise what stands in the way. ``apart``: in a process of its own, so that connections and files that
    samples open there are not inherited by those who make parts."""
    if apart and not is_stream(dataset):
        return _survey_apart(dataset, recipe, target)
    try:
        return _survey(dataset, recipe, target)
    except Exception as error:
        if isinstance(error, PipefixError) or is_raised_here(error):
            raise
        raise TargetError(
            f"The dataset cannot be looked at: {summary(error)}",
            advice="Run len(dataset) and dataset[0] by themselves, twice, to see where that comes from.",
            user_traceback=frames(error),
        ) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise program_ended(error, "The dataset") from error


class FirstRecords(NamedTuple):
    """What came of converting a few samples."""

    refused: str = ""
    """Why it would be refused; empty where these samples can be stored."""
    record_bytes: float | None = None
    """Of a record, on average."""
    described_bytes: float = 0.0
    """Of a record that holds what a sample reads, those that tell where the rest is from: they are not in ``record_bytes``."""
    part_samples: int | None = None
    """Whose records are in one part."""
    keeps_nothing: bool = False
    """Of what transforms give, where that is wanted: they run live, all of them."""
    whole: bool = False
    """They are finished samples, none of whose transforms are left to run, and came out the same when they were made again."""
    kept: tuple[str, ...] = ()
    """Of which transforms the results are stored."""
    uncut: bool = False
    """Whatever is stored, they are: the transforms cannot be held apart from the dataset's code."""


def first_records(dataset: Any, recipe: Recipe, count: int) -> FirstRecords:
    """``count``: how many samples are looked at, at most."""
    try:
        with seeded(0), Witness(alone=recipe.store == "source") as witness:
            look = _Look(dataset, recipe, _length(dataset), witness, most=count)
            plan = look.settle(Blueprint(recipe=recipe))
    except PipefixError as error:
        return FirstRecords(refused=str(error))
    cut = plan.cut
    return FirstRecords(
        record_bytes=look.record_bytes, described_bytes=look.described_bytes, part_samples=plan.part_samples,
        keeps_nothing=recipe.store == "sample" and cut is not None and bool(cut.live) and not cut.kept,
        whole=recipe.store != "source" and (cut is None or not cut.live), uncut=cut is not None and cut.attribute is None,
        kept=tuple(cut.kept) if cut is not None else (),
    )  # fmt: skip


def _survey_apart(dataset: Any, recipe: Recipe, target: str) -> Surveyed:
    def look(at: Any) -> tuple[list[str], Blueprint, float]:
        Witness.at = staticmethod(at) if at is not None else None
        surveyed = survey(dataset, recipe, target)
        return loaded_libraries(), surveyed.blueprint, surveyed.unseen_bytes

    libraries, blueprint, unseen = pool.apart(look)
    for library in libraries:  # what a sample imports must have its hook before a worker's first sample
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    return Surveyed(dataset, blueprint, unseen)


def _survey(dataset: Any, recipe: Recipe, target: str) -> Surveyed:
    samples = None if is_stream(dataset) else _length(dataset)
    if samples == 0:
        raise TargetError("The dataset is empty: there is nothing to convert.", advice="Check the path that it was built with.")
    if samples is None and recipe.store == "source":
        raise BadUsage(
            "A stream reads ahead of the samples that it gives, so what a sample read cannot be told.",
            advice="Store its samples instead: --store sample",
        )
    if samples is not None and recipe.limit is not None:
        raise BadUsage(
            f"--limit is for streams, and this dataset has {counted(samples, 'sample')}.",
            advice="Convert a part of it as torch.utils.data.Subset(dataset, range(n)).",
        )
    # What the user's transforms draw here is put back.
    with seeded(0), Witness(alone=recipe.store == "source") as witness:
        look = _Look(dataset, recipe, samples, witness)
        before, rows_before = _held(dataset, samples, look.indices)
        plan = look.settle(Blueprint(target=target, recipe=recipe, samples=samples, classes=_classes(dataset), boot=boot()))
        after, rows_after = _held(dataset, samples, look.indices)
    named = Fingerprint(dataset, samples, [plan.source.root]).attributes
    attributes = {name: named[name] for name in before if after.get(name) == before[name]}
    volatile = [name for name in rows_after if rows_before.get(name) != rows_after[name]]
    plan = msgspec.structs.replace(plan, source=Source(root=plan.source.root, attributes=attributes, volatile=volatile))
    return Surveyed(dataset, plan, look.unseen_bytes)


def _held(dataset: Any, samples: int | None, indices: list[int]) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of what a dataset holds, and of its long lists at these samples. What differs after samples were made is no state."""
    fingerprint = Fingerprint(dataset, samples)
    return fingerprint.attributes, fingerprint.rows(indices)


def boot() -> str:
    """Differs after every start of the machine, where the system tells."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _classes(dataset: Any) -> list[str]:
    """The list of class names that datasets of pictures have, or those that they wrap."""
    for _ in range(8):
        classes = getattr(dataset, "classes", None)
        if isinstance(classes, (list, tuple)) and all(isinstance(name, str) for name in classes):
            return list(classes)
        dataset = getattr(dataset, "dataset", None)
    return []


def _length(dataset: Any) -> int:
    if not hasattr(type(dataset), "__len__"):
        raise TargetError(
            f"The dataset ({type(dataset).__name__}) has no length, so which samples there are cannot be told.",
            advice="Give its class a __len__; its samples are then those from 0 on.",
        )
    return len(dataset)


class _Look:
    def __init__(self, dataset: Any, recipe: Recipe, samples: int | None, witness: Witness, *, most: int | None = None) -> None:
        self.dataset, self.recipe, self.witness, self.samples = dataset, recipe, witness, samples
        most = most or (_ROWS_LOOKED_AT if recipe.store == "rows" else _LOOKED_AT)
        # Evenly over the dataset; of a stream, its beginning.
        places = range(most) if samples is None else sorted({(2 * at + 1) * samples // (2 * most) for at in range(most)})
        self.indices = list(places)[: recipe.limit]
        self.holders = cuts.holders(dataset)
        self.unseen_bytes = self.record_bytes = self.described_bytes = 0.0

    def settle(self, plan: Blueprint) -> Blueprint:
        if self.recipe.store == "source":
            return self._source(plan)
        cut, hook = self._cut()
        with cuts.replaced(self.holders if hook is not None else [], hook):
            return self._tree(msgspec.structs.replace(plan, cut=cut), hook)

    def _source(self, plan: Blueprint) -> Blueprint:
        root, self.record_bytes, self.described_bytes, self.unseen_bytes = learn_reads.learn(
            self.dataset, self.indices, self.witness
        )
        return msgspec.structs.replace(
            plan, stop_at=self.witness.stop_at, by_path=self.witness.by_path, maps=self.witness.maps, source=Source(root=root),
            part_samples=_part_samples(self.samples, self.record_bytes),
        )  # fmt: skip

    # -- samples as they are -------------------------------------------------------------------------------------------

    def _cut(self) -> tuple[Cut, Hook | None]:
        """Where the transforms are cut; nowhere, where the dataset has none or does not pass their results on as they are."""
        holders = self.holders
        stored_whole = Cut(state=cuts.state_of(holders))
        if self.recipe.store == "rows" or not holders:
            return stored_whole, None
        # Those of one name may have other settings.
        lists = {(holder.name, cuts.state_of([holder])): ", ".join(map(cuts.label, holder.operations)) for holder in holders}
        if len(lists) > 1:
            told = "; ".join(f"{name} = {operations}" for (name, _), operations in list(lists.items())[:2])
            raise TargetError(
                f"The dataset holds several different lists of transforms, by their operations or settings: {told}.",
                advice="Convert its parts one by one" + ("" if self.samples is None else ", or keep what it reads: --store source"),
            )
        states = [cuts.state_of(holders, length) for length in range(len(holders[0].operations) + 1)]  # before they are run
        count = self._fixed(holders[0]) if self.recipe.store == "sample" else 0
        hook = Hook(holders[0].operations[:count])
        call = self._call(hook)
        labels = list(map(cuts.label, holders[0].operations))
        if call is None:
            return stored_whole, None
        return Cut(attribute=holders[0].name, kept=labels[:count], live=labels[count:], call=call, state=states[count]), hook

    def _fixed(self, holder: Holder) -> int:
        calls: list[cuts.Arguments] = []

        def noting(*args: Any, **kwargs: Any) -> Any:
            calls.append(cuts.copied(args, kwargs))
            return holder.value(*args, **kwargs)

        with cuts.replaced(self.holders, noting):
            list(learn_reads.good(getter(self.dataset, None), self.indices, 3))
        return cuts.fixed_operations(holder, calls) if calls else 0

    def _call(self, hook: Hook) -> Call | None:
        """How the hook's results are found in samples; None where they are not, or the rest of the transforms, run on them there,
        does not give what the dataset gives."""
        plain, hooked = getter(self.dataset, None), getter(self.dataset, hook)
        rest = Chain(self.holders[0].operations[len(hook.operations) :])

        def call_in(index: int) -> Call | None:
            with seeded(index), cuts.replaced(self.holders, hook):
                sample = hooked(index)
                call = cuts.call_of(hook, sample)
                if call is None:
                    return None
                live = pictures.record_of(cuts.run_live(rest, call, sample))
            own = []
            for _ in range(2):
                with seeded(index):
                    own.append(pictures.record_of(plain(index)))
            return call if own[0] in (live, None) or own[0] != own[1] else None  # what draws by itself cannot be compared

        try:
            calls = [call for _, call in learn_reads.good(call_in, self.indices, 3)]
        except TargetError:  # the dataset's code works on what all of its transforms give
            return None
        return calls[0] if all(call == calls[0] for call in calls) else None

    def _tree(self, plan: Blueprint, hook: Hook | None) -> Blueprint:
        maker, is_rows = TreeMaker(plan, self.witness), self.recipe.store == "rows"
        get = getter(self.dataset, hook)
        self._check_fixed(get, self.indices[:3])
        before, of_dataset = RandomState(), RandomState(*generators(self.dataset))
        stored, files = [], {}

        def make(index: int) -> Any:
            try:
                return maker.row(index, get) if is_rows else len(maker.make(index, get))
            except Unstorable as error:
                raise not_stored(error, index, plan) from error

        for _, value in learn_reads.good(make, self.indices):
            stored.append(value)
            files.update(dict.fromkeys(self.witness.files.files))
            if self.recipe.store == "resized" and not maker.images:
                raise TargetError(
                    "There is no image in the samples, so there is nothing to make smaller.",
                    advice="Store them as they are: --store sample",
                )
        plan = msgspec.structs.replace(plan, seeded=before.changed(), source=Source(root=root_of(self.dataset, list(files))))
        if of_dataset.changed():  # one may be damaged, and another sample drawn in its place
            self._check_fixed(get, self.indices[3:], tolerated=1)
        plan, sizes = self._rows(plan, stored) if is_rows else (plan, stored)
        self.record_bytes = sum(sizes) / len(sizes)
        return msgspec.structs.replace(plan, part_samples=_part_samples(self.samples, self.record_bytes))

    def _rows(self, plan: Blueprint, values: list[Any]) -> tuple[Blueprint, list[int]]:
        try:
            shape, columns = rows.infer(values)
            sizes = [len(record.encode(list(rows.fields(value)[1].values()))) for value in values]
        except Unstorable as error:
            raise not_stored(error, self.indices[0], plan) from error
        columns = rows.with_tokens(columns, self.recipe)
        return msgspec.structs.replace(plan, shape=shape, columns=columns), sizes

    def _check_fixed(self, get: Any, indices: Sequence[int], *, tolerated: int = 0) -> None:
        """Something random that was not cut away would be frozen into the cache."""
        records: dict[int, set[int]] = {index: set() for index in indices}
        for seed in (1_000_003, 2_000_006):
            for index in indices:
                with contextlib.suppress(Exception), seeded(seed + index):  # a damaged sample, or a stream's end
                    records[index].add(hash(pictures.record_of(get(index))))
        differing = [index for index, found in records.items() if len(found) > 1]
        if len(differing) > tolerated:
            why, instead = _RANDOM_ROWS if self.recipe.store == "rows" and self.holders else _RANDOM
            if self.samples is None:  # of a stream, what samples read cannot be kept
                instead = "Turn its shuffling off, or hold the random part in an attribute such as self.transform."
            raise TargetError(f"Sample {differing[0]} comes out different every time: {why}.", advice=instead)


def _part_samples(samples: int | None, record_bytes: float) -> int:
    each = max(record_bytes, 1.0)
    wanted = _LARGEST_PART / 4 if samples is None else min(max(samples * each / _PARTS, _SMALLEST_PART), _LARGEST_PART)
    return max(1, min(_MOST_SAMPLES, round(wanted / each)))
