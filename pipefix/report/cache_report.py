"""The documents of ``pipefix convert`` and ``pipefix verify``, and the progress line: the cache that was made, the damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pipefix.caches.convert import Converted, State
from pipefix.caches.estimate import Forecast
from pipefix.caches.verify import Checked
from pipefix.report.document import CommandLine, Document, Paragraph, Section, untitled
from pipefix.report.shown import Shown
from pipefix.vocabulary.quantity import counted, percent, rate, seconds, size, times
from pipefix.vocabulary.urls import is_remote

_NAMED = 8


def doing(state: State, a_second: float) -> str:
    """One line while it runs."""
    if not state.done:
        return state.phase
    of = f" of {state.samples:,}" if state.samples is not None else ""
    parts = [f"{state.phase}: {state.done:,}{of} samples", size(state.written)]
    if a_second:
        parts.append(rate(a_second))
    if state.read and state.written and state.read > state.written:
        parts.append(f"{percent(1 - state.written / state.read)} saved")
    return " · ".join(parts)


class _CacheResult(Shown):
    """A dataclass of the room of caches, whose fields are the figures."""

    __slots__ = ()

    def figures(self) -> Any:
        return msgspec.to_builtins(self, enc_hook=str, str_keys=True)


class ShownConversion(_CacheResult, Converted):
    """What a conversion came to, and how to use it."""

    def document(self, *, full: bool = False) -> Document:
        manifest, folder = self.manifest, self.url or str(self.folder)
        live = manifest.cut is not None and bool(manifest.cut.live)
        dataset = ", dataset=dataset" if manifest.recipe.store == "source" or live else ""
        code = f"from pipefix import CachedDataset\ndataset = CachedDataset({folder!r}{dataset})"
        lines = [*_made(self, folder), *_unseen(self.unseen_bytes)]
        use = Section(title="Use it:", blocks=[CommandLine(code)])
        return Document(target=folder, sections=[untitled(*map(Paragraph, lines)), use])


class ShownForecast(_CacheResult, Forecast):
    """What a conversion would come to."""

    def document(self, *, full: bool = False) -> Document:
        return Document(target="what a conversion would take", sections=[untitled(*map(Paragraph, _forecast(self)))])


class ShownCheck(_CacheResult, Checked):
    """What a verification found."""

    def document(self, *, full: bool = False) -> Document:
        cache = self.url or str(self.folder)
        return Document(target=cache, sections=[untitled(*_verified(self, cache))])

    def figures(self) -> Any:
        return super().figures() | {"sound": self.sound}


def _made(result: Converted, folder: str) -> Iterator[str]:
    manifest, recipe = result.manifest, result.manifest.recipe
    of = f" ({recipe.size} pixels)" if recipe.size else ""
    yield (
        f"{folder}: {counted(manifest.length, 'record')}, {recipe.store}{of} in {recipe.container}, {size(manifest.bytes)} in "
        f"{counted(len(manifest.parts), 'part')}."
    )
    if result.changed:
        yield f"The source has changed since. Add --update to make {counted(len(result.changed), 'part')} of it anew."
    elif result.finished:
        from_before = f", {counted(result.found, 'part')} of them kept from before" if result.found else ""
        yield f"Made in {seconds(result.seconds)}{from_before}."
    elif result.compared:
        yield "It was there already, and its source is unchanged: nothing was done."
    else:
        yield "It was there already: nothing was done, and whether its source has changed since was not looked at."
    source = manifest.source.bytes
    if source:
        yield f"Its source is {size(source)} in {counted(manifest.source.files, 'file')}; {_than(1 - manifest.bytes / source)}."
    cut = manifest.cut
    if cut is not None and cut.attribute is not None:
        are, run = ("are" if len(cut.kept) > 1 else "is"), ("run" if len(cut.live) > 1 else "runs")
        kept, live = ", ".join(cut.kept) or "Nothing", ", ".join(cut.live) or "nothing"
        yield f"{kept} of dataset.{cut.attribute} {are} stored; {live} {run} live."
    if manifest.bad:
        listed = f"; {folder}/quarantine.jsonl lists them" if recipe.on_bad == "quarantine" else ""
        yield f"{counted(manifest.bad, 'damaged sample')} left out{listed}."


def _unseen(unseen_bytes: float) -> Iterator[str]:
    if unseen_bytes:
        yield (
            f"A sample also reads about {size(unseen_bytes)} in ways that a source cache cannot answer (libraries that open files "
            "by themselves, maps and databases opened before): that goes on coming from the files. --store sample keeps it."
        )


def _than(saved: float) -> str:
    return f"the cache is {percent(saved)} smaller" if saved > 0 else f"the cache is {times(1 - saved)} as large"


def _forecast(result: Forecast) -> Iterator[str]:
    yield f"{counted(result.samples, 'sample')} would take {seconds(result.seconds)} and {size(result.bytes)} of disk."
    yield f"{size(result.free)} are free there."
    yield f"Told from {result.tried:,} that were converted for this, and removed again."
    if result.source_bytes:
        yield f"The source is {size(result.source_bytes)}; {_than(1 - result.bytes / result.source_bytes)}."
    if result.gain is not None:
        yield f"One process reads {times(result.gain)} the samples a second from it, with everything in memory."
    if result.kept or result.live:
        live = ", ".join(result.kept) or "none of the transforms"
        yield f"Stored: {live}; live: {', '.join(result.live) or 'nothing'}."
    yield from _unseen(result.unseen_bytes)
    if result.bytes > result.free:
        yield "That is more than the disk has room for."


def _verified(check: Checked, folder: str) -> Iterator[Paragraph | CommandLine]:
    manifest, recipe = check.manifest, check.manifest.recipe
    if check.damage:
        yield Paragraph(f"{folder} is damaged: {counted(len(check.damage), 'part')} of {len(manifest.parts)}.")
        lines = [f"part {number}: {line}" for number, wrong in check.damage.items() for line in wrong]
        yield from (Paragraph(f"- {line}") for line in lines[:_NAMED])
        if len(lines) > _NAMED:
            yield Paragraph(f"- and {len(lines) - _NAMED} more.")
    else:
        yield Paragraph(f"{folder} is sound: {recipe.store} in {recipe.container}, {counted(check.records, 'record')} checked.")
    if check.missing_count:
        yield Paragraph(f"{counted(check.missing_count, 'source file')} cannot be found any more.")
    if check.changed_count:
        some = ", ".join(check.changed[:3]) + (" …" if check.changed_count > 3 else "")
        yield Paragraph(f"{counted(check.changed_count, 'source file')} changed since: {some}.")
    if (check.damage or check.changed_count) and is_remote(folder):
        yield Paragraph("A cache in a store is not changed: make a new one elsewhere.")
    elif check.damage or check.changed_count:
        yield Paragraph("Make anew what is not as it was with:")
        yield CommandLine(manifest.update(Path(folder)))
