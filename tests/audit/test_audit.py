"""Every mistake is found, alone; nothing sound raises an alarm; and rules say nothing about what they do not know."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from torch.utils.data import DataLoader

from pipefix.api import probe
from pipefix.audit.facts import AuditFacts, BatchFacts, DatasetFacts, audit, every_rule
from pipefix.vocabulary.finding import SEVERITIES, Finding
from pipefix.vocabulary.settings import LoaderSettings
from tests.audit.case import Case, machine
from tests.audit.mistakes import MISTAKES
from tests.audit.sound import HEALTHY
from tests.plan.builders import World

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cases read /proc and start forked workers")


@pytest.mark.parametrize("case", [case for case in MISTAKES if not case.long], ids=lambda case: case.name)
def test_a_planted_mistake_is_found_and_nothing_else(case: Case) -> None:
    assert [finding.id for finding in audit(case.make())] == [case.expect]


@pytest.mark.parametrize("case", [case for case in HEALTHY if not case.long], ids=lambda case: case.name)
def test_nothing_sound_raises_an_alarm(case: Case) -> None:
    assert audit(case.make()) == []


@pytest.mark.parametrize("fields", [{"shm_bytes": 64 << 20}, {"fd_soft": 256}, {"quota_cores": 4.0, "effective_cores": 4.0}])
def test_with_a_target_no_less_is_said_of_the_machine_than_without(fields: dict[str, Any]) -> None:
    alone = {finding.id for finding in audit(AuditFacts(machine=machine(**fields)))}
    beside = {finding.id for finding in audit(AuditFacts(machine=machine(**fields), settings=LoaderSettings(num_workers=2)))}
    assert alone and alone <= beside


def test_every_rule_is_planted() -> None:
    assert {case.expect for case in MISTAKES if not case.long} == {rule.id for rule in every_rule()}


def test_every_rule_states_its_severity_and_when_it_fires() -> None:
    for rule in every_rule():
        assert rule.severity in SEVERITIES
        assert rule.statement
    assert len({rule.id for rule in every_rule()}) == len(every_rule())


def test_the_gravest_comes_first() -> None:
    seen = machine(shm_bytes=64 << 20, shm_free_bytes=64 << 20)
    batch = BatchFacts(bytes=40 << 20, tensors=40, small_tensors=39)
    findings = audit(AuditFacts(machine=seen, settings=LoaderSettings(num_workers=4, prefetch_factor=2), batch=batch))
    assert [finding.severity for finding in findings] == ["problem", "warning"]
    assert [finding.id for finding in findings] == ["shm-size", "batch-parts"]


class TestWords:
    """What is said: the value found and what to type."""

    def only(self, facts: AuditFacts) -> Finding:
        (finding,) = audit(facts)
        return finding

    def test_quota(self) -> None:
        seen = machine(logical_cores=64, affinity_cores=64, quota_cores=4.0, effective_cores=4.0)
        finding = self.only(AuditFacts(machine=seen, settings=LoaderSettings(num_workers=16), cpu_share=0.9))
        assert finding.severity == "warning"
        assert finding.found == (
            "16 workers would keep 14.4 cores busy, and this process may use 4 cores (a CPU quota of the control group; "
            "os.cpu_count() says 64)."
        )
        assert "pipefix tune TARGET" in finding.advice
        assert "num_workers=" not in finding.advice, "another number may have been tried in the same run, and won"
        assert finding.rule is not None and finding.rule.startswith("cpu-quota: CPU-bound workers > 1.25 x the cores that are ")

    @pytest.mark.parametrize(
        ("facts", "said"),
        [
            (AuditFacts(machine=machine(quota_cores=1.0, effective_cores=1.0)), "Only 1 core of 16 can be used: a CPU quota"),
            (AuditFacts(machine=machine(affinity_cores=1, effective_cores=1.0), settings=LoaderSettings(num_workers=4)),
             "4 workers share 1 core (the CPU affinity of this process; os.cpu_count() says 16); if they"),
            (AuditFacts(settings=LoaderSettings(num_workers=1), start_method="spawn"), "The worker is started by spawn"),
            (AuditFacts(settings=LoaderSettings(num_workers=2), shards=1), "1 shard for 2 workers: 1 of them gets no sample"),
        ],
    )  # fmt: skip
    def test_one_of_a_kind(self, facts: AuditFacts, said: str) -> None:
        assert said in self.only(facts).found

    def test_quota_without_knowing_what_workers_do_is_only_a_note(self) -> None:
        seen = machine(quota_cores=2.0, effective_cores=2.0)
        assert self.only(AuditFacts(machine=seen, settings=LoaderSettings(num_workers=8))).severity == "note"

    def test_shared_memory(self) -> None:
        seen = machine(shm_bytes=64_000_000, shm_free_bytes=64_000_000)
        batch = BatchFacts(bytes=20_000_000, tensors=1)
        finding = self.only(AuditFacts(machine=seen, settings=LoaderSettings(num_workers=4, prefetch_factor=2), batch=batch))
        assert finding.severity == "problem"
        assert finding.found == (
            "Up to 9 batches of 20.0 MB lie in /dev/shm (4 workers x prefetch_factor 2, and the one in use): "
            "180 MB, and 64.0 MB is free."
        )
        assert finding.advice == "Start the container with: docker run --shm-size=1g ... (or --ipc=host)"

    def test_shared_memory_that_fits_once_but_not_twice_is_a_warning(self) -> None:
        seen = machine(shm_bytes=200_000_000, shm_free_bytes=200_000_000)
        batch = BatchFacts(bytes=20_000_000, tensors=1)
        finding = self.only(AuditFacts(machine=seen, settings=LoaderSettings(num_workers=4, prefetch_factor=2), batch=batch))
        assert finding.severity == "warning"
        assert "DataLoader(..., num_workers=2)" in finding.advice

    def test_descriptors(self) -> None:
        batch = BatchFacts(bytes=64 << 20, tensors=25)
        facts = AuditFacts(machine=machine(), settings=LoaderSettings(num_workers=16, prefetch_factor=4), batch=batch)
        finding = self.only(facts)
        assert "with those already open, 1640, and the limit is 1024" in finding.found
        assert finding.advice == "Before starting the program: ulimit -n 4096"
        locked = msgspec.structs.replace(facts, machine=machine(fd_hard=1024))
        assert self.only(locked).advice == (
            'At the top of the program: torch.multiprocessing.set_sharing_strategy("file_system") (the hard limit is 1024)'
        )

    def test_lists(self) -> None:
        held = DatasetFacts(objects=3_000_000, bytes=200_000_000, where="dataset.samples")
        forked = AuditFacts(machine=machine(), settings=LoaderSettings(num_workers=4), dataset=held, start_method="fork")
        assert "each of 4 workers ends up with its own copy: 800 MB more." in self.only(forked).found
        spawned = msgspec.structs.replace(forked, start_method="spawn", first_batch_s=0.5)
        assert "each of 4 workers is sent a pickled copy when it starts: 800 MB more" in self.only(spawned).found


COUNT = some.integers(0, 10**13)
CORES = some.floats(0.01, 512)
WORDS = some.sampled_from(["", "fork", "forkserver", "spawn", "file_system", "3", "3.14", "weird", "-1"])
PLAIN = {int: COUNT, float: some.floats(0, 1e5), bool: some.booleans(), str: WORDS, type(None): some.none()}
KNOWN: dict[str, some.SearchStrategy[Any]] = {
    "cpu_share": some.none() | some.floats(0, 1),
    "throttled_share": some.none() | some.floats(0, 1),
    "system": some.sampled_from(["Linux", "Darwin"]),
    "logical_cores": some.integers(1, 512),
    "affinity_cores": some.none() | some.integers(1, 512),
    "quota_cores": some.none() | CORES,
    "effective_cores": CORES,
    "versions": some.dictionaries(some.just("torch"), some.sampled_from(["2.9.0", "2.9.0+cpu", ""])),
    "environment": some.dictionaries(some.just("OMP_NUM_THREADS"), some.sampled_from(["", "4", "4,2", "x", "9999"])),
    "num_workers": some.integers(0, 300),
    "prefetch_factor": some.none() | some.integers(1, 100),
    "kind": some.sampled_from(["nfs", "ext4", "fuse.x", "map", "iterable", ""]),
    "no_kernel": some.none() | some.just(("It was not built.", "Install a C compiler.")),
}


def made(of: Any) -> some.SearchStrategy[Any]:
    """Values of a type; of a struct with any of its fields left at its default."""
    kind = get_origin(of)
    if kind is Literal:
        return some.sampled_from(get_args(of))
    parts = [made(part) for part in get_args(of)]
    if kind is list:
        return some.lists(*parts, max_size=2)
    if kind is dict:
        return some.dictionaries(*parts, max_size=3)
    if kind is tuple:
        return some.tuples(*parts)
    if parts:
        return some.one_of(parts)
    if of in PLAIN:
        return PLAIN[of]
    needed, free = {}, {}
    for field in msgspec.structs.fields(of):
        (needed if field.required else free)[field.name] = KNOWN[field.name] if field.name in KNOWN else made(field.type)
    return some.fixed_dictionaries(needed, optional=free).map(lambda fields: of(**fields))


FACTS = made(AuditFacts)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(facts=FACTS)
def test_rules_never_raise_and_always_say_something_whole(facts: AuditFacts) -> None:
    for finding in audit(facts):
        assert finding.severity in SEVERITIES
        assert finding.found.endswith(".")
        assert finding.advice
        assert not re.search(r"\bNone\b(?! in __init__)", finding.found + finding.advice)
        assert finding.rule.startswith(f"{finding.id}: ")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(facts=FACTS)
def test_a_machine_with_no_settings_is_never_blamed_for_a_loader(facts: AuditFacts) -> None:
    alone = AuditFacts(machine=facts.machine)
    allowed = {"cpu-quota", "shm-size", "fd-limit", "gpu"}
    assert {finding.id for finding in audit(alone)} <= allowed


def test_workers_that_queue_for_a_core_want_one() -> None:
    """Eight that only compute have a quarter of a core each where there are two, and none of them waits for anything else."""
    world = World(decode=0.008, workers=8, cores=2.0, computing={"decode": 0.25}, queued={"decode": 0.75})
    subject: Any = SimpleNamespace(loader=DataLoader([0]))
    seen = machine(affinity_cores=2, effective_cores=2.0)
    found = {finding.id: finding.found for finding in probe._audit(subject, seen, world.measurement(), world.diagnosis())}
    assert found["cpu-quota"].startswith("8 workers would keep 8.0 cores busy, and this process may use 2 cores (the CPU affinity")
