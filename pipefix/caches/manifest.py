"""The manifest of a cache (recipe, source, cut, parts), checked before anything else there is touched; and the blueprint.

A cache is a directory: ``manifest.json``, ``parts/`` and ``index/``. The manifest is written last and appears by a rename, so a
directory without one is no cache. It holds no file names (parts are named by their number) and nothing that could be executed, and
its last field is the digest of all that stands before it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from pipefix.caches.fingerprint import changed
from pipefix.caches.layout import MANIFEST, PLAN, building_of, data_of, keeps, marked, part_name
from pipefix.stores.store import is_store
from pipefix.vocabulary import versioned
from pipefix.vocabulary.commands import command, made_in_program, on_target
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.files import read_regular
from pipefix.vocabulary.version import VERSION

FORMAT, MAJOR = "pipefix.cache", 1
LARGEST = 256 * 1024 * 1024
_DIGEST = re.compile(rb'"digest": "([0-9a-f]{64})"\n}\n\Z')
_BLANK = b'"digest": ""\n}\n'
_NO_WORK = ("boot", "digest", "pipefix", "target", "part_samples", "classes", "source", "recipe")
"""Fields that make no other records; the last two are compared by themselves."""


class PartSizes(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the source's samples, and the files that hold their records."""

    start: int
    stop: int
    records: int
    """Samples of the range that have a record: those of damaged sources have none."""
    bytes: int
    """Size of the data file."""
    index_bytes: int
    index_crc: int
    """Of the index file, which holds the checksums of everything in the data file."""
    source_bytes: int = 0
    lists: str = ""
    """Digest of what the dataset's long lists held for these samples."""


class Part(PartSizes, frozen=True, kw_only=True):
    """What a manifest says of a part."""

    facts_crc: int
    generation: int = 0
    """How often this part was made anew by an update."""
    bad: list[int] = []
    """Samples without a record."""

    def data(self, number: int, container: str) -> Path:
        """Its data file, below the cache's directory."""
        return data_of(number, self.generation, container)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. Two conversions of one recipe from one source give the same bytes."""

    store: str
    container: str
    size: int | None = None
    """Pixels on the shorter side; None leaves images as they are."""
    quality: int = 90
    """Of JPEG and WebP."""
    on_bad: str = "raise"
    max_bad: float = 0.01
    """With this part of the samples damaged (and at least ten), the conversion ends."""
    tokenizer: str | None = None
    text: str | None = None
    """The column that is tokenised."""
    limit: int | None = None
    """Of a stream, how many samples are taken at most."""

    def is_same_work(self, other: Recipe) -> bool:
        """Whether the other's records serve this one: they are of good samples, however many damaged ones end a conversion. A
        tokenizer may have moved with its folder; what it does is compared by itself (`Column.state`)."""
        on_bad = self.on_bad if other.on_bad != "raise" else "raise"
        tokenizer = other.tokenizer if Path(self.tokenizer or "").name == Path(other.tokenizer or "").name else self.tokenizer
        return msgspec.structs.replace(self, max_bad=other.max_bad, on_bad=on_bad, tokenizer=tokenizer) == other

    def beside(self, other: Recipe) -> str:
        """It in words, and what of it is not as the other has it."""
        told = f"{self.store} in {self.container}"
        if (self.store, self.container) != (other.store, other.container):
            return told
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__ if name != "max_bad"]
        options = [f"--{name.replace('_', '-')} {was} (now {wanted})" for name, was, wanted in pairs if was != wanted]
        return f"{told}, {', '.join(options)}"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """How the dataset hands a sample to its transforms, and where in the sample their results come to lie."""

    keywords: list[str] = []
    """Names of keyword arguments, where it uses them (albumentations); none for positional ones."""
    leaves: list[list[int | str]] = []
    """For each argument the way to it in the sample: positions and keys."""
    joint: bool = False
    """The transforms get and give several values at once: (image, target)."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Where the transform list was cut: what came before is in the records, what comes after runs live."""

    attribute: str | None = None
    """The dataset's attribute that holds the list, such as ``transform``; None where none was found."""
    kept: list[str] = []
    live: list[str] = []
    call: Call | None = None
    state: str = ""
    """Digest of the operations whose results are stored: their code and their settings."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of ``rows``."""

    name: str
    type: str
    """Arrow's name for it, such as int64, string or list<int32>."""
    like: str = "scalar"
    """What the dataset gave: scalar, numpy (a number of NumPy's), list, tuple, array, tensor or image. Others: as Arrow has it."""
    state: str = ""
    """Of tokens, digest of the tokenizer that made them."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records came from, and what it looked like then."""

    root: str | None = None
    """The directory that holds the files; names in records are relative to it."""
    attributes: dict[str, str] = {}
    """Digests, by name, of the dataset's code and of what it held; its long lists, and what samples change, are left out."""
    volatile: list[str] = []
    """Long lists that change while samples are made."""
    bytes: int = 0
    files: int = 0


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What is converted into what: said alike by the plan of an unfinished cache and the manifest of a finished one."""

    format: str
    pipefix: str = VERSION
    """The version that wrote it."""
    target: str = ""
    """What the user named, for people to read: it is never loaded."""
    recipe: Recipe
    source: Source = Source()
    cut: Cut | None = None
    columns: list[Column] = []
    shape: str = "dict"
    """Of rows: what a sample was, a dict, a tuple or a single value."""
    classes: list[str] = []
    """Names of the classes, where the dataset had such a list."""
    part_samples: int = 0
    """Samples a part covers; the last one may cover fewer."""


class Manifest(Conversion, frozen=True, kw_only=True):
    format: str = f"{FORMAT}/{MAJOR}"
    stage: str = ""
    length: int
    """Records."""
    samples: int
    """Samples of the source, those without a record included."""
    checksum: str = "crc32"
    parts: list[Part]
    digest: str = ""

    @property
    def bytes(self) -> int:
        return sum(part.bytes + part.index_bytes for part in self.parts)

    @property
    def bad(self) -> int:
        return self.samples - self.length

    @property
    def names(self) -> set[str]:
        """What the files of its parts are called, without suffix."""
        return {part_name(number, part.generation) for number, part in enumerate(self.parts)}

    def refresh(self, place: Path | str) -> str:
        """What to do about damage, or about a source that is another one today."""
        if is_store(place):
            return "Make it anew elsewhere: pipefix convert TARGET --out s3://BUCKET/OTHER, and the other arguments as before"
        return f"Make anew what is not as it was: {self.update(Path(place))}"

    def update(self, folder: Path) -> str:
        """The command or call that makes anew what of the cache in ``folder`` is damaged, or not what its source is today."""
        recipe, inside = self.recipe, os.path.realpath(folder)
        usual = Recipe(store=recipe.store, container=recipe.container)
        options: dict[str, Any] = {"to": recipe.container, "store": recipe.store, "out": os.fspath(folder)}
        for name in recipe.__struct_fields__:
            if (value := getattr(recipe, name)) != getattr(usual, name):
                options[name] = f"{100 * value:g}%" if name == "max_bad" else value
        if self.target.endswith(" object>"):
            return on_target("convert", self.target, **options, update=True)
        place = os.path.realpath(self.target.partition(":")[0])
        of_stranger = any(os.path.commonpath([inside, path]) == inside for path in (place, os.getcwd()))
        is_unnamed = of_stranger or not self.target or made_in_program(self.target)
        return on_target("convert", "TARGET" if is_unnamed else self.target, **{**options, "out": folder}) + " --update"


class Blueprint(Conversion, frozen=True, kw_only=True):
    """All that the parts of a cache are made from, whichever process makes them: written before the first one, as ``plan.json``,
    and read again by the command that goes on after an interruption."""

    format: str = "pipefix.cache-plan/2"
    samples: int | None = None
    """None for a stream, whose end is not known beforehand."""
    part_samples: int = 1
    starts: list[int] = []
    """Of a forecast, where the parts begin that are made; otherwise they follow one another."""
    seeded: bool = False
    """Samples draw random numbers: each then starts from a seed of its own."""
    stop_at: int | None = None
    """After how many decodes a sample has read all that it reads; None runs it to its end."""
    by_path: bool = False
    """The decode that it stops at is handed a path, and would read that file."""
    maps: bool = True
    """Samples map files of their own into memory, which are kept whole."""
    boot: str = ""
    """Which start of the machine this was begun in: parts from before it may not have reached the disk."""
    digest: str = ""

    @property
    def parts(self) -> int | None:
        """How many there are; None for a stream."""
        if self.starts:
            return len(self.starts)
        return None if self.samples is None else -(-self.samples // self.part_samples)

    def range(self, number: int) -> tuple[int, int]:
        """The samples of a part; of a stream, which may end within it, as many as there can be."""
        start = self.starts[number] if self.starts else number * self.part_samples
        stop = start + self.part_samples
        return start, stop if self.samples is None else min(stop, self.samples)

    def differing(self, later: Blueprint) -> list[str]:
        """What of the two is not the same work, by its name in the dataset or in the blueprint; nothing, where parts made for this
        one serve the later one."""
        names = [name for name in self.__struct_fields__ if name not in _NO_WORK and getattr(self, name) != getattr(later, name)]
        names += ["source"] if self.source.root != later.source.root else []
        names += [] if later.recipe.is_same_work(self.recipe) else ["recipe"]
        return changed(self.source.attributes, later.source.attributes) + names


def sealed_text(value: msgspec.Struct) -> bytes:
    """As JSON for people, ending in the digest of everything before it. The struct's last field is its ``digest``."""
    text = versioned.text(msgspec.structs.replace(value, digest="")).encode()
    assert text.endswith(_BLANK), text[-40:]
    return text[: -len(_BLANK)] + f'"digest": "{hashlib.sha256(text).hexdigest()}"\n}}\n'.encode()


def unseal(text: bytes, kind: type[Any], where: Any) -> Any:
    digest_match = _DIGEST.search(text)
    if digest_match is None:
        raise CacheDamaged(f"{where} is cut short, or was edited.")
    if hashlib.sha256(text[: digest_match.start()] + _BLANK).hexdigest().encode() != digest_match[1]:
        raise CacheDamaged(f"{where} was changed after it was written: its digest does not fit.")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise CacheDamaged(f"{where} does not say what a cache says: {error}.") from error


def read(folder: Path) -> Manifest:
    """The manifest of a whole cache; raises `UnreadableFile` where there is none and `CacheDamaged` where it is wrong."""
    path = folder / MANIFEST
    try:
        return of_text(_text(path, folder), path)
    except CacheDamaged as error:
        advice = "Name a cache's directory, or make one: pipefix convert TARGET --to lmdb --out DIR"
        if marked(path):
            advice = f"Move {quote(str(folder))} elsewhere, and make it anew by the command that made it: pipefix convert"
        raise CacheDamaged(str(error), advice=advice) from error


def read_blueprint(path: Path) -> Blueprint:
    blueprint: Blueprint = unseal(read_regular(path, LARGEST), Blueprint, path)
    return blueprint


def of_text(text: bytes, path: Any) -> Manifest:
    """``path`` says where it was found."""
    format_match = re.match(rb'\s*{\s*"format":\s*"([\w.]+)/(\d{1,9})"', text[:200])
    if format_match is None or format_match[1].decode() != FORMAT:
        raise CacheDamaged(f"{path} is not the manifest of a pipefix cache, or its beginning is damaged.")
    if int(format_match[2]) > MAJOR:
        raise UnreadableFile(
            f"{path} is of format {FORMAT}/{int(format_match[2])}; this version of pipefix reads up to {FORMAT}/{MAJOR}.",
            advice="Update pipefix: pip install --upgrade pipefix",
        )
    manifest: Manifest = unseal(text, Manifest, path)
    _check(manifest, path)
    return manifest


def _text(path: Path, folder: Path) -> bytes:
    try:
        text = read_regular(path, LARGEST + 1)
        if len(text) > LARGEST:
            raise CacheDamaged(f"{path} is longer than any manifest.")
        return text
    except (FileNotFoundError, NotADirectoryError):
        what, advice = f"There is no folder {folder}.", "Name the folder that convert --out named."
        if marked(building_of(folder) / PLAN):
            what = f"{folder} is a cache that was never finished."
            advice = "The command that began it goes on where it was: pipefix convert, with the same arguments."
        elif folder.is_file():
            what = f"{folder} is a file, and a cache is a folder."
            advice += " A run file is shown by: pipefix show FILE"
        elif folder.exists():
            what = f"{folder} is not a pipefix cache: it has no {MANIFEST}."
            advice = "Make one: pipefix convert TARGET --to lmdb --out DIR"
        raise UnreadableFile(what, advice=advice) from None
    except OSError as error:
        raise UnreadableFile(
            f"{path} cannot be read: {error.strerror or error}.",
            advice="Check the path and its permissions: " + command("ls", "-l", folder),
        ) from error


def _check(manifest: Manifest, path: Any) -> None:
    """Figures that the rest of the room relies on."""
    parts = manifest.parts
    sound = (
        keeps(manifest.recipe.container, manifest.recipe.store)
        and manifest.checksum == "crc32"
        and manifest.length == sum(part.records for part in parts)
        and [0, *(part.stop for part in parts)] == [*(part.start for part in parts), manifest.samples]
    )
    for part in parts:
        sound = sound and part.stop - part.start == part.records + len(part.bad)
        sound = sound and min(part.start, part.records, part.bytes, part.index_bytes, part.generation) >= 0
        sound = sound and all(part.start <= index < part.stop for index in part.bad)
    if not sound:
        raise CacheDamaged(f"{path} contradicts itself: its parts, lengths or kinds do not fit together.")
