"""Mistakes about where the files lie."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Message, rule
from pipefix.vocabulary.quantity import seconds, size


@rule("network-files", "warning", "samples are read from a network or user-space file system")
def network_files(facts: AuditFacts) -> Message | None:
    far = [under for _, under in sorted(facts.filesystems.items()) if under.network]
    if not far:
        return None
    first = far[0]
    others = f" and {len(far) - 1} more" if len(far) > 1 else ""
    return Message(
        f"Samples are read from {first.mount}{others} ({first.kind}{', ' + first.source if first.source else ''}): "
        "every file costs a round trip or more, and what the server keeps in memory is not yours to rely on.",
        f"Copy the dataset to a local disk first: rsync -a {first.mount.rstrip('/')}/DATASET/ /LOCAL/DATASET/",
    )


@rule("far-store", "warning", "samples are read from a store of objects over the network")
def far_store(facts: AuditFacts) -> Message | None:
    far = facts.store
    if far is None:
        return None
    cost = "each object costs a round trip at least"
    if far.request_s is not None and far.requests is not None:
        cost = f"a request takes {seconds(far.request_s)}, and a sample makes {far.requests:.1f}"
        if far.bytes_per_s is not None:
            cost += f"; one reader gets {size(far.bytes_per_s)}/s"
    return Message(
        f"Samples are read from {far.name}: {cost}.",
        "Keep what they read on a local disk: pipefix convert TARGET --to lmdb --store source",
    )
