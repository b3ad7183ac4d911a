"""Everything that the package uses of torch's private interface: looked up here, and nowhere else.

Each name is looked up when this module is first imported. One that this torch does not have is ``None`` here, or what does the same
by public means. `why_plain` says whether the iterators of `pipefix.loader`, which are subclasses of torch's, can be used with this
torch. Where they cannot, `FastLoader` makes batches as `DataLoader` does.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import inspect
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.nested import map_leaves

_absent: list[str] = []
"""Names that the loader's iterators need and this torch does not have."""


def _find(module: str, name: str, *, needed: bool = False) -> Any:
    """``module.name``; None where this torch does not have it."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        if needed:
            _absent.append(f"{module}.{name}")
        return None


_DATALOADER, _WORKER = "torch.utils.data.dataloader", "torch.utils.data._utils.worker"
_COLLATE, _FETCH = "torch.utils.data._utils.collate", "torch.utils.data._utils.fetch"

if TYPE_CHECKING:
    from torch._utils import ExceptionWrapper
    from torch.utils.data._utils.worker import ManagerWatchdog
    from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

    AnyIterator = _BaseDataLoaderIter
    SingleIterator = _SingleProcessDataLoaderIter
    WorkersIterator = _MultiProcessingDataLoaderIter
    ErrorInWorker = ExceptionWrapper
    ParentWatchdog = ManagerWatchdog
else:

    class _Absent:
        """Stands where a class of torch is missing, so that subclasses can be written down; they are not used then."""

    AnyIterator = _find(_DATALOADER, "_BaseDataLoaderIter", needed=True) or _Absent
    SingleIterator = _find(_DATALOADER, "_SingleProcessDataLoaderIter", needed=True) or type("_Single", (AnyIterator,), {})
    WorkersIterator = _find(_DATALOADER, "_MultiProcessingDataLoaderIter", needed=True) or type("_Workers", (AnyIterator,), {})
    ErrorInWorker = _find("torch._utils", "ExceptionWrapper", needed=True) or _Absent
    ParentWatchdog = _find(_WORKER, "ManagerWatchdog", needed=True) or _Absent

DatasetKind = _find(_DATALOADER, "_DatasetKind", needed=True)
MapFetcher = _find(_FETCH, "_MapDatasetFetcher", needed=True)
STATUS_CHECK_S: float = _find("torch.utils.data._utils", "MP_STATUS_CHECK_INTERVAL") or 5.0
"""Seconds after which a worker, and whoever waits for one, looks whether the other still lives."""
worker_module = _find("torch.utils.data._utils", "worker", needed=True)
"""The module of torch's worker loop, for what is set in a worker process that is ours."""

_RELIED_ON: tuple[tuple[Any, str, str], ...] = (
    (DataLoader, "_get_iterator _index_sampler _auto_collation", ""),
    (AnyIterator, "_reset _next_index _next_data",
     "_dataset _dataset_kind _auto_collation _index_sampler _sampler_iter _collate_fn _timeout _pin_memory _num_yielded"),
    (SingleIterator, "", "_dataset_fetcher"),
    (WorkersIterator, "_try_get_data _get_data _try_put_index _mark_worker_as_unavailable _shutdown_workers",
     "_workers _workers_status _index_queues _worker_queue_idx_cycle _send_idx _rcvd_idx _task_info _tasks_outstanding _shutdown"),
)  # fmt: skip
"""By class: its methods that are called or overridden, and the attributes that its constructor or ``_reset`` sets."""


@cache
def why_plain() -> str | None:
    """Why batches are made as `DataLoader` makes them, whatever was asked for; None where torch has all that is relied on."""
    absent = list(_absent)
    for kind, methods, own in _RELIED_ON:
        set_there = _names_in(kind, "__init__") | _names_in(kind, "_reset")
        missing = [name for name in methods.split() if not hasattr(kind, name)]
        missing += [name for name in own.split() if name not in set_there]
        absent += [f"{kind.__name__}.{name}" for name in missing]
    if not absent:
        return None
    more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return f"torch {torch.__version__} has no {absent[0]}{more}, on which the quicker ways stand"


def _names_in(kind: Any, method: str) -> set[str]:
    """Attributes that a method, and those of the same name that it overrides, name."""
    names: set[str] = set()
    for base in inspect.getmro(kind):
        code = getattr(vars(base).get(method), "__code__", None)
        names.update(code.co_names if code is not None else ())
    return names


# -- collating and pinning ---------------------------------------------------------------------------------------------------

collate_tensors: Callable[..., Any] | None = _find(_COLLATE, "collate_tensor_fn")
"""How `default_collate` stacks tensors."""
collate_by: Callable[..., Any] | None = _find(_COLLATE, "collate")
"""`default_collate`, with a table of types given to it."""
collate_table: dict[Any, Any] | None = _find(_COLLATE, "default_collate_fn_map")
"""The table of types that `default_collate` goes by; users may teach it theirs."""


_stacking: Any = collate_tensors
"""What `default_collate` stacks tensors by, where no user taught it another way."""


def stacks_as_ever() -> bool:
    """Whether `default_collate` stacks tensors as torch does: no user taught it another way."""
    return collate_table is not None and collate_tensors is not None and collate_table.get(torch.Tensor) is _stacking


def stack_by(stack: Callable[..., Any]) -> None:
    """Have `default_collate` stack tensors by ``stack``, to the same result, in this process from now on."""
    global _stacking
    if collate_table is not None:
        collate_table[torch.Tensor] = _stacking = stack


_pin: Callable[[Any], Any] | None = _find("torch.utils.data._utils.pin_memory", "pin_memory")


def pin_memory(batch: Any) -> Any:
    """The batch with its tensors in pinned memory, as `DataLoader` pins it."""
    if _pin is not None:
        return _pin(batch)
    return map_leaves(lambda leaf: leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf, batch)


# -- iterators, as anybody's loader makes them -------------------------------------------------------------------------------


def kept_iterator(loader: Any) -> Any:
    """The iterator whose workers a loader keeps from epoch to epoch; None where it keeps none."""
    return getattr(loader, "_iterator", None)


def hands_out_of_one(loader: Any) -> bool:
    """Whether a loader of the user's own class has one iterator for all epochs, as endless loaders do."""
    return any(name != "_iterator" and hasattr(type(held), "_next_data") for name, held in attributes(loader).items())


def makes_streams(loader: Any) -> bool:
    """Whether the loader reads an iterable dataset."""
    return getattr(loader, "_dataset_kind", None) == 1


def processes_of(iterator: Any) -> list[Any]:
    """An iterator's worker processes; none where it has none, or keeps them elsewhere."""
    return list(getattr(iterator, "_workers", None) or [])


def end_workers(iterator: Any) -> None:
    """Have an iterator end its workers now rather than when it is dropped, where it can."""
    getattr(iterator, "_shutdown_workers", lambda: None)()


def end_workers_at_exit(iterator: Any) -> None:
    """Before torch's own handler comes to them: until torch 2.13 it waited 5 s for each kept worker, and told none to end."""
    known = weakref.ref(iterator)
    atexit.register(lambda: end_workers(known()))


def forget_pids(iterator: Any) -> None:
    """Torch is not to take it for a crash when this iterator's workers end."""
    handling = _find("torch.utils.data._utils", "signal_handling")
    if handling is not None and getattr(iterator, "_worker_pids_set", False):
        handling._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False


def fetchers() -> list[Any]:
    """Torch's classes that fetch a batch's samples and collate them, those of them that there are."""
    return [kind for kind in (MapFetcher, _find(_FETCH, "_IterableDatasetFetcher")) if hasattr(kind, "fetch")]


def make_next_fetcher(make: Callable[..., Any]) -> Callable[[], None]:
    """The next iterator of this process, or this worker, fetches by what ``make`` makes, called as torch's own maker is; those
    after it (of a loader inside the user's dataset, say) by torch's. Gives what takes that back."""
    own = getattr(DatasetKind, "create_fetcher", None)
    if own is None:
        raise RuntimeError(f"torch {torch.__version__} has no _DatasetKind.create_fetcher: how it makes batches cannot be seen")

    def take_back() -> None:
        DatasetKind.create_fetcher = staticmethod(own)

    def create_fetcher(*args: Any) -> Any:
        take_back()
        return make(*args)

    DatasetKind.create_fetcher = staticmethod(create_fetcher)
    return take_back


_ARGUMENTS = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers",
)  # fmt: skip


def loader_arguments(loader: Any, *, batch_size: int | None = None, num_workers: int | None = None) -> dict[str, Any]:
    """What makes a loader like this one over any dataset; with another batch size or number of workers, where one is given."""
    arguments = {name: getattr(loader, name) for name in _ARGUMENTS}
    newer = {name: getattr(loader, name, None) for name in ("in_order", "pin_memory_device")}
    arguments |= {name: value for name, value in newer.items() if value not in (None, "")}
    if num_workers is not None:
        arguments["num_workers"] = num_workers
    if not arguments["num_workers"]:
        arguments |= {"timeout": 0, "multiprocessing_context": None, "prefetch_factor": None, "persistent_workers": False}
    own = loader.batch_sampler if loader.batch_size is None else None
    if own is not None and batch_size is None:
        return arguments | {"batch_sampler": own}
    plain = own if type(own) is BatchSampler else loader
    arguments |= {"batch_size": batch_size or loader.batch_size, "drop_last": plain.drop_last}
    return arguments if isinstance(loader.dataset, IterableDataset) else arguments | {"sampler": plain.sampler}


def in_order(loader: Any) -> bool:
    """Whether a loader gives batches in the sampler's order, as one does whose class knows no other way."""
    return bool(getattr(loader, "in_order", True))


# -- profiling ---------------------------------------------------------------------------------------------------------------

profiled: Callable[[], bool] | None = _find("torch._C._autograd", "_profiler_enabled")
"""Whether torch's profiler records."""
named_block: Any = _find("torch._C._profiler", "_RecordFunctionFast")
"""Names a block for whoever records, in native code."""


@contextlib.contextmanager
def not_a_worker() -> Any:
    """Within, in a worker, ``get_worker_info()`` is None: ``default_collate`` allocates ordinary memory, as in the training
    process."""
    info = getattr(worker_module, "_worker_info", None)
    if info is not None:
        worker_module._worker_info = None
    try:
        yield
    finally:
        if info is not None:
            worker_module._worker_info = info


def has_compiled() -> bool:
    """Whether anything was compiled: hooks and patches that come afterwards would have it compiled again."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return compiler is not None and bool(getattr(compiler, "counters", {}).get("frames", {}).get("total"))


# -- forks -------------------------------------------------------------------------------------------------------------------


def cuda_lost_by_fork() -> bool:
    """Whether this process was forked from one that asked for CUDA, and cannot use the device that is here."""
    return bool(torch.cuda._is_in_bad_fork()) and torch.cuda.device_count() > 0


def forks_without_cuda() -> bool:
    """Whether there is CUDA here, and a process that is forked from this one cannot use it.

    That is so once the driver was asked here, if only whether it is there (``torch.cuda.is_available()``).
    """
    if torch.version.cuda is None or torch.cuda._is_in_bad_fork():
        return False
    if torch.cuda.is_initialized():
        return True
    is_in_bad_fork = _find("torch._C", "_cuda_isInBadFork")
    if is_in_bad_fork is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: the child asks one thing and ends
        child = os.fork()
    if child == 0:
        os._exit(bool(is_in_bad_fork()))
    poisoned = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    return poisoned and torch.cuda.device_count() > 0
