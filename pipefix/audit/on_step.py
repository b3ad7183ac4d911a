"""Audit rules about the training step: waits for the device, and work that the device need not do."""

from __future__ import annotations

from pipefix.audit.facts import AuditFacts, Message, rule
from pipefix.vocabulary.quantity import counted, size

MANY_WEIGHTS = 1_000_000
"""Weights from which the precision of products is worth a word."""
MOST_NAMED = 3
TINY = 16_384
"""Bytes that cross in less time than starting a copy takes (about 5 us, at 10 GB/s and more)."""


def _lines(counts: dict[str, int]) -> str:
    named = sorted(counts, key=lambda line: -counts[line])
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


@rule("step-waits", "warning", "a training step waits for the device: .item(), .cpu(), print of a tensor, a condition on one")
def step_waits(facts: AuditFacts) -> Message | None:
    if facts.step is None or not facts.step.waits:
        return None
    times = sum(facts.step.waits.values())
    return Message(
        f"Each step waits for the device {'once' if times == 1 else f'{times} times'}: {_lines(facts.step.waits)}. "
        "Nothing is queued meanwhile, and the device idles until the next work is.",
        "Keep results on the device and read them now and then: losses.append(loss.detach()) in each step, "
        "torch.stack(losses).mean().item() every 100 steps",
    )


@rule("blocking-copies", "warning", "a training step waits for its copies to the device, or copies from memory that is not pinned")
def blocking_copies(facts: AuditFacts) -> Message | None:
    step = facts.step
    if step is None or not (step.blocking or step.pageable):
        return None
    sentences = [f"Copies to the device are waited for: {_lines(step.blocking)}."] if step.blocking else []
    if step.pageable:
        alike = "Copies say non_blocking=True, and what they copy is not pinned, so that they hold the program up all the same"
        sentences.append(f"{alike}: {_lines(step.pageable)}.")
    advice_more = " and batch.to(device, non_blocking=True)" if step.blocking else ""
    return Message(" ".join(sentences), f"DataLoader(..., pin_memory=True){advice_more}")


@rule("tiny-batches", "note", f"a batch for the device holds less than {size(TINY)}")
def tiny_batches(facts: AuditFacts) -> Message | None:
    if facts.step is None or facts.batch is None or not 0 < facts.batch.bytes < TINY:
        return None
    return Message(
        f"A batch for the device holds {size(facts.batch.bytes)} in {counted(facts.batch.tensors, 'tensor')}: starting each copy "
        "and each kernel takes longer than what it does.",
        "A larger batch_size (pipefix tune tries some with --batch-sizes), as far as the training allows it",
    )


@rule("full-precision", "note", f"linear layers of {MANY_WEIGHTS:,} weights or more compute in float32 without TF32")
def full_precision(facts: AuditFacts) -> Message | None:
    if facts.step is None or facts.step.full_precision < MANY_WEIGHTS:
        return None
    return Message(
        f"Linear layers of {facts.step.full_precision:,} weights compute in float32, without TF32 or autocast.",
        'torch.set_float32_matmul_precision("high"), or torch.autocast("cuda", dtype=torch.bfloat16) around the forward pass; '
        "see that the loss falls as before",
    )
