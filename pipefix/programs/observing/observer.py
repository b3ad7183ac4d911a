"""`Observer`: what one process of the program does (its loops, their steps, whose batch it works on), told by `patches`.

No thread is started, of a batch only its length is read, and nothing synchronises with a device.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .batches import FIRST, tensors_in
from .device import DeviceWaits, in_use
from .inside import Inside, end_program, without_words
from .known_loops import KnownLoops
from .lines import is_within_pipefix, users_line
from .loops import Epoch, Loop, clock, cost_of_a_step
from .model_calls import ModelCalls
from .notes import Notes
from .samples import Orders, idle_pools, pids_of, share_of
from .timed_batches import Looks
from .training import TrainingSteps
from .turns import Here, Turns, chain, in_turn_with, leave_for

EACH_MADE = 4  # batches a worker, after which it is asked whether all of them are still at work
EPOCHS = 200  # beginnings and ends of a loop's epochs that are noted
_TORCHS = "torch.utils.data.dataloader"


class Observer:
    def __init__(self, folder: str, asked: Mapping[str, str] = MappingProxyType({})) -> None:
        self.notes = Notes(folder)
        self.loops = KnownLoops(self.notes)
        self.of_parents: list[Any] = []  # what processes noted that this one was forked from
        self.epochs: weakref.WeakKeyDictionary[Any, Epoch] = weakref.WeakKeyDictionary()
        self.kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """By iterator: its loader, which the program itself may hold no longer (``for batch in DataLoader(...)``)."""
        self.unasked: weakref.WeakKeyDictionary[Any, tuple[Any, float, Any]] = weakref.WeakKeyDictionary()
        """Iterators that nobody goes through yet."""
        self.orders = Orders()
        self.looks = Looks(asked)
        self.device: DeviceWaits | None = None  # the events of its loops, once the program uses CUDA
        self.here = Here()
        self.training = TrainingSteps(self, int(asked.get("steps") or 0))
        self.models = ModelCalls()
        self.calls = 0
        self.inside = Inside(job, folder) if (job := asked.get("job")) else None
        self._failed: set[str] = set()
        self._in_epochs = 0.0  # seconds of all epochs so far, those inside others apart
        self._turns = Turns(self.notes)
        self._leaving = 0.0  # when the process had run its last line, and began to end

    @property
    def current(self) -> Epoch | None:
        """Whose batch the program works on: in this thread, or one that another thread takes batches of for it."""
        return self.here.current or self._turns.elsewhere()

    # -- notes -------------------------------------------------------------------------------------------------------------

    def flush(self, loop: Loop) -> None:
        if self.device is None:
            self.device = in_use()
        self.notes.tell_rank()
        if loop.steps or loop.optimizer_steps or loop.step_s or loop.wait_s or loop.saved_s:  # of a last step, its time alone
            self.notes.write("steps", loop=loop.number, **loop.figures())
            loop.noted()

    def failed(self, error: Exception, message: str = "pipefix could not look into a process of the program") -> None:
        if message not in self._failed:
            self._failed.add(message)
            self.notes.write("error", error=f"{message}: {type(error).__name__}: {error} {getattr(error, 'advice', '')}".rstrip())

    def ended(self) -> None:
        if self.notes.begun and not self.notes.silent:
            if self.device is not None:
                self.device.collect()
            self._turns.leave_all(self.here.current)
            for loop in self.loops.all:
                self.flush(loop)
            overhead_s = self.notes.own_s + self.calls * cost_of_a_step(Observer("", {})) + self.looks.cost_s()
            ending_s = clock() - self._leaving if self._leaving else 0.0
            self.notes.write("ended", overhead_s=overhead_s, cuda=in_use() is not None, ending_s=ending_s)
            self.notes.silent = True  # from Python 3.14 on both call this: multiprocessing, and what handles exit

    def leaves(self) -> None:
        self._leaving = clock()

    def forget(self) -> None:
        """In a process forked from this one: what was noted belongs to the parent, events of its device above all. They are kept,
        since a process that was forked beside CUDA ends where it frees one."""
        if self.device is not None and self.device.step is not None:
            self.device.step.forget()
        self.of_parents += [self.device, self.here.current, self.here.latest, self.training.program, *self.loops.all]
        self.loops.forget()
        self._turns.forget()
        self.device = None
        self.here.current = self.here.latest = self.here.asked = self.training.program = None
        self.notes.forget()
        self.looks.forget()
        self.calls = 0

    # -- what the program does ---------------------------------------------------------------------------------------------

    def _look_here(self, iterator: Any, epoch: Epoch) -> float:
        """At batches that are made in this process, also by another loader that ``iterator`` asks; the seconds that this took."""
        begun, loop = clock(), epoch.loop
        if len(epoch.makers) == 1 and not epoch.pids and not hasattr(iterator, "_dataset_fetcher"):
            ((made_by, epoch),) = epoch.makers.values()
            iterator = made_by()
            for record in epoch.loop.records:
                loop.add(record)
        loader = epoch.loader()
        if loader is not None and not epoch.pids:
            loop.add(self.looked(self.looks.here, loader, iterator))
        return clock() - begun

    def looked(self, look: Any, *given: Any) -> Any:
        """What ``look`` returns; None where it cannot be: the stages stay unknown."""
        if self.notes.silent:
            return None
        with self.notes.counted():
            try:
                return look(*given)
            except Exception as error:  # noqa: BLE001 - see above
                self.looks.possible = False
                self.failed(error, "pipefix could not look at the stages of a loader")
                return None

    def made(self, loader: Any, iterator: Any, starting_s: float, record: Any) -> None:
        """Its loop begins where it is gone through, which may be later: to tell its state a `StatefulDataLoader` makes it early.

        ``record``: where the makers of its batches write what these take.
        """
        self.unasked[iterator] = weakref.ref(loader), starting_s, record
        if record is not None:
            self.looks.follow(loader, iterator, record)

    def first_asked(self, iterator: Any) -> Epoch | None:
        """Of an iterator that no ``__iter__`` handed out."""
        loader = self.unasked[iterator][0]() if iterator in self.unasked else None
        if loader is not None:
            try:
                self.began(loader, iterator, 0.0)
            except Exception as error:  # noqa: BLE001 - the program goes on unobserved
                self.failed(error)
        return self.epochs.get(iterator)

    def began(self, loader: Any, iterator: Any, starting_s: float, inner: tuple[Any, Any] | None = None) -> None:
        """``inner``: the iterator that this one asks, if it is another, and what is known of how that one was made."""
        known = self.epochs.get(iterator)
        if known is not None and not known.waited:
            return  # of a subclass that gives what its base class gave it; that of persistent workers is begun again
        if is_within_pipefix():
            self.unasked.pop(iterator, None)  # or each of its batches would ask for the same again
            return
        asked, made = inner or (iterator, self.unasked.pop(iterator, None))
        _, made_s, record = made or (None, 0.0, None)
        starting_s = max(starting_s, made_s)
        workers, size, persistent = (getattr(loader, name, None) for name in ("num_workers", "batch_size", "persistent_workers"))
        loop = self.loops.over(loader, workers=workers, batch_size=size, persistent=persistent)
        loop.begun += 1
        if workers:  # handlers of exit run in turn from the latest one, and torch has just put in the one that ends these
            atexit.unregister(self.leaves)
            atexit.register(self.leaves)
        begun = clock() - starting_s
        if self._turns.begins(loop, self.here.current, begun):
            loop.ended = None
        self._count_epochs(self.here.current, begun, ended=False)
        if self.device is None:
            self.device = in_use()
        loop.add(record)
        if loop.ended is not None:
            ended, in_epochs = loop.ended
            loop.between_s += max(0.0, begun - ended - (self._in_epochs - in_epochs))
            loop.saved_between_s += loop.saved_since
            loop.saved_since = 0.0
        epoch = self.epochs[iterator] = Epoch(loop, loader, size if isinstance(size, int) else 0, starting_s, pids_of(asked))
        loop.latest = epoch
        if (not persistent and type(loader).__iter__.__module__ == _TORCHS) or self.inside is not None:
            self.kept[iterator] = loader  # the former hold no iterator, so that it ends when the program lets go of it
        epoch.checksums = [] if loop.begun == 1 else None
        if loop.begun <= EPOCHS:
            told = {"epoch": loop.begun, "iterated": users_line(), "idle_pools": idle_pools(self.epochs.values(), loop)}
            self.notes.write("epoch", loop=loop.number, **told, **share_of(loader))

    def took(
        self, iterator: Any, epoch: Epoch, requested: float, now: float, batch: Any, no_gradients: bool, cpu_s: float | None = None
    ) -> None:
        """The iterator handed out a batch that was asked for at ``requested``.

        ``cpu_s``: what making it took of this thread's CPU; None where it was not looked at.
        """
        loop = epoch.loop
        if loop.going != epoch.number:
            self._goes_on_with(epoch)
        if cpu_s is not None:
            loop.making_cpu_s += cpu_s
            loop.making_s += now - requested
        epoch.waited = now - requested
        self.calls += 1
        loop.steps += 1
        loop.samples += epoch.count(batch)
        if epoch.checksums is not None and len(epoch.checksums) == FIRST:
            self._told_apart(epoch)
        if loop.begun == 1:
            self._first_batches(iterator, epoch, batch)
        if self.device is not None:
            self.device.got(loop)
        loop.wait_s += now - requested
        if self.here.current is not epoch:
            self._turn_to(epoch, requested)
        if epoch.delivered:
            begun = epoch.delivered
            self._turns.worked(epoch, requested, now)
            if self.inside is not None and epoch.trains:
                loop.durations.append(max(0.0, requested - begun - (self._turns.waited - epoch.others_waited)))
                loop.trained_s += now - begun
                if self.inside.due(len(loop.durations), loop.trained_s):
                    stood_still = self._work_inside(self.inside, epoch)
                    now += stood_still
                    epoch.cpu_at += stood_still
                    if epoch.outer is not None:
                        epoch.outer.inner_s += stood_still
        else:
            if epoch.outer is not None:
                epoch.outer.inner_s += now - requested + epoch.starting_s
            loop.wait_s += epoch.starting_s
            loop.first_s.append(round(now - requested + epoch.starting_s, 6))
        self._turns.has_waited(epoch, now - requested)
        epoch.others_waited = self._turns.waited
        loop.without_gradients += no_gradients
        if (loop.in_turn or not epoch.trains) and not no_gradients and epoch.batches > 1:
            self.models.look_into_step(loop)
        epoch.delivered = epoch.marked = now
        epoch.inner_s = epoch.inner_by_mark = epoch.saved_s = 0.0
        if now - loop.since > loop.noted_after:
            epoch.look_at_cpu()
            epoch.delivered = epoch.marked = now + self._look_here(iterator, epoch)  # once it imports for tenths of a second
            self.flush(loop)
            if self.device is not None:
                self.device.look_into_step(loop)

    def _goes_on_with(self, epoch: Epoch) -> None:
        """Not with the one whose batches it worked on: a note is of one epoch, which may train where another does not."""
        loop = epoch.loop
        loop.turns += 1
        if loop.turns <= 2 * EPOCHS:
            self.flush(loop)
        loop.going = epoch.number

    def _first_batches(self, iterator: Any, epoch: Epoch, batch: Any) -> None:
        if epoch.batches == 1 and not hasattr(type(epoch.loader()), "explain"):  # a FastLoader hands it over as one piece
            self.notes.write("batch", loop=epoch.loop.number, tensors=tensors_in(batch))
        if epoch.pids and epoch.batches == EACH_MADE * len(epoch.pids):
            at_work = getattr(iterator, "_workers_status", None) or [True]
            if not all(at_work):
                self.notes.write("idle workers", loop=epoch.loop.number, workers=at_work.count(False))

    def saved(self, begun: float, now: float) -> None:
        """The main thread called ``torch.save``: of the training loop, also after an evaluation."""
        loop = self.worked_on() or next((loop for loop in reversed(self.loops.all) if loop.trains), None)
        if loop is not None and threading.current_thread() is threading.main_thread():
            loop.saved_s += now - begun
            if self.current is None:
                loop.saved_outside_s += now - begun
                loop.saved_since += now - begun
            elif self.here.current is not None:
                self.here.current.saved_s += now - begun

    def _told_apart(self, epoch: Epoch) -> None:
        checksums, epoch.checksums = epoch.checksums, None
        if checksums and None not in checksums:
            self.notes.write("batches", loop=epoch.loop.number, checksums=checksums)

    def _work_inside(self, inside: Inside, epoch: Epoch) -> float:
        """Seconds that the program stood still for it."""
        begun = clock()
        self.inside = None
        if not inside.claim():
            self.kept.clear()
            return clock() - begun
        self.notes.silent = True  # in the forked process as well
        try:
            iterators = [(iterator, known.loader()) for iterator, known in self.epochs.items() if known.loader() is not None]
            chosen = max((epoch, *in_turn_with(epoch, self.epochs.values())), key=lambda other: other.loop.waited_s)
            why_not = inside.do(chosen.loader(), chosen.loop.loader, epoch.loop.step_seconds(), iterators)
        finally:
            self.kept.clear()
            self.notes.silent = False
            if inside.job.get("ends"):
                sys.excepthook = without_words(sys.excepthook, self.notes.folder)
                end_program(self.notes.folder)
        if why_not:
            self.notes.write("error", error=why_not)
        self.notes.write("inside", seconds=clock() - begun)
        return clock() - begun

    def _turn_to(self, epoch: Epoch, requested: float) -> None:
        self.models.end()
        outer = self.here.current
        around = leave_for(epoch, outer, requested)
        # Else back to a loop that another had begun in: that one was left before its end. And a loop that begins anew takes the
        # place of its own earlier epoch, which was left likewise.
        if around is None:
            epoch.outer = outer.outer if outer is not None and outer.loop is epoch.loop else outer
        self.here.current = epoch
        self._turns.asked(epoch)

    def exhausted(self, iterator: Any, epoch: Epoch, requested: float, now: float) -> None:
        loop = epoch.loop
        self.models.end()
        epoch.look_at_cpu()
        other = self.here.current
        if other is not epoch and leave_for(epoch, other, requested) is None and other is not None and other.loop is loop:
            # What goes through both has come to its end, and asks the other one no more.
            loop.step_s += requested - other.delivered
            other.delivered = requested
        if epoch.delivered:
            self._turns.worked(epoch, requested, now)
            loop.wait_s += now - requested
            self._turns.has_waited(epoch, now - requested)
        self._count_epochs(epoch, now, ended=True)
        loop.ended, loop.passes_by_end = (now, self._in_epochs), loop.passes_in_turn()
        epoch.delivered = epoch.starting_s = 0.0
        self.here.current, self.here.latest = epoch.outer, epoch
        epoch.outer = None
        self._told_apart(epoch)
        if loop.begun <= EPOCHS:
            self.flush(loop)
            held = {"epoch": epoch.number, "batches": epoch.batches, "samples": epoch.samples}
            self.notes.write("epoch ended", loop=loop.number, **held, **self.orders.of(iterator))
        epoch.batches = epoch.samples = 0

    def _count_epochs(self, inside: Epoch | None, now: float, *, ended: bool) -> None:
        """Count the outermost epoch around ``inside`` up to now; of one that may have been left, as far as it is known."""
        for outermost in [*chain(inside)][-1:]:
            self._in_epochs += max(0.0, (now if ended else outermost.marked) - outermost.begun)
            outermost.begun = now

    def worked_on(self) -> Loop | None:
        """The loop whose batch the program works on, or whose last one it may still work on."""
        if self.here.current is not None:
            return self.here.current.loop
        if (latest := self.here.latest) is None or not latest.loop.trains or self.training.is_past(latest):
            latest = self._turns.elsewhere(ended=True)
        return latest.loop if latest is not None else None
