"""`FastLoader`: torch's `DataLoader` with faster ways to make batches and to hand them over.

    loader = FastLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

Arguments, attributes, warnings and errors are those of `DataLoader`, and with the same seed so are the batches, bit for bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset

from pipefix.hooks.torch_internals import kept_iterator, why_plain
from pipefix.loader import options, ranks, resume
from pipefix.loader.device import Carrier, OnItsWay
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.fusion import Fusing, Fusion
from pipefix.loader.fusing.threads import ThreadsLoaderIterator
from pipefix.loader.iterator import HELD, EpochWork, InProcessLoaderIterator
from pipefix.loader.metering.meter import Course, Meter, Stats
from pipefix.loader.plain_epoch import PlainEpoch
from pipefix.loader.planning import by_dali, planned
from pipefix.loader.planning.by_dali import DaliBatches, DaliEpoch
from pipefix.loader.planning.planned import Planned
from pipefix.loader.policy.quarantine import Quarantine
from pipefix.loader.policy.read_policy import ReadPolicy
from pipefix.loader.resume import EpochPosition, EpochStart
from pipefix.loader.slots.arena import Arena, room
from pipefix.loader.workers.iterator import AHEAD, ProcessesLoaderIterator
from pipefix.plan.planfile import PlanFile
from pipefix.vocabulary.quantity import counted

T = TypeVar("T", covariant=True)
if TYPE_CHECKING:
    from pipefix.loader.fusing.in_part import ReadInPart

    _Base = DataLoader
else:
    _Base = {T: DataLoader[DataLoader.__parameters__]}
    """``_Base[T]`` is `DataLoader` with all its type parameters, however many this torch gives it: two on its main branch."""
_SIGNATURE = inspect.signature(DataLoader.__init__)


class FastLoader(_Base[T]):
    """All of `DataLoader`'s arguments, and these:

    ``engine``: how batches come from workers. ``auto`` and ``processes``: through reusable shared memory; ``torch``: as
    `DataLoader` does. Fused batches (``fuse``) are made by workers under ``processes``, under ``auto`` by threads of this process
    where they can be. `explain` tells which way is taken, and why.
    ``threads_per_worker``: threads that read the samples of a batch in each worker (without workers, in this process), for samples
    that wait for a network or a disk. The dataset has to bear calls from several threads at once. Datasets whose samples draw
    random numbers are read one sample after the other all the same.
    ``plan``: a plan file (``pipefix.plan.toml``) whose settings, cache and augmentation are used.
    ``on_bad``: a sample that cannot be read is an error (``raise``), is left out (``skip``), or another of its batch takes its
    place (``refill``). ``max_bad``: the share of them that is too much. ``quarantine``: the file they are noted in.
    ``sample_timeout``: seconds after which a sample counts as one that cannot be read.
    ``augment``: what is done to each batch on its way to the caller. ``device``: where it is brought before that.
    ``fuse``: pictures are decoded, transformed and written into the batch by one call each, where dataset and transforms are of a
    known kind: with pixels ``close`` to the dataset's own, or only where they are equal (``exact``). See `explain`.
    ``rng``: whose random numbers samples draw: their worker's (``torch``), or their own (``sample``), by seed, epoch and index.
    Where they have their own, workers take the next batch when they are free, and not in turn: a slow sample holds up one batch.
    """

    def __init__(
        self, *args: Any, engine: str = "auto", plan: Any = None, on_bad: str = "raise", max_bad: float = 0.01,
        quarantine: Any = "quarantine.jsonl", sample_timeout: float = 0, augment: Any = None, device: Any = None,
        fuse: str | None = None, rng: str = "torch", threads_per_worker: int = 1, **kwargs: Any,
    ) -> None:  # fmt: skip
        # Frameworks build loaders anew from public attributes: each option is kept as it was passed.
        self.engine, self.plan, self.rng = engine, plan, rng
        self.on_bad, self.max_bad, self.quarantine, self.sample_timeout = on_bad, max_bad, quarantine, sample_timeout
        self.augment, self.device, self.fuse, self.threads_per_worker = augment, device, fuse, threads_per_worker
        self._planned, self._planned_by = Planned(), plan
        if plan is not None:
            arguments = dict(_SIGNATURE.bind(self, *args, **kwargs).arguments)
            del arguments["self"]
            self._planned = planned.read(plan, arguments["dataset"])
            args, kwargs = (), planned.arguments(self._planned.settings, arguments)
        self._fusing: Fusing | None = None
        self._fusion: Fusion | ReadInPart | str | None = None
        """How batches are fused, or why they are not; None: not asked for, or not known yet."""
        super().__init__(*args, **kwargs)
        noted = vars(self).get("__pl_saved_kwargs")
        if noted is not None and type(self) is FastLoader:
            # Lightning makes a loader of a hook anew from what it saw it made with: what `DataLoader` was given, perhaps.
            noted.update(options.of(self))
        options.check(self)
        self._why = ""
        self._latest: EpochWork | None = None
        self._standing: EpochPosition | None = None
        self._course: Course | None = None
        self._meter: Meter | None = None
        self._carrier: Carrier | None = None
        self._begun_with: dict[str, Any] = {}  # options that the latest iterator was made by
        self._epoch, self._beginning = 0, EpochStart()
        self._pending: EpochStart | None = None
        self._lived_on = False  # whether the workers of the loader that a state is of would have lived on into the next epoch

    # -- epochs ------------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        begun = self.meter.clock()
        dali_batches = by_dali.of(self._planned, self)
        before = self._epoch, self._pending, self._lived_on
        try:
            iterator = self._epoch_begun() if why_plain() is None and dali_batches is None else self._plain_epoch(dali_batches)
        except BaseException:  # also Ctrl-C while workers start: whoever iterates again is to meet the same epoch, where it stood
            self._epoch, self._pending, self._lived_on = before
            self._iterator = None  # workers that were kept may have been told of it already
            raise
        self._standing, self._course = getattr(iterator, "standing", None), getattr(iterator, "course", None)
        self.meter.started(self.meter.clock() - begun)
        return iterator

    def _epoch_begun(self) -> Any:
        kept = kept_iterator(self)
        if kept is not None and not (self._begun_with == options.of(self) and getattr(kept, "usable", True)):
            self._iterator = kept = None  # what it does, and its workers, go by what was set before; or are gone
        going_on, self._pending = self._pending, None
        if going_on is None:
            begin = EpochStart(self._epoch, 0, self._seed(), resume.rng_states(self), self._starts_workers, self._lived_on)
            self._beginning, self._lived_on = begin, False
            self._epoch += 1
            return super().__iter__()
        self._epoch = going_on.epoch + 1
        if going_on.redealt:
            # Other ranks than before: the workers' random numbers are this process's own, the order is the epoch's.
            resume.set_sampler_epoch(self, going_on.generators)
            self._beginning = replace(going_on, generators=resume.rng_states(self), again=False, fresh=True)
            return super().__iter__()
        self._beginning = replace(going_on, passed=0) if isinstance(self.dataset, IterableDataset) else going_on
        with resume.generators_restored(self, going_on.generators):
            iterator = super().__iter__()
            # A stream has no places: what lies behind is read again, by the same numbers.
            resume.pass_over(iterator, going_on.passed - self._beginning.passed, going_on.missed)
        return iterator

    @property
    def _starts_workers(self) -> bool:
        """Whether workers are started for the next epoch, and a seed is drawn for them."""
        return kept_iterator(self) is None and not self._lived_on

    def _plain_epoch(self, dali_batches: DaliBatches | None) -> Any:
        """As `DataLoader` makes it, or DALI, with what is done to batches on their way."""
        self._planned.begin()
        going_on, self._pending = self._pending, None
        self._beginning = going_on or EpochStart(self._epoch, 0, self._seed(), resume.rng_states(self))
        self._epoch = self._beginning.epoch + 1
        if dali_batches is None:
            return PlainEpoch(self, self._beginning)
        return DaliEpoch(self, self._beginning, dali_batches)

    def _seed(self) -> int:
        generator = self.generator if isinstance(self.generator, torch.Generator) else None  # torch tells of another
        return int((generator or torch.default_generator).initial_seed())

    def _get_iterator(self) -> Any:
        options.check(self)
        self._begun_with = options.of(self)
        self._decide()
        if isinstance(self._fusion, Fusion) and self._fusion.by_threads:
            return ThreadsLoaderIterator(self)
        if not self.num_workers:
            return InProcessLoaderIterator(self)
        self.check_worker_number_rationality()  # as torch does: how many there are may have been changed
        return ProcessesLoaderIterator(self)

    def _decide(self) -> None:
        """Who makes the next epoch's batches."""
        self._fusion, mode = None, self._planned.settings.fuse or self.fuse
        if mode is None:
            return
        if self._fusing is None or self._fusing.mode != mode:
            self._fusing = Fusing(mode)
        self._planned.begin()
        try:
            self._fusion = self._fusing.decide(self, self._reads, moved=self._planned.module is not None)
        except NotFused as error:
            self._fusion = str(error)

    @property
    def _reads(self) -> Any:
        """What samples are read from."""
        return self.dataset if self._planned.reads is None else self._planned.reads

    def _work(self) -> EpochWork:
        """What the next iterator does beside torch's own."""
        self._planned.begin()
        fused = self._fusion if isinstance(self._fusion, Fusion) else None
        keyed = self.rng == "sample" or fused is not None
        threads = int(self.threads_per_worker) if fused is None and not keyed else 1
        rules = ReadPolicy(self.on_bad, float(self.sample_timeout), keyed, threads)
        work = EpochWork(
            reads=getattr(self._fusion, "reads", self._reads), rules=rules, fused=fused,
            quarantine=Quarantine(self.quarantine, self.max_bad, resume.length(self)) if rules else None,
            threads=self._planned.settings.worker_threads, carrier=self._carrier_to_device(),
            steps=tuple(step for step in (self._planned.module, self.augment) if step is not None),
            recorded=self._planned.module is not None,
            shared_queue=keyed and self.num_workers > 1 and self._engine != "torch" and self._auto_collation,
        )  # fmt: skip
        self._planned.warn_of_cpu(work.carrier)
        self._latest = work
        if fused is None or not fused.by_threads:  # else nothing travels
            self._why = self._hand_over(work)
        return work

    def _carrier_to_device(self) -> Carrier | None:
        """One for all epochs: memory that was copied to on another stream is not used again."""
        if self.device is None:
            return None
        if self._carrier is None or self._carrier.why or self._carrier.device != torch.device(self.device):
            self._carrier = Carrier(self.device)
        return self._carrier

    @property
    def _engine(self) -> str:
        """As the plan has it, or the code."""
        return self._planned.settings.engine or self.engine

    def _hand_over(self, work: EpochWork) -> str:
        """Give workers what they write into, where that can be; how it is told."""
        if self.num_workers == 0:
            return "As DataLoader does it: without workers there is nothing to hand over."
        if self._engine == "torch":
            return "As DataLoader does it: engine='torch' asks for it."
        slots = (AHEAD if work.shared_queue else 1) * (self.prefetch_factor or 1) + HELD
        try:
            work.arena = Arena(self.num_workers, slots, room(self.num_workers * slots))
        except (AttributeError, OSError, ValueError) as error:
            return f"As DataLoader does it: this system has no memory to share without a name ({error})."
        return f"{counted(self.num_workers, 'worker process')}, batches handed over through reusable shared memory."

    @property
    def another(self) -> Callable[..., DataLoader[Any]]:
        """Makes loaders over other datasets, called as `DataLoader` is: they hand batches over as this one was told to."""
        return DataLoader if self._engine == "torch" else functools.partial(FastLoader, engine="processes")

    @property
    def follows(self) -> tuple[PlanFile, Path] | None:
        """The plan that it was given, and the folder that this names files from; None without one."""
        return (self._planned.plan, self._planned.folder) if self.plan is not None else None

    @property
    def on_its_way(self) -> OnItsWay | None:
        """What is done to batches before the caller has them; None: nothing."""
        return None if self.device is None and self.augment is None else OnItsWay(self.device, self.augment)

    # -- where an epoch stands ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the latest epoch stands, for `load_state_dict` of a loader over the same dataset, in this process or another."""
        begin = self._pending
        place = self._standing if begin is None else EpochPosition(begin, begin.passed, begin.missed)
        return resume.state_of(self, place, self._epoch, starts_workers=self._starts_workers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next epoch goes on where ``state`` was taken. No sample is read for the batches that lie behind."""
        begin = resume.beginning_of(self, state)
        self._epoch = begin.epoch
        self._pending = begin if begin.generators else None
        self._lived_on = not (begin.fresh or begin.generators)
        self._standing = None
        self._iterator = None

    def __getstate__(self) -> dict[str, Any]:
        """What an iterator left behind stays in this process."""
        gone = dict.fromkeys(("_latest", "_standing", "_course", "_meter", "_fusing", "_fusion", "_carrier"))
        return {**self.__dict__, **gone}

    # -- what is told ------------------------------------------------------------------------------------------------------

    @property
    def meter(self) -> Meter:
        """Every step that batches of this loader were taken for; `pipefix.watch` reads it."""
        if self._meter is None:
            self._meter = Meter()
        return self._meter

    def stats(self) -> Stats:
        """Figures of the latest epoch. Printed, it is one line."""
        return (self._course or Course(self.meter, self._epoch)).stats()

    def explain(self) -> str:
        """How batches are made, or will be, and why so."""
        work = self._latest
        if by_dali.of(self._planned, self) is not None:
            return self._planned.explain(self._carrier)
        if why_plain() is not None:
            return f"As DataLoader does it: {why_plain()}."
        if work is None:
            self._decide()
            work, self._latest = self._work(), None  # as the first epoch would have it
        sentences = [self._fusion_sentence(), ranks.sentence(self, self._beginning.dealt_from)]
        if work.fused is None or (self.num_workers and not work.fused.by_threads):
            sentences.append(self._why)
            if work.arena is not None and work.handed["torch"]:
                others = f"{work.handed['torch']} of {work.handed.total()} batches went torch's way"
                sentences.append(f"{others}: no slot was free or large enough, or no tensor was in them.")
        if work.shared_queue:
            sentences.append("Whichever worker is free makes the next batch.")
        if work.rules.threads > 1:
            sentences.append(f"{work.rules.threads} threads read the samples of a batch, unless samples draw random numbers.")
        if work.carrier is not None:
            why = work.carrier.why
            sentences.append(f"Batches stay where they are: {why}." if why else f"Batches are brought to {work.carrier.device}.")
        if work.quarantine is not None:
            sentences.append(work.quarantine.sentence())
        sentences.append(self._planned.explain(work.carrier))
        return " ".join(part for part in sentences if part)

    def _fusion_sentence(self) -> str:
        """How batches are fused, or why they are not; empty where that was not asked for."""
        if self._fusion is None:
            return ""
        return f"Not fused: {self._fusion}." if isinstance(self._fusion, str) else self._fusion.explain()
