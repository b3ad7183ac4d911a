"""What ``pipefix convert`` and ``pipefix verify`` have to say: how far it is, what was made, what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipefix.caches.manifest import Manifest
from pipefix.report.columns import Paint, for_terminal
from pipefix.report.wording import counted
from pipefix.vocabulary.quantity import percent, rate, seconds, size, times
from pipefix.vocabulary.urls import is_far

_NAMED = 8


def doing(phase: str, *, done: int, samples: int | None, written: int, read: int, a_second: float) -> str:
    """One line while it runs."""
    if not done:
        return phase
    of = f" of {samples:,}" if samples is not None else ""
    parts = [f"{phase}: {done:,}{of} samples", size(written)]
    if a_second:
        parts.append(rate(a_second))
    if read and written and read > written:
        parts.append(f"{percent(1 - written / read)} saved")
    return " · ".join(parts)


@for_terminal
def made(
    manifest: Manifest, folder: str, paint: Paint, *, took: float, new: int, found: int, changed: Sequence[int] = (),
    unseen_bytes: float = 0,
) -> Iterator[str]:  # fmt: skip
    """What a conversion came to, and how to use it. Code is never broken."""
    for line in (*_made(manifest, folder, took, new, found, changed), *_unseen(unseen_bytes)):
        yield from paint.paragraph(line)
    yield from _usage(manifest, folder)


def _made(manifest: Manifest, folder: str, took: float, new: int, found: int, changed: Sequence[int]) -> Iterator[str]:
    recipe = manifest.recipe
    of = f" ({recipe.size} pixels)" if recipe.size else ""
    yield (
        f"{folder}: {counted(manifest.length, 'record')}, {recipe.store}{of} in {recipe.container}, {size(manifest.bytes)} in "
        f"{counted(len(manifest.parts), 'part')}."
    )
    if not new and changed:
        yield (
            f"The source has changed since: {counted(len(changed), 'part')} of {len(manifest.parts)} would be made anew. "
            "Add --update to do that."
        )
    elif not new:
        yield "It was there already, and its source is unchanged: nothing was done."
    else:
        kept = f", {counted(found, 'part')} of them kept from before" if found else ""
        yield f"Made in {seconds(took)}{kept}."
    source = manifest.source.bytes
    if source:
        saved = 1 - manifest.bytes / source
        yield f"Its source is {size(source)} in {counted(manifest.source.files, 'file')}; {_than(saved)}."
    yield from _cut(manifest)
    if manifest.bad:
        listed = f"; {folder}/quarantine.jsonl lists them" if recipe.on_bad == "quarantine" else ""
        yield f"{counted(manifest.bad, 'damaged sample')} left out{listed}."


def _unseen(unseen_bytes: float) -> Iterator[str]:
    if unseen_bytes:
        yield (
            f"A sample also reads about {size(unseen_bytes)} in ways that a source cache cannot answer (libraries that open files "
            "by themselves, maps and databases opened before): that goes on coming from the files. --store sample keeps it."
        )


def _usage(manifest: Manifest, folder: str) -> Iterator[str]:
    yield ""
    yield "Use it:"
    yield "    from pipefix import CachedDataset"
    yield f"    dataset = CachedDataset({folder!r}{', dataset=dataset' if _needs_dataset(manifest) else ''})"


def _than(saved: float) -> str:
    return f"the cache is {percent(saved)} smaller" if saved > 0 else f"the cache is {times(1 - saved)} as large"


def _needs_dataset(manifest: Manifest) -> bool:
    return manifest.recipe.store == "source" or (manifest.cut is not None and bool(manifest.cut.live))


def _cut(manifest: Manifest) -> Iterator[str]:
    cut = manifest.cut
    if cut is not None and cut.attribute is not None:
        kept = (
            f"{', '.join(cut.kept)} of dataset.{cut.attribute} is stored"
            if cut.kept
            else f"nothing of dataset.{cut.attribute} is stored"
        )
        yield f"{kept[0].upper()}{kept[1:]}; {', '.join(cut.live) if cut.live else 'nothing'} runs live."


@for_terminal
def predicted(
    *, samples: int, tried: int, cache_bytes: float, source_bytes: float, took: float, gain: float | None, free: int,
    kept: Sequence[str] = (), live: Sequence[str] = (), unseen_bytes: float = 0, paint: Paint,
) -> Iterator[str]:  # fmt: skip
    """What a conversion would come to."""
    lines = [
        f"{counted(samples, 'sample')} would take {seconds(took)} and {size(cache_bytes)} of disk ({size(free)} are free).",
        f"Told from {tried:,} that were converted for this, and removed again.",
    ]
    if source_bytes:
        lines.append(f"The source is {size(source_bytes)}; {_than(1 - cache_bytes / source_bytes)}.")
    if gain is not None:
        lines.append(f"One process reads {times(gain)} the samples a second from it, with everything in memory.")
    if kept or live:
        lines.append(f"Stored: {', '.join(kept) or 'none of the transforms'}; live: {', '.join(live) or 'nothing'}.")
    lines += _unseen(unseen_bytes)
    if cache_bytes > free:
        lines.append("That is more than the disk has room for.")
    for line in lines:
        yield from paint.paragraph(line)


@for_terminal
def checked(
    manifest: Manifest, folder: str, paint: Paint, *, records: int, damage: Mapping[int, Sequence[str]], changed: Sequence[str],
    changed_count: int, missing_count: int, copy_damaged: bool = False,
) -> Iterator[str]:  # fmt: skip
    """What a verification found."""
    lines = _of_the_manifest(manifest, folder, copy_damaged=copy_damaged, otherwise_sound=not damage)
    lines += _checked(manifest, folder, records, damage, changed, changed_count, missing_count, copy_damaged)
    for line in lines:
        yield from paint.paragraph(line)


def _of_the_manifest(manifest: Manifest, folder: str, *, copy_damaged: bool, otherwise_sound: bool) -> list[str]:
    if not copy_damaged:
        return []
    rest = "; the cache itself can be used as ever" if otherwise_sound else ""
    return [f"The copy of its manifest is damaged{rest}. Write it anew with: {manifest.update(Path(folder))}"]


def _checked(
    manifest: Manifest, folder: str, records: int, damage: Mapping[int, Sequence[str]], changed: Sequence[str], changed_count: int,
    missing_count: int, copy_damaged: bool,
) -> Iterator[str]:  # fmt: skip
    recipe = manifest.recipe
    if damage:
        yield f"{folder} is damaged: {counted(len(damage), 'part')} of {len(manifest.parts)}."
        told = [(number, line) for number, lines in damage.items() for line in lines]
        for number, line in told[:_NAMED]:
            yield f"  part {number}: {line}"
        if len(told) > _NAMED:
            yield f"  and {len(told) - _NAMED} more."
        if not is_far(folder):
            yield f"Mend it from its source with: {manifest.update(Path(folder))}"
    else:
        whole = "" if records >= manifest.length else f" of {manifest.length:,}"
        what = f"{folder} is" if not copy_damaged else "Its records are"
        yield f"{what} sound: {recipe.store} in {recipe.container}, {records:,}{whole} records checked."
    if missing_count:
        yield f"{counted(missing_count, 'source file')} are not there any more."
    if changed_count:
        some = ", ".join(changed[:3])
        more = " …" if changed_count > 3 else ""
        yield f"{counted(changed_count, 'source file')} changed since: {some}{more}."
        yield f"Bring the cache up to date with: {manifest.update(Path(folder))}"


def as_dict(value: Any, **more: Any) -> dict[str, Any]:
    """For --json."""
    import dataclasses

    import msgspec

    plain_value: dict[str, Any] = msgspec.to_builtins(
        {one.name: getattr(value, one.name) for one in dataclasses.fields(value)} | more, enc_hook=str, str_keys=True
    )
    return plain_value
