"""Turns what goes wrong while a pipeline runs (the user's code raises, a worker dies or cannot start) into errors with advice.

Inside a worker the failure is put into words where it happened and travels as plain strings, so that an exception which cannot be
pickled, or whose constructor wants more than a message, arrives like any other.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from pipefix.hooks.torch_internals import processes_of
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.subject import failure
from pipefix.subject.subject import Subject
from pipefix.system.resources import shared_memory
from pipefix.vocabulary import quantity
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.sockets import settle as settle_sockets
from pipefix.vocabulary.worker_exit import CAUSES, describe_exit

NAMED = 6
"""Indices of a batch that a sentence names before it says "and so many more"."""
MEND = "Mend the sample or the code shown above, then probe again; --seed N probes other samples first."


class EmptyStream(Exception):
    """A stream gave nothing, however often it was begun."""


class UnsuitableArm(Exception):
    """An arm tells nothing: with something replaced the user's code raises, or nothing is really replaced."""


class Failure(NamedTuple):
    """What comes from a worker in a batch's place."""

    what: str
    advice: str
    shown: str
    """The user's frames."""

    def as_error(self) -> TargetError:
        return TargetError(self.what, advice=self.advice, user_traceback=self.shown)


def stream_spent(drawn: int) -> Failure:
    """A stream that gave samples once and gives none when it is begun again."""
    what = (
        f"The dataset's stream can be read only once: it gave {quantity.counted(drawn, 'sample')}, and nothing when iterated again"
    )
    advice = "Let __iter__ begin anew every time it is called, for example by opening its files there and not in __init__."
    return Failure(what, advice, "")


def of_code(doing: str, error: BaseException, *, more: str = "", advice: str | None = None) -> Failure:
    """The user's code raised, ``doing`` what it says. ``advice``: where this is known better than by the error."""
    return Failure(f"{doing} raised {failure.summary(error)}{more}", advice or _advice(error) or MEND, failure.frames(error))


def of_sample(error: BaseException, unit: Any, *, kind: str, length: int | None) -> Failure:
    """``dataset[unit]`` (or its like) raised."""
    if kind == "stream":
        doing = f"The dataset's stream, at sample {unit},"
    elif kind == "batched":
        doing = f"The dataset's __getitems__, asked for the samples {_some(unit)},"
    else:
        doing = f"dataset[{unit!r}]"
    advice = None
    if isinstance(error, IndexError) and length is not None and _advice(error) is None:
        advice = f"Where the index is the cause: __len__ says {length}, so {length - 1} is the last index that must be answered."
    return of_code(doing, error, advice=advice)


def making(order: Any, kind: str) -> str:
    """What a process does that makes a batch."""
    if kind == "stream":
        return "reading the dataset's stream"
    return f"making dataset[{order!r}]" if kind == "single" else f"making a batch of the samples {_some(order)}"


def of_handover(error: BaseException) -> Failure:
    """A worker could not send a batch."""
    advice = _advice(error)
    if advice is None or advice is _PICKLED:
        advice = "Let collate_fn return tensors, numbers and strings in dicts and lists: functions, locks and files cannot travel."
    return Failure(f"A worker could not hand over its batch: {failure.summary(error)}", advice, "")


def of_batch(error: BaseException, units: Sequence[Any], samples: Sequence[Any]) -> Failure:
    """The collate function raised."""
    missing = [unit for unit, sample in zip(units, samples, strict=False) if sample is None]
    doing = f"Collating the samples {_some(units)}" if len(units) else "Collating a batch"
    if not missing:
        return of_code(doing, error)
    advice = "Let __getitem__ return a sample for every index, or give the DataLoader a collate_fn that leaves None out."
    return of_code(doing, error, more=f". Of these samples, {_some(missing)} came as None", advice=advice)


def raised(who: str, error: BaseException, workers: Sequence[Any] = ()) -> TargetError:
    """``who`` raised in this process; or torch did, speaking for a worker that died or never began."""
    text = str(error)
    if ("DataLoader worker" in text and "exited unexpectedly" in text) or "is killed by signal" in text:
        return _death(text, workers)
    if text.startswith("DataLoader timed out"):
        advice = "That is its own timeout=: raise it, or find the sample that takes so long with --workers 0 --trace trace.json."
        return TargetError(f"The loader gave up waiting for a batch: {text.splitlines()[0]}.", advice=advice)
    if text.startswith("Caught ") and "Original Traceback" in text:
        # Torch's own threads and workers send the traceback as text; its last line is the error.
        lines = text.strip().splitlines()
        return TargetError(f"{who} raised {lines[-1]} ({lines[0].rstrip('.')})", advice=_advice(error) or MEND, user_traceback=text)
    return of_code(who, error).as_error()


def next_of(iterator: Any, subject: Subject, limit: BatchTimeLimit | None, *ended: Any) -> Any:
    """The iterator's next batch, or ``ended`` where one is given and it has ended. What is raised meanwhile is told as the
    loader's; with a ``limit``, so is a batch that does not come."""
    try:
        with limit or nullcontext():
            return next(iterator, *ended)
    except StopIteration as error:
        raise nothing_came(subject) from error
    except KeyboardInterrupt as interrupt:
        if limit is None or not limit.fired:
            raise
        raise TargetError(
            f"No worker handed over a batch for {limit.limit:g} s, and none could be interrupted.",
            advice="They may hang in native code, or in a lock from before a fork: try --workers 0, which shows the place, or "
            'the start method multiprocessing_context="spawn".',
        ) from interrupt
    except (Exception, SystemExit) as error:
        raise raised("The loader", error, processes_of(iterator)) from error


def nothing_came(subject: Subject) -> TargetError:
    """The loader ended without a batch."""
    if subject.iterable:
        advice = "Check what its __iter__ yields, in a worker process too (get_worker_info() may leave a worker nothing)."
        return TargetError("The dataset's stream ended at once: iterating it yields no sample.", advice=advice)
    sampler = subject.loader.batch_sampler if subject.auto_collation else subject.loader.sampler
    advice = "Check what its __iter__ yields, and that it can be iterated more than once."
    return TargetError(f"The loader's sampler, a {type(sampler).__name__}, names no sample.", advice=advice)


_LESS = "use fewer workers, a smaller batch, or --recording-budget 100MB (in Python recording_bytes)."
_BY_SIGNAL: dict[int, str] = {
    signal.SIGKILL: f"{CAUSES[signal.SIGKILL]}: {_LESS}",
    signal.SIGSEGV: f"{CAUSES[signal.SIGSEGV]}: probe with --workers 0 under python -X faulthandler to see where.",
    signal.SIGABRT: f"{CAUSES[signal.SIGABRT]}; probe with --workers 0 to see where.",
}


def _death(text: str, workers: Sequence[Any]) -> TargetError:
    code = next((worker.exitcode for worker in workers if worker.exitcode), None)
    how = text.splitlines()[0].rstrip(".") if code is None else describe_exit(code)
    advice = "Probe with --workers 0 to see the error itself."
    if code is not None and code > 0:
        advice = f"Something in it calls os._exit() or sys.exit(), or it could not start; {advice[0].lower()}{advice[1:]}"
    elif code is not None:
        advice = _BY_SIGNAL.get(-code, advice)
        if -code == signal.SIGBUS:
            how, advice = f"{how}. {_shared_memory().rstrip('.')}", _MORE_SHARED
    return TargetError(f"A worker process died while making a batch: {how}.", advice=advice)


_MORE_SHARED = "Make it larger (docker run --shm-size=2g), or use fewer workers, a smaller prefetch_factor or smaller batches."


def _shared_memory() -> str:
    whole, free = shared_memory()
    if whole is None or free is None:
        return "Its shared memory (/dev/shm) cannot be used."
    return f"Shared memory (/dev/shm) has {quantity.size(free)} free of {quantity.size(whole)}."


_SAID = {
    "stack expects each tensor to be equal size|Trying to resize storage|each element in list of batch should be of equal":
        "The samples of a batch differ in shape: resize or pad them to one shape, or give the DataLoader a collate_fn that does.",
    "default_collate: batch must contain":
        "Return tensors, arrays, numbers, strings, or dicts and lists of them, or give the DataLoader a collate_fn of your own.",
    "interrupted by pipefix after":
        "The frames above show where it hangs: often a lock or connection from before a fork, or a read without a time limit.",
    "AF_UNIX path too long":
        "Workers send through sockets in the directory for temporary files, whose name is too long for one: try TMPDIR=/tmp.",
    "re-initialize CUDA in forked subprocess":
        'Move batches to the GPU in the training step, or give the DataLoader multiprocessing_context="spawn".',
    "Too many open files|received 0 items of ancdata":
        "The process may not open more files: raise the limit with  ulimit -n 65536  and probe again.",
    "No usable temporary directory":
        "Worker processes hand batches over through a socket in a temporary directory: name a writable one with TMPDIR=DIR.",
    "OutOfMemoryError|CUDA out of memory":
        "The device is full: a smaller batch (--batch-size N) needs less, and nvidia-smi shows who else holds its memory.",
    "AcceleratorError|CUDA error":
        "Devices tell of errors late; CUDA_LAUNCH_BLOCKING=1 has them tell where. Assertions are often about labels out of range.",
}  # fmt: skip
"""Advice by words of an error's text, several ways of saying it parted by a bar."""
_PICKLED = (
    "Under the spawn and forkserver start methods the dataset, collate_fn and worker_init_fn are pickled: move lambdas and locally "
    "defined classes to the top level of the file, and open files in the worker rather than in __init__."
)


def _advice(error: BaseException) -> str | None:
    text = f"{type(error).__name__}: {error}"
    for ways, advice in _SAID.items():
        if any(words in text for words in ways.split("|")):
            return advice
    if "pickle" in text.lower():
        return _PICKLED
    if "shared memory" in text or "/torch_" in text or ("No space left on device" in text and "shm" in text):
        return f"{_shared_memory()} {_MORE_SHARED}"
    if isinstance(error, MemoryError):
        return f"Memory ran out: {_LESS}"
    return None


def iterator_of(loader: DataLoader[Any], sockets: AbstractContextManager[Any] | None = None) -> Any:
    """The loader's iterator, with its workers started; while they start, ``sockets`` says where they listen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if loader.num_workers:
                settle_sockets()
            with sockets or nullcontext():
                return iter(loader)
        except (Exception, SystemExit) as error:
            context = loader.multiprocessing_context
            raise cannot_start(error, context.get_start_method() if context is not None else None) from error


def cannot_start(error: BaseException, method: str | None) -> TargetError:
    """The loader could not start its workers."""
    advice = _advice(error) or "Probe with --workers 0 to leave them out."
    what = f"The worker processes{f' ({method})' if method else ''} could not be started: {failure.summary(error)}"
    # Pickling fails inside the standard library: frames there would tell the user nothing.
    shown = None if "pickle" in f"{type(error).__name__} {error}".lower() else failure.frames(error)
    return TargetError(what, advice=advice, user_traceback=shown)


def _some(units: Sequence[Any]) -> str:
    shown = ", ".join(repr(unit) for unit in list(units)[:NAMED])
    return shown if len(units) <= NAMED else f"{shown} and {len(units) - NAMED} more"
