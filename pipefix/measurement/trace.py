"""The trace of a batch: what it cost in the process that made it. Written beside the batch, read by the training process."""

from __future__ import annotations

import msgspec


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """One operation's own time in one batch, nested operations left out. Nanoseconds."""

    stage: str | None
    """None for the user's own code that no hook times."""
    op: str
    wall: int
    cpu: int
    """CPU time, read for some samples only; its base is `cpu_wall`."""
    cpu_wall: int
    calls: int
    entered: int = 0
    """Timed calls that were made directly inside it: what their clocks take is in its time, not in theirs."""


class BatchTrace(msgspec.Struct, array_like=True):
    arm: int
    epoch: int
    """Which switch of arms this batch was made under."""
    worker: int
    pid: int
    samples: int
    begun: int
    made: int
    """When the last sample was done and collating began (perf_counter_ns: one clock for all processes)."""
    ended: int
    cpu: int
    """CPU nanoseconds of the process's main thread from `begun` to `ended`."""
    children_cpu: int
    """CPU nanoseconds of the process's children from `begun` to `ended`."""
    unit_walls: list[int] = []
    charges: list[Charge] = []
    foreign: list[tuple[str, str, int]] = []
    """(stage, op, ns) of calls made by other threads beside the batch's own."""
    bytes_read: int = 0
    replay: int = 0
    """Nanoseconds spent answering from recordings."""
    collate_wall: int = 0
    collate_cpu: int = 0
    plain_collate: int = 0
    """The same samples collated into ordinary memory, where that was measured apart (in this batch's own extra time)."""
    extra: int = 0
    """Nanoseconds of this batch that only measuring caused."""
    dumps: int = 0
    send: int = 0
    handed: int = 0
    """Batches that `dumps` and `send` belong to: those handed over since the last trace."""
    unfit: str = ""
    """Why this arm cannot be run on this pipeline: its code raised with something replaced, and did not without."""
    wrapped: bool = False
    """True where recorded samples were used a second time under this switch."""
    paths: list[tuple[bytes, list[tuple[int, int]]]] = []
    """Files whose bytes were recorded, each with the starts and lengths of what was read; told again where more was."""
    pieces_bytes: int = 0
    """Of recorded samples, what each read of a file at a stretch; where two read the very same, once. Stretches may overlap."""
    units: bytes = b""
    """Recorded units, told once; pickled, since samplers name samples by whatever they like."""
    recorded: int = 0
    recorded_bytes: int = 0
    full: bool = False
    refused: dict[str, str] = {}
    mixed: list[str] = []
    left_out: list[str] = []
    """Libraries in use that have no hooks, with their releases."""
    facts: dict[str, float] = {}
    """What the audit wants to know of a worker."""
    starved: int = 0
    """Nanoseconds between `begun` and `ended` in which the making thread was ready to run but had no CPU."""
    samples_made: int = 0
    """By this process, in all arms so far."""
    events: list[tuple[str, str, int, int]] = []
    """(stage, op, begun, ended) where a trace was asked for; in place of a stage and an op, sample and which one."""
    own_lines: dict[str, int] = {}
    """Lines of the user's own code that no hook times, by how often they were seen running so far."""
    collate_lines: dict[str, int] = {}
    """Lines of the user's own code, by how often they were seen running while a batch was collated."""
    chunk_reads: list[tuple[str, str, int, int]] = []
    """Arrays and tables: name, chunks, bytes asked for and unpacked so far."""
    process_made: int = 0
    """CPU nanoseconds of all the process's threads, and of its children, from `begun` to `ended`: these work where the one that
    calls them waits."""
    collate_again: int = 0
    """The same samples collated as the batch was, right before `plain_collate`."""


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(BatchTrace).decode
