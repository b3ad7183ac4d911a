"""What ``pipefix convert`` and ``pipefix verify`` say: the progress line, the cache that was made, the damage that was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipefix.report.document import CommandLine, Document, Paragraph, Section
from pipefix.report.wording import counted
from pipefix.vocabulary.quantity import percent, rate, seconds, size, times
from pipefix.vocabulary.urls import is_far

if TYPE_CHECKING:
    from pipefix.caches.convert import Converted
    from pipefix.caches.estimate import Forecast
    from pipefix.caches.manifest import Manifest
    from pipefix.caches.verify import Checked

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


def converted(result: Converted) -> Document:
    """What a conversion came to, and how to use it."""
    manifest, folder = result.manifest, result.url or str(result.folder)
    live = manifest.cut is not None and bool(manifest.cut.live)
    dataset = ", dataset=dataset" if manifest.recipe.store == "source" or live else ""
    code = f"from pipefix import CachedDataset\ndataset = CachedDataset({folder!r}{dataset})"
    lines = [*_made(result, folder), *_unseen(result.unseen_bytes)]
    use = Section(title="Use it:", blocks=[CommandLine(code)])
    return Document(sections=[Section(title="", blocks=[Paragraph(line) for line in lines]), use])


def _made(result: Converted, folder: str) -> Iterator[str]:
    manifest, recipe = result.manifest, result.manifest.recipe
    of = f" ({recipe.size} pixels)" if recipe.size else ""
    yield (
        f"{folder}: {counted(manifest.length, 'record')}, {recipe.store}{of} in {recipe.container}, {size(manifest.bytes)} in "
        f"{counted(len(manifest.parts), 'part')}."
    )
    if not result.made and result.changed:
        yield (
            f"The source has changed since: {counted(len(result.changed), 'part')} of {len(manifest.parts)} would be made anew. "
            "Add --update to do that."
        )
    elif not result.made:
        yield "It was there already, and its source is unchanged: nothing was done."
    else:
        kept = f", {counted(result.found, 'part')} of them kept from before" if result.found else ""
        yield f"Made in {seconds(result.seconds)}{kept}."
    source = manifest.source.bytes
    if source:
        yield f"Its source is {size(source)} in {counted(manifest.source.files, 'file')}; {_than(1 - manifest.bytes / source)}."
    yield from _cut(manifest)
    if manifest.bad:
        listed = f"; {folder}/quarantine.jsonl lists them" if recipe.on_bad == "quarantine" else ""
        yield f"{counted(manifest.bad, 'damaged sample')} left out{listed}."


def _cut(manifest: Manifest) -> Iterator[str]:
    cut = manifest.cut
    if cut is not None and cut.attribute is not None:
        kept = ", ".join(cut.kept) or "Nothing"
        yield f"{kept} of dataset.{cut.attribute} is stored; {', '.join(cut.live) or 'nothing'} runs live."


def _unseen(unseen_bytes: float) -> Iterator[str]:
    if unseen_bytes:
        yield (
            f"A sample also reads about {size(unseen_bytes)} in ways that a source cache cannot answer (libraries that open files "
            "by themselves, maps and databases opened before): that goes on coming from the files. --store sample keeps it."
        )


def _than(saved: float) -> str:
    return f"the cache is {percent(saved)} smaller" if saved > 0 else f"the cache is {times(1 - saved)} as large"


def forecast(result: Forecast) -> Document:
    """What a conversion would come to."""
    lines = [
        f"{counted(result.samples, 'sample')} would take {seconds(result.seconds)} and {size(result.bytes)} of disk.",
        f"{size(result.free)} are free there.",
        f"Told from {result.tried:,} that were converted for this, and removed again.",
    ]
    if result.source_bytes:
        lines.append(f"The source is {size(result.source_bytes)}; {_than(1 - result.bytes / result.source_bytes)}.")
    if result.gain is not None:
        lines.append(f"One process reads {times(result.gain)} the samples a second from it, with everything in memory.")
    if result.kept or result.live:
        kept = ", ".join(result.kept) or "none of the transforms"
        lines.append(f"Stored: {kept}; live: {', '.join(result.live) or 'nothing'}.")
    lines += _unseen(result.unseen_bytes)
    if result.bytes > result.free:
        lines.append("That is more than the disk has room for.")
    return Document(sections=[Section(title="", blocks=[Paragraph(line) for line in lines])])


def verified(check: Checked) -> Document:
    """What a verification found."""
    return Document(sections=[Section(title="", blocks=[*_verified(check, check.url or str(check.folder))])])


def _verified(check: Checked, folder: str) -> Iterator[Paragraph | CommandLine]:
    manifest, recipe = check.manifest, check.manifest.recipe
    if check.damage:
        yield Paragraph(f"{folder} is damaged: {counted(len(check.damage), 'part')} of {len(manifest.parts)}.")
        lines = [f"part {number}: {line}" for number, wrong in check.damage.items() for line in wrong]
        yield from (Paragraph(f"- {line}") for line in lines[:_NAMED])
        if len(lines) > _NAMED:
            yield Paragraph(f"- and {len(lines) - _NAMED} more.")
        if not is_far(folder):
            yield Paragraph("Mend it from its source with:")
            yield CommandLine(manifest.update(Path(folder)))
    else:
        yield Paragraph(f"{folder} is sound: {recipe.store} in {recipe.container}, {check.records:,} records checked.")
    if check.missing_count:
        yield Paragraph(f"{counted(check.missing_count, 'source file')} cannot be found any more.")
    if check.changed_count:
        some = ", ".join(check.changed[:3]) + (" …" if check.changed_count > 3 else "")
        yield Paragraph(f"{counted(check.changed_count, 'source file')} changed since: {some}.")
        yield Paragraph("Bring the cache up to date with:")
        yield CommandLine(manifest.update(Path(folder)))


def as_dict(value: Any, **more: Any) -> dict[str, Any]:
    """For --json."""
    import dataclasses

    import msgspec

    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    plain: dict[str, Any] = msgspec.to_builtins(fields | more, enc_hook=str, str_keys=True)
    return plain
