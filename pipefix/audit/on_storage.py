"""The audit rule about where the files lie: on a network, or in an object store."""

from __future__ import annotations

from pipefix.audit.facts import AuditFacts, Message, ObjectStoreFacts, rule
from pipefix.vocabulary.quantity import seconds, size


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
    return Message(
        f"Samples are read from {facts.store.name}: {_cost(facts.store)}.",
        "Keep what they read on a local disk: pipefix convert TARGET --to lmdb --store source",
    )


def _cost(store: ObjectStoreFacts) -> str:
    if store.request_s is None or store.requests is None:
        return "each object costs a round trip at least"
    rate = f"; one reader gets {size(store.bytes_per_s)}/s" if store.bytes_per_s is not None else ""
    return f"a request takes {seconds(store.request_s)}, and a sample makes {store.requests:.1f}{rate}"
