"""The base of the audit: the facts that rules look at (`AuditFacts`), what a rule is (`rule`), and all of them (`audit`)."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Literal

import msgspec

import pipefix.audit as package
from pipefix.system.machine import Filesystem, Machine
from pipefix.vocabulary.finding import SEVERITIES, Finding
from pipefix.vocabulary.settings import LoaderSettings

REUSED = "reused memory"
"""How a FastLoader shares batches: as one piece each."""


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch is made of."""

    bytes: int = 0
    """Bytes of all tensors, arrays and byte strings."""
    tensors: int = 0
    """Tensors with a storage of their own: each crosses from a worker as one descriptor and one mapping."""
    small_tensors: int = 0
    """Those below 64 KiB, whose hand-over costs more than their bytes."""
    piped_bytes: int = 0
    """Bytes in arrays and byte strings, which cross through a pipe rather than through shared memory."""


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker's private memory (USS) grew between two looks."""

    before_bytes: int
    after_bytes: int
    samples: int
    """Samples that this worker made in between."""

    @property
    def bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def fraction(self) -> float:
        return self.bytes / self.before_bytes if self.before_bytes > 0 else 0.0


class DatasetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The Python objects that a dataset keeps in lists and dicts, estimated from a sample of them."""

    objects: int = 0
    bytes: int = 0
    where: str = ""
    """The attribute that holds most of them."""


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one training step on a CUDA device did. Counts are by the user's line."""

    waits: dict[str, int] = {}
    """Times that the host waited for the device, but for copies to it."""
    blocking: dict[str, int] = {}
    """Copies to the device that were waited for."""
    pageable: dict[str, int] = {}
    """Copies with ``non_blocking=True`` from memory that is not pinned."""
    full_precision: int = 0
    """Weights of linear layers that computed in float32 without TF32."""


class ObjectStoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store of objects that samples are read from. None: not measured."""

    name: str
    """Such as ``s3://bucket``; of several the first, and how many more."""
    request_s: float | None = None
    """From a request to the end of its answer."""
    requests: float | None = None
    """A sample."""
    bytes_per_s: float | None = None
    """For one reader."""


class AmplifiedReads(msgspec.Struct, frozen=True):
    """What a sample has unpacked of an array, a table or a video, and how much of that it uses."""

    name: str
    pieces: Literal["chunks", "row groups", "frames"]
    used: float
    """Bytes a sample; of frames, their number."""
    unpacked: float
    chunk: str = ""
    """Of an array, such as ``50 x 64 x 64``."""


class AuditFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a rule may look at. None means unknown, and rules keep silent about what they do not know."""

    machine: Machine | None = None
    settings: LoaderSettings | None = None
    """None: only the machine is audited."""
    batch: BatchFacts | None = None
    growth: MemoryGrowth | None = None
    """Of the worker that grew most."""
    dataset: DatasetFacts | None = None
    handles: dict[str, str] = {}
    """What the dataset holds open before its workers are started, by where it is held."""
    lost_by_fork: str | None = None
    """A library that runs threads in the training process which its workers, being forked, lack."""
    shards: int | None = None
    """Parts that a stream can be read in at once."""
    start_method: str | None = None
    """fork, forkserver or spawn, as really in use: that of the loader, else that of the program, else the platform's default."""
    preload: list[str] | None = None
    """Modules that the fork server imports once for all workers."""
    sharing_strategy: str | None = None
    """``torch.multiprocessing.get_sharing_strategy()``, or `REUSED`."""
    filesystems: dict[str, Filesystem] = {}
    """Mount point -> file system, of the paths that samples were read from."""
    store: ObjectStoreFacts | None = None
    """Where samples come from over the network, if they do."""
    unpacked: list[AmplifiedReads] = []
    cpu_share: float | None = None
    """Part of the making of a sample that computes, or queues for a core: 1 is CPU-bound, 0 is waiting."""
    throttled_share: float | None = None
    """Part of the scheduling periods of the run in which the CPU quota ran out."""
    first_batch_s: float | None = None
    step: StepFacts | None = None
    """None: there is no step, or no device that it could wait for."""
    no_kernel: tuple[str, str] | None = None
    """Why there is no native kernel, and what to type. None: there is one, or it was not looked for."""

    @property
    def num_workers(self) -> int | None:
        return None if self.settings is None else self.settings.num_workers

    @property
    def in_flight(self) -> int | None:
        """Most batches alive at once: those the workers may run ahead, and the one being used."""
        if self.settings is None or self.settings.num_workers == 0:
            return None
        return self.settings.num_workers * (self.settings.prefetch_factor or 2) + 1


class Message(msgspec.Struct, frozen=True):
    """What a rule has to say: what was found and what to do."""

    found: str
    advice: str
    severity: str | None = None
    """Where this case is graver or milder than the rule's own severity."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake to look for."""

    id: str
    severity: str
    statement: str
    """When it fires, with its threshold: printed beside the finding."""
    look: Callable[[AuditFacts], Message | None]

    def check(self, facts: AuditFacts) -> Finding | None:
        if (message := self.look(facts)) is None:
            return None
        severity, stated = message.severity or self.severity, f"{self.id}: {self.statement}"
        return Finding(id=self.id, severity=severity, found=message.found, advice=message.advice, rule=stated)


def rule(id: str, severity: str, statement: str) -> Callable[[Callable[[AuditFacts], Message | None]], Rule]:
    """Make a function of the facts into a `Rule`. It is found by walking the package; nothing has to be registered."""
    return lambda look: Rule(id=id, severity=severity, statement=statement, look=look)


@functools.cache
def every_rule() -> tuple[Rule, ...]:
    """Found by walking ``on_*``."""
    rules: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("on_"):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            rules.update({value.id: value for value in vars(module).values() if isinstance(value, Rule)})
    return tuple(rules[name] for name in sorted(rules))


def audit(facts: AuditFacts) -> list[Finding]:
    """What is wrong, gravest first. Empty means that no rule fired, not that everything was known."""
    findings = [finding for rule in every_rule() if (finding := rule.check(facts)) is not None]
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.id))
