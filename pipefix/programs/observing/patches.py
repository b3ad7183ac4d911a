"""Patches loaders, iterators and optimizers when the program imports torch, so that they tell the `Observer` what it does.

What goes wrong here is noted, and the program goes on; in an error of its own no frame of this file is left.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import operator
import os
import re
import weakref
from collections.abc import Mapping
from multiprocessing import util
from time import thread_time
from typing import Any

from .inside import make_importable
from .lines import without_this_frame
from .loops import clock
from .observer import Observer

_observer: Observer | None = None


class PlanInProgram:
    """Applied without an edit: the loader that it was made for becomes a `FastLoader` that reads it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, encoding="utf-8") as file:
            match = re.search(r'^target = (".*")$', file.read(), re.MULTILINE)
        self.target: str = json.loads(match[1]) if match else ""
        """The line that makes the loader: ``train.py:14``."""

    def put_in_place(self, loader: Any, args: Any, kwargs: Any) -> None:
        """Make ``loader``, a `DataLoader` that is about to be made, a `FastLoader` with the plan."""
        make_importable()
        from pipefix.loader.fast_loader import FastLoader

        plain = type(loader)
        loader.__class__ = FastLoader
        try:
            FastLoader.__init__(loader, *args, plan=self.path, **kwargs)
        except BaseException:
            loader.__class__ = plain
            vars(loader).clear()
            raise


def _observer_of(asked: Mapping[str, str]) -> Observer:
    """The process's only one. ``asked``: what `launch` wants of it."""
    global _observer
    if _observer is None:
        _observer = Observer(asked["folder"], asked)
        atexit.register(_observer.ended)
        os.register_at_fork(after_in_child=_observer.forget)
        util.register_after_fork(_observer, _ended_by_multiprocessing)
        _ended_by_multiprocessing(_observer)  # this may be one of them, forked before torch was imported
    return _observer


def _ended_by_multiprocessing(observer: Observer) -> None:
    """A process that it forks ends without handlers of exit, as ranks of ``notebook_launcher`` and ``ddp_fork`` do."""
    util.Finalize(None, observer.ended, exitpriority=100)


def flush() -> bool:
    """Note what was seen of loops that go on. False where none has begun."""
    loops = _observer.loops.all if _observer is not None else []
    for loop in loops:
        _observer.flush(loop)  # type: ignore[union-attr]
    return bool(loops)


def install_loaders(module: Any, asked: Mapping[str, str]) -> Observer:
    """Note every loop over a loader of ``module.DataLoader`` or a subclass, from now on. Returns what is told of them."""
    observer = _observer_of(asked)
    plan = asked.get("plan")
    _patch_loader(module.DataLoader, observer, PlanInProgram(plan) if plan else None)
    if hasattr(module, "_BaseDataLoaderIter"):
        observer.orders.watch(module._BaseDataLoaderIter)
    return observer


def install_nodes(module: Any, asked: Mapping[str, str]) -> None:
    """Note every loop over a graph of torchdata's nodes, likewise."""
    _patch_loader(module.Loader, _observer_of(asked))


def install_training(module: Any, asked: Mapping[str, str]) -> None:
    """Note optimizer steps and backward passes, by which training is told from evaluation."""
    observer = _observer_of(asked)
    module.register_optimizer_step_pre_hook(observer.training.optimizer_begins)
    module.register_optimizer_step_post_hook(observer.training.optimizer_stepped)
    import torch

    reached = observer.training.reached
    torch.autograd.backward = _timed(torch.autograd.backward, lambda: reached("forward"), observer.training.went_back)
    if hasattr(torch, "save"):
        # Both, so that it can be pickled by its name.
        torch.save = torch.serialization.save = _timed(torch.save, lambda: None, observer.saved)


def _timed(function: Any, begins: Any, ended: Any) -> Any:
    """``begins()`` is called before it, and ``ended`` with the times of its begin and end after it."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = clock()
        begins()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise
        finally:
            ended(begun, clock())

    return timed


def _patch_loader(loader_class: Any, observer: Observer, plan: PlanInProgram | None = None) -> None:
    """The class, and every subclass that is defined from now on. ``plan``: may be put in the place of one of its own loaders."""
    patched: set[type] = set()

    def __init_subclass__(subclass: Any, /, **options: Any) -> None:  # noqa: N807 - stands in for it
        super(loader_class, subclass).__init_subclass__(**options)
        _patch_methods(subclass, observer, patched)

    loader_class.__init_subclass__ = classmethod(__init_subclass__)
    _patch_methods(loader_class, observer, patched, plan)
    for known in _subclasses(loader_class):
        _patch_methods(known, observer, patched)


def _subclasses(kind: Any) -> list[Any]:
    return [subclass for below in kind.__subclasses__() for subclass in (below, *_subclasses(below))]


class _InItsPlace:
    """In a class: a function of ours in the place of its own. Pickled by value, as cloudpickle has it of what a program's own file
    defines, the class takes its own along: ours hold what cannot be pickled."""

    def __init__(self, own: Any, ours: Any) -> None:
        self.__func__, self._ours = own, ours  # by that name it is known of class methods as well

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        return self._ours.__get__(instance, kind)

    def __reduce__(self) -> Any:
        return operator.getitem, ((self.__func__,), 0)


def _patch_methods(loader_class: Any, observer: Observer, patched: set[type], plan: PlanInProgram | None = None) -> None:
    make = vars(loader_class).get("__init__")
    if inspect.isfunction(make):

        @functools.wraps(make)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - stands in for it
            place = None
            try:
                place = observer.loops.made(self)
            except Exception as error:  # noqa: BLE001 - a loader that cannot be a key is named by its loop
                observer.failed(error)
            if plan is not None and plan.target == place and loader_class is type(self):
                try:
                    plan.put_in_place(self, args, kwargs)
                    observer.notes.write("plan", loader=place)
                    return
                except Exception as error:  # noqa: BLE001 - the loader is made as the program has it
                    observer.failed(error, "The plan could not be put in place, and the loader is as the program has it")
            try:
                make(self, *args, **kwargs)
            except BaseException as error:
                without_this_frame(error)
                raise

        loader_class.__init__ = _InItsPlace(make, __init__)
    for name in ("__iter__", "_get_iterator"):  # ultralytics calls the second one itself
        begin = vars(loader_class).get(name)
        # A generator asks an iterator of the base class, which is seen.
        if inspect.isfunction(begin) and not inspect.isgeneratorfunction(begin):
            began = _beginning(begin, observer, patched, makes=name == "_get_iterator")
            setattr(loader_class, name, _InItsPlace(begin, began))


def _beginning(begin: Any, observer: Observer, patched: set[type], *, makes: bool) -> Any:
    """The function ``begin`` of a loader, which makes an iterator or hands out the one that it keeps, with that noted.

    ``makes``: it always makes one, whose workers can be looked into.
    """

    here = observer.here

    @functools.wraps(begin)
    def began(self: Any) -> Any:
        looking = observer.looked(observer.looks.before, self) if makes else None
        record, before = None, (here.beginning, here.inner)
        if not makes:
            here.beginning, here.inner = self, None
        begun = clock()  # what looks take is no wait of the program's
        try:
            iterator = begin(self)
        except BaseException as error:
            without_this_frame(error)
            raise
        finally:
            starting_s, inner = clock() - begun, here.inner
            here.beginning, here.inner = before
            if looking is not None:
                record = observer.looks.after(self, looking)
        try:
            with observer.notes.counted():
                seen = _patch_iterator(type(iterator), observer, patched)
                if makes:
                    if seen:
                        observer.made(self, iterator, starting_s, record)
                elif before[0] is self:  # a subclass asks, which may give another iterator that asks this one, in a thread perhaps
                    made = observer.unasked.pop(iterator, None) if inner is None else inner[1]
                    here.inner = (iterator, made) if seen else inner
                elif seen or inner is not None:
                    observer.began(self, iterator if seen or inner is None else inner[0], starting_s, inner)
        except Exception as error:  # noqa: BLE001 - the program goes on unobserved
            observer.failed(error)
        return iterator

    return began


def _patch_iterator(kind: type, observer: Observer, patched: set[type]) -> bool:
    """Classes are patched, not iterators: what the program holds is of the class that it was. False for what cannot be."""
    if kind.__hash__ is None or not kind.__weakrefoffset__:
        return False  # a data class, or one with slots: it can be no key
    kind = next(base for base in kind.__mro__ if "__next__" in vars(base))
    if kind in patched:
        return True
    following = vars(kind)["__next__"]
    if not inspect.isfunction(following):
        return False
    patched.add(kind)
    import torch

    gradients = torch.is_grad_enabled
    epochs, here = observer.epochs, observer.here

    @functools.wraps(following)
    def __next__(self: Any) -> Any:  # noqa: N807 - stands in for it
        epoch = epochs.get(self) or observer.first_asked(self)
        if epoch is None or here.asked is not None:  # one that asks another counts once
            requested, used = 0.0, None
            if epoch is not None and here.asked is not None:
                here.asked.makers[epoch.loop] = weakref.ref(self), epoch
        else:
            here.asked = epoch
            if observer.device is not None and epoch.delivered:
                observer.device.asked(epoch.loop)
            used = thread_time() if epoch.looks_at_cpu() else None
            requested = clock()
        try:
            batch = following(self)
        except BaseException as error:
            if requested and epoch is not None:
                here.asked = None
                if isinstance(error, StopIteration):
                    now = clock()
                    with observer.notes.counted():
                        observer.exhausted(self, epoch, requested, now)
            without_this_frame(error)
            raise
        if requested and epoch is not None:
            now = clock()
            here.asked = None
            try:
                cpu_s = None if used is None else thread_time() - used
                observer.took(self, epoch, requested, now, batch, not gradients(), cpu_s)
            except Exception as error:  # noqa: BLE001 - the program goes on unobserved
                observer.failed(error)
        return batch

    kind.__next__ = __next__  # type: ignore[attr-defined]
    return True
