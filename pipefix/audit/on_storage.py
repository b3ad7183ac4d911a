"""The audit rules about where the files lie (on a network, in an object store) and how they are divided."""

from __future__ import annotations

from pipefix.audit.facts import AmplifiedReads, AuditFacts, Message, ObjectStoreFacts, rule
from pipefix.vocabulary.quantity import seconds, size

IN_VAIN = 4.0
"""Times as much as a sample uses."""
LEAST_UNPACKED = 1 << 16
"""Bytes a sample below which it costs next to nothing."""


@rule("network-files", "warning", "samples are read over the network: from a file system of that kind, or from a store of objects")
def network_files(facts: AuditFacts) -> Message | None:
    on_network = [under for _, under in sorted(facts.filesystems.items()) if under.network]
    if on_network:
        first = on_network[0]
        others = f" and {len(on_network) - 1} more" if len(on_network) > 1 else ""
        return Message(
            f"Samples are read from {first.mount}{others} ({first.kind}{', ' + first.source if first.source else ''}): "
            "every file costs a round trip or more, and what the server keeps in memory is not yours to rely on.",
            f"Copy the dataset to a local disk first: rsync -a {first.mount.rstrip('/')}/DATASET/ /LOCAL/DATASET/",
        )
    if facts.store is None:
        return None
    advice = "Keep what they read on a local disk: pipefix convert TARGET --to lmdb --store source"
    return Message(f"Samples are read from {facts.store.name}: {_cost(facts.store)}.", advice)


def _cost(store: ObjectStoreFacts) -> str:
    if store.request_s is None or store.requests is None:
        return "each object costs a round trip at least"
    rate = f"; one reader gets {size(store.bytes_per_s)}/s" if store.bytes_per_s is not None else ""
    return f"a request takes {seconds(store.request_s)}, and a sample makes {store.requests:.1f}{rate}"


@rule("read-amplification", "warning",
    f"samples have {IN_VAIN:g} times as much unpacked as they use: chunks of an array, row groups of a table, frames of a video",
)  # fmt: skip
def read_amplification(facts: AuditFacts) -> Message | None:
    reads = [read for read in facts.unpacked if read.used and read.unpacked >= IN_VAIN * read.used]
    reads = [read for read in reads if read.pieces == "frames" or read.unpacked >= LEAST_UNPACKED]
    if not reads:
        return None
    worst = max(reads, key=lambda read: read.unpacked / read.used)
    more = f" (and of {len(reads) - 1} more)" if len(reads) > 1 else ""
    return Message(f"{_in_vain(worst)}{more}.", ADVICE[worst.pieces])


def _in_vain(read: AmplifiedReads) -> str:
    times = f"{read.unpacked / read.used:.0f} times what it uses"
    if read.pieces == "frames":
        return f"A sample decodes {read.unpacked:.0f} frames ({read.name}) and uses {read.used:.0f}: {times}"
    unpacks = f"A sample uses {size(read.used)} of the {size(read.unpacked)} that it has unpacked"
    chunks = f", in chunks of {read.chunk}" if read.chunk else ""
    return f"{unpacks} of {read.name}{chunks}: {times}"


KEPT = "or keep finished arrays: pipefix convert TARGET --to lmdb --store decoded. A cache of the files would not help."
ADVICE = {
    "chunks": f"Write the array anew in chunks of what one sample takes, or draw samples of one chunk together; {KEPT}",
    "row groups": f"Write the table anew with a smaller row_group_size, or take many rows of a row group that was read; {KEPT}",
    "frames": f"Write the videos anew with more key frames (ffmpeg -g 30), or take frames that lie together; {KEPT}",
}
