"""An arm whose replacement does not take hold must not be taken for the answer to its question."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.measurement import experiments, schedule
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block, Row
from pipefix.measurement.schedule import unreplaced_operation
from pipefix.measurement.trace import BatchTrace, Charge
from tests.doubles.ticks import PROBE, Ticks


def block(**nanoseconds: int) -> Block:
    """One batch of four; operations are called STAGE_NAME."""
    trace = BatchTrace(1, 1, 0, 9, 4, 0, 0, 0, 0, 0)
    trace.charges = [Charge(name.partition("_")[0], name, spent, 0, 0, 1) for name, spent in nanoseconds.items()]
    return Block("any", (Row(0, 0, 0, 0, 0, trace),), 1.0, 4)


def beside(**nanoseconds: int) -> Block:
    """The same of operations that threads of the dataset's own ran."""
    measured = block()
    measured.rows[0].trace.foreign = [(name.partition("_")[0], name, spent) for name, spent in nanoseconds.items()]
    return measured


def test_what_threads_of_the_datasets_own_run_cannot_be_replaced() -> None:
    real = beside(decode_jpeg=500)
    assert unreplaced_operation(experiments.NO_DECODE, real, [real]) == "decode_jpeg"
    assert unreplaced_operation(experiments.NO_STORAGE, real, [real]) is None


REAL = block(storage_recv=900, storage_open=100, decode_jpeg=500)


@pytest.mark.parametrize(
    ("arm", "block", "left"),
    [
        (experiments.NO_STORAGE, block(storage_recv=880, storage_open=10, decode_jpeg=500), "storage_recv"),
        (experiments.NO_STORAGE, block(storage_recv=480, storage_open=10), None),
        (experiments.NO_STORAGE, block(decode_jpeg=500), None),
        (experiments.DECODED, block(storage_recv=900, decode_jpeg=10), "storage_recv"),
        (experiments.NO_DECODE, block(storage_recv=900, storage_open=100), None),
        (experiments.NO_COLLATE, REAL, None),
        (experiments.REAL, REAL, None),
    ],
)
def test_what_runs_all_the_same_is_named(arm: Experiment, block: Block, left: str | None) -> None:
    assert unreplaced_operation(arm, block, [REAL, REAL]) == left


def test_without_a_look_at_the_real_arm_nothing_is_said() -> None:
    assert unreplaced_operation(experiments.NO_STORAGE, REAL, []) is None


class Asked(Dataset[Any]):
    """Samples that a server at the other end of a connection gives."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:  # what is sent within the machine is no storage
            self.ours = socket.create_connection(server.getsockname())
            far_end, _ = server.accept()
        threading.Thread(target=self.serve, args=(far_end, passes), daemon=True).start()

    @staticmethod
    def serve(end: socket.socket, passes: Callable[[float], None]) -> None:
        while end.recv(1):
            passes(0.002)
            end.sendall(bytes(256))

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        self.ours.sendall(b"?")
        return torch.frombuffer(bytearray(self.ours.recv(256)), dtype=torch.uint8).float().sum()


def until_the_fourth_round(phase: str, done: float) -> None:
    """Ends a probe, as Ctrl-C would, once it has seen enough, however long that took."""
    if phase.startswith("round 4"):
        raise KeyboardInterrupt


def test_a_conversation_is_not_called_free_because_it_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(1e-5).given_to(PROBE, monkeypatch)
    monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
    run = pipefix.probe(DataLoader(Asked(ticks.passes), batch_size=4), step_ms=1.0, budget=30.0, progress=until_the_fourth_round)
    (arm,) = [arm for arm in run.arms if arm.name == "storage-from-memory"]
    # The answer may be made before the question's call has returned.
    whys = {f"socket.{call} runs all the same, because what it gives cannot be recorded" for call in ("recv", "sendall")}
    assert arm.declined in whys
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", "storage")
