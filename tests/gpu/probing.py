"""What torch says on the fake device, by function, for tests/gpu/test_fake_device.py."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch


def times() -> dict[str, float]:
    """A kernel of 20 ms that lies between two events, and what a copy of 25 MB takes."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    pinned, there = (
        torch.empty(25_000_000, dtype=torch.uint8, pin_memory=True),
        torch.empty(25_000_000, dtype=torch.uint8, device="cuda"),
    )
    torch.cuda.synchronize()
    marks[0].record()
    torch.cuda._sleep(20_000_000)
    marks[1].record()
    there.copy_(pinned, non_blocking=True)
    marks[2].record()
    torch.cuda.synchronize()
    return {"kernel": marks[0].elapsed_time(marks[1]), "copy": marks[1].elapsed_time(marks[2])}


def queries() -> list[bool]:
    """Whether a mark behind a kernel is reached before it is waited for, and after."""
    mark = torch.cuda.Event()
    torch.cuda._sleep(1000)
    mark.record()
    before = mark.query()
    mark.synchronize()
    return [before, mark.query()]


def devices() -> dict[str, Any]:
    there = [torch.ones(4).to(f"cuda:{index}") for index in range(torch.cuda.device_count())]
    crossed = there[0].to("cuda:1")
    return {"devices": [str(tensor.device) for tensor in there], "crossed": crossed.cpu().tolist()}


def too_much() -> dict[str, Any]:
    library = ctypes.CDLL(None)
    kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return {"said": str(error), "taken": library.fake_taken(0), "kept": kept.nbytes}
    return {}


def asserted() -> list[str]:
    """A kernel's assertion is heard of where the device is waited for, and ever after."""
    torch.zeros(1, device="cuda")
    torch.cuda._sleep(1000)
    ctypes.CDLL(None).fake_assertion()
    said = []
    for _ in range(2):
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            said.append(str(error).splitlines()[0])
    return said


def forked() -> str:
    torch.zeros(1, device="cuda")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = ctypes.CDLL(None).cudaMalloc(ctypes.byref(ctypes.c_void_p()), 1)
        try:
            torch.zeros(1, device="cuda")
            os.write(writes, f"{code} it worked".encode())
        except RuntimeError as error:
            os.write(writes, f"{code} {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reads, 1000).decode()


def nvml() -> list[str]:
    import pynvml

    pynvml.nvmlInit()
    told = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        told.append(f"{pynvml.nvmlDeviceGetUUID(handle)} {pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20}")
        if pynvml.nvmlDeviceGetMigMode(handle)[0]:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
            told.append(f"{pynvml.nvmlDeviceGetUUID(instance)} {pynvml.nvmlDeviceGetMemoryInfo(instance).used >> 20}")
    return told
