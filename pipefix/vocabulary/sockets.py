"""Moves the sockets that workers hand tensors over by to a short path, where TMPDIR is too long for them."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import process, util

LONGEST = 103 - len("/pymp-12345678/listener-12345678")
"""Bytes of a folder's name, with which a socket in multiprocessing's own folder there still has one."""
SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def settle() -> None:
    """Have this process, and those that it starts, keep sockets where their names fit.

    Under a long TMPDIR a worker of torch's cannot hand over its batch, tells nobody, and the loader waits for ever.
    """
    if len(os.fsencode(tempfile.gettempdir())) <= LONGEST or process.current_process()._config.get("tempdir") is not None:  # type: ignore[attr-defined]
        return
    place = next((folder for folder in SHORT if os.access(folder, os.W_OK | os.X_OK)), None)
    if place is None:
        return
    usual, tempfile.tempdir = tempfile.tempdir, place
    try:
        util.get_temp_dir()  # made now, known from now on, and removed at this process's end
    finally:
        tempfile.tempdir = usual
