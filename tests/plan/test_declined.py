"""Every reason for which a remedy is declined, in whole sentences."""

from __future__ import annotations

from typing import Any

import pytest

from pipefix.measurement.measurement import FusedCall, KeptRecord
from pipefix.plan.case import Moving
from pipefix.plan.plan import Declined
from pipefix.system.machine import Machine
from pipefix.vocabulary.quantity import exactly
from pipefix.vocabulary.stage import Stage
from tests.plan.builders import (
    ALONE,
    COPIES,
    CROWDED,
    FINISHED,
    JPEGS,
    SLOW_NETWORK,
    STEP_BOUND,
    STREAM,
    TAIL,
    TEXTS,
    TRIED,
    WHOLE,
    World,
    late,
    with_threads,
)  # fmt: skip

SLOW_COLLATE = JPEGS.but(collate=0.004)
SHORT = {"length": 3200}
RESTARTED = {"epoch_restart": 4.0}
ON_GPU = {"cuda": True}
TOO_UNCERTAIN = JPEGS.but(fields={"trials": {"workers-4": [(900.0, 500.0), (300.0, 500.0)]}, "seconds": 60.0})
PACKED = TEXTS.but(augment=0.002, ops={Stage.DECODE: ("json.loads",), Stage.AUGMENT: ("Normalize",)}, source_bytes=5000.0)
NATIVE = "tokenizers.Tokenizer.encode"


def room(**bytes: int) -> dict[str, Any]:
    return {"machine": Machine(system="Linux", kernel="6.1", effective_cores=16.0, **bytes)}  # type: ignore[arg-type]


def unrecorded(world: World, why: str) -> World:
    return world.but(fields={"record": KeptRecord(why_not=why)})


WORKERS: list[tuple[World, str, str, dict[str, Any]]] = [
    (TRIED, "workers-1", "1 worker gave 0.52x in one block of today's throughput, 4 workers 1.80x (1.78-1.82)", {}),
    (JPEGS.but(workers=4, cores=4.0), "workers",
     ("more workers than the 4 in use would not help, 4 cores have no more to give: 8 workers would give 0.90x (0.83-0.98) "
     "(predicted, no other number was tried)"), {}),
    (JPEGS.but(workers=4, cores=16.0), "workers-2",
     "2 workers would give 0.50x (0.42-0.59) of today's throughput (predicted, no other number was tried)", {}),
    (TOO_UNCERTAIN, "workers-4", "...is too uncertain to act on; --budget 180 narrows it", {}),
    (TRIED, "workers-4", "4 workers hold up to 231 MB of batches in /dev/shm, where 67.1 MB are free",
     room(shm_free_bytes=67_108_864)),
    (JPEGS.but(workers=4, cores=16.0), "workers", "16 workers would take about 1.41 GB more of memory, where 50.0 MB are left",
     room(memory_available_bytes=50_000_000)),
]  # fmt: skip
CACHES: list[tuple[World, str, str, dict[str, Any]]] = [
    (JPEGS, "cache-source", "would gain under 3 %: 1.02x (1.01-1.02)", {}),
    (STREAM, "cache-source", "an IterableDataset has no index that records could be looked up by", {}),
    (JPEGS.but(storage=0.0), "cache-source", "nothing is read from storage while samples are made", {}),
    (SLOW_NETWORK.but(source_bytes=0.0), "cache-source",
     "storage takes 10.0 ms a sample, but no bytes were seen that could be kept", {}),
    (SLOW_NETWORK.but(ops={Stage.STORAGE: ("http.client.request",)}), "cache-source",
     "samples read through http.client.request, for which a source cache...", {}),
    (JPEGS.but(facts={"decoded_bytes": 3 * 100_000.0}), "cache-resized-256",
     "the images are small already: 0.10 megapixels, 256 pixels on the shorter side leave 87 % of them", {}),
    (TEXTS, "cache-resized-256", "no operation that decodes pictures was seen", {}),
    (unrecorded(TEXTS, "a my.Graph: records hold numbers, text, bytes"), "cache-decoded",
     "a sample was to be stored, and could not be: a my.Graph: records hold numbers, text, bytes", {}),
    (JPEGS, "cache-decoded",
     "the cache would take 42.9 GB, more than the 16.0 GB of free memory, and how fast this disk reads was not measured", {}),
    # A cold epoch at half speed: the disk takes 4.9 ms for each 100 kB, so 857 kB from it are no gain.
    (JPEGS.but(arms={"real-cold": exactly(0.5)}), "cache-decoded", "would be slower: 0.1...", {}),
    # Seven times as fast where a few were read from memory, and no faster from this disk.
    (JPEGS.but(ops={Stage.DECODE: ("PIL.Image.load",)}, augment=0.0, arms={"real-cold": exactly(0.5)},
               fields={"record": KeptRecord(exactly(25e-6), 2048.0, gain=exactly(7.0), pairs=3)}),
     "cache-decoded", "would be slower: 0.1...", {}),
    (JPEGS.but(decode=0.0), "cache-decoded", "nothing is decoded", {}),
    (PACKED.with_arms(), "cache-decoded",
     "cache-sample gains 26.2x (24.1-28.6) for 102 MB of disk, this 1.94x (1.87-2.02) for 102 MB", {}),
    (unrecorded(FINISHED, "it is nested more than 32 deep"), "cache-sample",
     "a sample was to be stored, and could not be: it is nested more than 32 deep", {}),
    (JPEGS, "cache-sample",
     "the first operation on decoded samples, RandomResizedCrop, may be random: the same as cache-decoded", {}),
    (TEXTS, "cache-sample", "nothing is done to samples after decoding, so this is the same as cache-decoded", {}),
    (FINISHED.but(facts={"batch.bytes": 0.0}), "cache-sample",
     "how large a record would be could not be measured, so neither can its worth", {}),
]  # fmt: skip
GPU: list[tuple[World, str, str, dict[str, Any]]] = [
    (JPEGS, "augment-gpu", "MyOwn stays: it is not known what it does",
     {**ON_GPU, "moving": Moving(frozenset(), "MyOwn stays: it is not known what it does")}),
    (JPEGS, "augment-gpu", ("no CUDA device here; augmentation takes 3.00 ms a sample (RandomResizedCrop most), so beside a GPU "
     "with time to spare it would gain 1.44x (1.32-1.57)"), {}),
    (JPEGS.but(augment=0.0), "augment-gpu", "nothing is done to samples after decoding", ON_GPU),
    (TEXTS.but(augment=0.001), "augment-gpu", "samples are text: tokens are not augmented on a GPU", ON_GPU),
    (STEP_BOUND, "augment-gpu", "the training step limits already: work moved to the GPU would slow it down", ON_GPU),
    (JPEGS, "decode-gpu", "whether DALI can make these samples could not be told", ON_GPU),
    (JPEGS, "decode-gpu", "DALI cannot make these samples: the dataset lists no files",
     {**ON_GPU, "whole": Moving(frozenset(), "the dataset lists no files")}),
    (TEXTS, "decode-gpu", "nothing that decodes pictures was seen", ON_GPU),
    (JPEGS, "decode-gpu", "no CUDA device here; decoding and augmenting take 9.00 ms a sample...", {}),
    (STEP_BOUND, "decode-gpu", "the training step limits already: work moved to the GPU would slow it down",
     {**ON_GPU, "whole": WHOLE}),
    (JPEGS, "pinning", "no CUDA device here: pinned memory only speeds up copies to one", {}),
    (JPEGS, "pinning", "the copy of a batch to the device could not be measured", ON_GPU),
    (JPEGS.but(settings={"pin_memory": True}), "pinning", "pin_memory=True is set already", ON_GPU),
    (JPEGS.but(fields={"transfer": {"pinned": 0.004, "pageable": 0.004}}), "pinning",
     "a batch is copied as fast without: 4.00 ms against 4.00 ms pinned", ON_GPU),
    (JPEGS.but(fields={"transfer": COPIES}), "pinning", "would gain under 3 %: 1.00x", ON_GPU),
    (late(), "early-copy", "no CUDA device here: nothing is copied to one", {}),
    (JPEGS, "early-copy", "how long a step waits for its copy could not be measured", ON_GPU),
    (late(exposed=0.0), "early-copy", "the step waits for no copy: it is hidden behind other work already", ON_GPU),
    (late(exposed=0.005, pinned=0.03), "early-copy",
     "a copy from pinned memory takes 30.0 ms and the step 20.0 ms: too little to hide it behind", ON_GPU),
]  # fmt: skip
BATCHES: list[tuple[World, str, str, dict[str, Any]]] = [
    (JPEGS.but(ipc=0.0001), "handover-slots", "would gain under 3 %: 1.00x", {}),
    (ALONE, "handover-slots", "no workers: nothing crosses a process border", {}),
    (JPEGS.but(facts={"batch.piped_bytes": 19_000_000.0}), "handover-slots",
     "batches are not tensors but arrays or bytes, which go through a pipe: return tensors from collate_fn first", {}),
    (JPEGS.but(fields={"looks": {}}), "handover-slots", "how large a batch is could not be looked at", {}),
    (JPEGS.but(collate=0.0001), "collate-faster", "would gain under 3 %: 1.00x", {}),
    (SLOW_COLLATE.but(settings={"collate": "spectra"}, collate=0.1), "collate-faster",
     ("spectra takes 3.20 s a batch, where a copy of its 19.3 MB takes 3.21 ms: it computes, and what of that can go only its "
      "author knows"), {}),
    (JPEGS.but(collate=0.0), "collate-faster", "collating takes no time", {}),
    (SLOW_COLLATE.but(fields={"looks": {}}), "collate-faster",
     "how large a batch is could not be looked at, so how fast it could be collated is not known", {}),
    (ALONE, "persistent-workers", "no workers: there is none to start anew for each epoch", {}),
    (JPEGS.but(settings={"persistent_workers": True}), "persistent-workers", "persistent_workers=True is set already", {}),
    (JPEGS, "persistent-workers", "how long an epoch takes to begin was not measured: the time budget was spent", {}),
    (JPEGS.but(settings={"length": None}, fields=RESTARTED), "persistent-workers",
     "an epoch takes 4.00 s to begin, but the dataset tells no length to compare it with", {}),
    (JPEGS.but(settings={**SHORT, "drawn": 1_000_000}, fields=RESTARTED), "persistent-workers", "would gain under 3 %: 1.00x", {}),
    (JPEGS.but(fields={"epoch_restart": 2.0}), "persistent-workers", "would gain under 3 %: 1.01x (1.00-1.01)", {}),
    (ALONE.but(tail=TAIL), "tail-scheduling", "no workers: no batch can overtake another", {}),
    (JPEGS.but(tail=TAIL, workers=1), "tail-scheduling", "1 worker: no batch can overtake another", {}),
    (JPEGS.but(tail=TAIL, settings={"in_order": False}), "tail-scheduling", "in_order=False is set already", {}),
    (JPEGS, "tail-scheduling", "how unequal samples are was not measured", {}),
    (JPEGS.but(tail={**TAIL, "p99": 0.006}), "tail-scheduling",
     "samples are alike: the slowest in a hundred takes 1.50x the median (4.00 ms)", {}),
    (JPEGS.but(tail=TAIL), "tail-scheduling", "would gain under 3 %: 1.00x", {}),
    (JPEGS.but(tail={**TAIL, "p50": 1e-6, "p99": 20e-6}), "tail-scheduling",
     "the slowest sample in a hundred takes 20.0 µs, too little to hold up...", {}),
    (ALONE, "thread-caps", "no workers: library threads have the cores to themselves", {}),
    (JPEGS, "thread-caps", "libraries run no busy threads of their own inside the workers", {}),
    # Python's own thread that hands batches over takes CPU time as well.
    (with_threads(World(decode=0.008, workers=4, cores=4.0, facts={"worker.busy_threads": 0.0}), 2_000_000, 1_000_000),
     "thread-caps", "libraries run no busy threads of their own inside the workers", {}),
    (with_threads(CROWDED, 12_000_000, 1_000_000), "thread-caps",
     ("the main threads of the workers compute only 8.3 % of what their threads do: they wait for them, and would wait longer for "
      "fewer"), {}),
    (CROWDED.but(cores=32.0), "thread-caps", "4 workers with 5 busy threads fit on 32 cores", {}),
    (CROWDED.but(workers=1), "thread-caps", "5 threads share 4 cores, but only 25 % of their time is used", {}),
    (with_threads(CROWDED, 1_010_000, 1_000_000), "thread-caps",
     "20 threads share 4 cores, but those beside the main ones use next to no CPU time", {}),
]  # fmt: skip
CALLS: list[tuple[World, str, str, dict[str, Any]]] = [
    (SLOW_NETWORK.but(settings={"kind": "batched"}), "batched-fetch", "the dataset has __getitems__ already", {}),
    (STREAM, "batched-fetch", "an IterableDataset is not asked for indices", {}),
    (SLOW_NETWORK.but(settings={"batch_size": 1}), "batched-fetch",
     "a batch holds 1 sample: there is nothing to fetch together", {}),
    (JPEGS.but(storage=0.0), "batched-fetch", "nothing is read from storage while samples are made", {}),
    (JPEGS, "batched-fetch", "reading (200 µs a sample) computes rather than waits, so nothing would overlap", {}),
    (SLOW_NETWORK.but(storage=50e-6), "batched-fetch",
     "reading waits 47.5 µs a sample, less than it takes to have other threads wait instead", {}),
    (JPEGS.but(computing={"storage": 0.0}), "batched-fetch", "waiting for storage is 2.0 % of a sample's making", {}),
    (JPEGS, "batched-tokenisation", "no tokeniser was seen", {}),
    (TEXTS, "batched-tokenisation",
     f"{NATIVE} is native code: a list of texts takes one core as long as one text after the other", {}),
    (TEXTS.but(settings={"batch_size": 1}), "batched-tokenisation",
     "a batch holds 1 sample: there is nothing to tokenise together", {}),
    (TEXTS.but(ops={Stage.DECODE: (f"{NATIVE}_batch",)}), "batched-tokenisation",
     f"{NATIVE}_batch is given whole batches already", {}),
    (TEXTS.but(decode=0.00001, augment=0.01), "batched-tokenisation",
     "tokenising takes 10.0 µs a sample, 0.1 % of its making", {}),
    (JPEGS, "fuse", ("whether one call can make a sample was not tried: that takes a budget of 8 s, and decoding and transforming "
     "that are 10 % of a sample's making"), {}),
    (STREAM, "fuse", "an IterableDataset is not asked for indices, so its samples cannot be made by one call each", {}),
    (JPEGS.but(fields={"fused": {"exact": FusedCall(why_not="the dataset has no transforms (an attribute such as transform)")}}),
     "fuse", "one call cannot make these samples: the dataset has no transforms (an attribute such as transform)", {}),
]  # fmt: skip


@pytest.mark.parametrize(("world", "remedy", "why", "options"), [*WORKERS, *CACHES, *GPU, *BATCHES, *CALLS])
def test_declined(world: World, remedy: str, why: str, options: dict[str, Any]) -> None:
    """Where a sentence holds ``...``, the rest of it is not looked at."""
    step = world.step_called(remedy, **options)
    assert isinstance(step, Declined), step
    begin, dots, end = why.partition("...")
    assert step.why == why if not dots else step.why.startswith(begin) and step.why.endswith(end)
