"""A thread that bears the name by which a library's threads are known."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def named_thread(name: str) -> Iterator[None]:
    """Within, a thread of this process is called ``name`` (15 characters at most)."""
    named, done = threading.Event(), threading.Event()

    def wait() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        named.set()
        done.wait()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
        while Path(f"/proc/self/task/{thread.native_id}").exists():  # the kernel's part of it ends after Python's
            os.sched_yield()
