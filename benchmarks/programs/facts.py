"""Notes all that a process can see of itself, goes through a loader, and ends as it is told: ``facts.py START END``.

START: how the loader's worker is started. END: 0, 7 (exit codes), raise, term (SIGTERM), leave (``os._exit``), exec. Notes go to
a file in the folder that FACTS names, one a process, as JSON.
"""

import sys

AT_START = {"modules": sorted(sys.modules), "finders": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path]}

import atexit  # noqa: E402 - what is there before anything is imported is looked at first
import builtins  # noqa: E402
import faulthandler  # noqa: E402
import gc  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import locale  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402


def kind(value):
    """What a hook is, whichever object stands there."""
    return None if value is None else f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def process():
    """What the system and the interpreter say of this process."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    opened = {}
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            opened[number] = re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # of this listing itself
    streams = (sys.stdout, sys.stderr, sys.stdin)
    tracers = (sys.gettrace, sys.getprofile, threading.gettrace, threading.getprofile)
    hooks = (sys.excepthook, sys.displayhook, sys.unraisablehook, sys.breakpointhook, threading.excepthook, os._exit, os.fork)
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "executable": sys.executable, "prefix": sys.prefix, "sys.path": sys.path,
        "flags": str(sys.flags), "warnoptions": sys.warnoptions, "xoptions": sys._xoptions, "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "streams": [(type(one).__name__, one.encoding, one.line_buffering, one.isatty()) for one in streams],
        "trace and profile": [kind(one()) for one in tracers], "hooks": [kind(one) for one in hooks],
        "limits of Python": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()],
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)],
        "at exit": atexit._ncallbacks(), "builtins": sorted(vars(builtins)),
        "threads": len(os.listdir("/proc/self/task")), "descriptors": opened,
        "signals": {int(one): kind(signal.getsignal(one)) for one in sorted(signal.valid_signals())},
        "masks": {name: status.get(name) for name in ("SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "Cpus_allowed")},
        "timers": [signal.getitimer(one) for one in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "rlimits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "umask": status.get("Umask"), "nice": os.nice(0), "affinity": sorted(os.sched_getaffinity(0)), "uid": os.getuid(),
        "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()], "locale": locale.setlocale(locale.LC_ALL),
        "fault handler": faulthandler.is_enabled(),
    }  # fmt: skip


def loaded(start):
    """What a loader and its worker look like from inside the program, and what they give."""
    import torch
    from torch.utils.data import DataLoader

    modules = sorted(name for name in sys.modules if not name.startswith("torch"))
    torch.manual_seed(5)
    threads = len(os.listdir("/proc/self/task"))
    loader = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=1, multiprocessing_context=start)
    iterator = iter(loader)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    digest, worker = hashlib.sha256(), None
    for batch, notes in iterator:
        worker = json.loads(notes[0])
        digest.update(batch.numpy().tobytes())
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        digest.update(loss.detach().numpy().tobytes())
    numbers = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    of_loader, of_iterator = sorted(vars(loader)), sorted(vars(iterator))
    iterator_kinds = [one.__qualname__ for one in type(iterator).__mro__]
    del iterator
    for _ in range(100):  # the thread that fed the worker ends by itself
        if len(os.listdir("/proc/self/task")) <= threads:
            break
        time.sleep(0.02)
    return {
        "modules": modules, "threads before workers": threads, "loader": [one.__qualname__ for one in type(loader).__mro__],
        "iterator": iterator_kinds, "worker": worker, "batches and losses": digest.hexdigest(), "random numbers": numbers,
        "torch threads": torch.get_num_threads(), "keys of the loader": of_loader, "keys of the iterator": of_iterator,
    }  # fmt: skip


class Rows:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        import torch

        return torch.arange(3.0) + index + torch.rand(3), json.dumps(seen_by_a_worker())


def seen_by_a_worker():
    left_out = ("descriptors", "at exit", "orig_argv", "flags", "builtins")
    return {name: fact for name, fact in process().items() if name not in left_out}


def main(start, end):
    print("facts are noted")
    print("as they are", file=sys.stderr)
    named = [__name__, __file__, __spec__.name if __spec__ is not None else None]
    facts = {"at start": AT_START, "name": named, "process": process(), "loader": loaded(start)}
    facts["later"] = process()
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
    with open(os.path.join(os.environ["FACTS"], f"{rank}.json"), "w") as file:
        json.dump(facts, file)
    if end == "raise":
        raise ValueError("as asked")
    if end == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    if end == "leave":
        sys.stdout.flush()
        os._exit(5)
    if end == "exec":
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", "import sys; print('another'); sys.exit(9)"])
    sys.exit(int(end))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
