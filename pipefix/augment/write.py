"""Writes a swap as code that stands alone: the functions that were checked, only those that the list needs, and the list itself."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from pipefix.augment import ops
from pipefix.augment.ops import Op
from pipefix.augment.split import Split
from pipefix.augment.torchvision_code import constructor

_HOME, _ROOM = "pipefix.", "augment"
_OWN = ("stream", "ops", "steps", "draw", "draw_colour", "geometry", "colour", "batch", "augment", "dali_graph", "dali")
_MODULES = ("kernels.reused", *(f"{_ROOM}.{name}" for name in _OWN))
"""In the order in which they are written."""
_TABLES = frozenset(("ALL_DRAWS", "DRAWS", "KERNELS"))
"""Names that the written file fills in by itself."""


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    tree: ast.Module

    @functools.cached_property
    def defined(self) -> dict[str, ast.stmt]:
        """Top-level names and the statements that make them."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            for name in _names(node):
                found[name] = node
        return found

    @functools.cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Names from our own modules: the module, and the name in it (empty for the module itself)."""
        found: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_HOME):
                home = (node.module or "").removeprefix(_HOME)
                for alias in node.names:
                    found[alias.asname or alias.name] = (f"{_ROOM}.{alias.name}", "") if home == _ROOM else (home, alias.name)
        return found

    @functools.cached_property
    def outside(self) -> dict[str, str]:
        """Names from other libraries, and the line that imports each."""
        found: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    shown = f" as {alias.asname}" if alias.asname else ""
                    found[alias.asname or alias.name.split(".")[0]] = f"import {alias.name}{shown}"
            elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("pipefix"):
                for alias in node.names:
                    shown = f" as {alias.asname}" if alias.asname else ""
                    found[alias.asname or alias.name] = f"from {node.module} import {alias.name}{shown}"
        return found


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id
            elif isinstance(target, ast.Tuple):
                yield from (one.id for one in target.elts if isinstance(one, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


@functools.cache
def module(name: str) -> Module:
    found: ModuleType = importlib.import_module(_HOME + name)
    source = inspect.getsource(found)
    return Module(name, source, ast.parse(source))


def gathered(roots: Iterable[tuple[str, str]]) -> str:
    """The definitions of (module, name) and all that they use, as one text without our imports."""
    kept: dict[str, set[str]] = {}
    waiting = list(roots)
    outside: set[str] = set()
    while waiting:
        home, name = waiting.pop()
        if name in kept.setdefault(home, set()) or name in _TABLES:
            continue
        kept[home].add(name)
        uses, lines = _used(module(home), module(home).defined[name])
        waiting += uses
        outside |= lines
    _check_names(kept)
    pieces = [_source(module(home), kept[home]) for home in _MODULES if home in kept]
    return _imports(outside) + "\n\n\n" + "\n\n\n".join(pieces)


def _imports(lines: Iterable[str]) -> str:
    """Sorted, the names of one module in one line."""
    plain = sorted(line for line in lines if line.startswith("import"))
    names: dict[str, list[str]] = {}
    for line in sorted(set(lines) - set(plain)):
        home, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(home, []).append(name)
    return "\n".join([*plain, *(f"from {home} import {', '.join(found)}" for home, found in sorted(names.items()))])


def _used(of: Module, node: ast.stmt) -> tuple[list[tuple[str, str]], set[str]]:
    uses: list[tuple[str, str]] = []
    lines: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            home, name = of.imported.get(part.value.id, ("", "?"))
            if home and not name:
                uses.append((home, part.attr))
        if not isinstance(part, ast.Name):
            continue
        if part.id in of.defined:
            uses.append((of.name, part.id))
        elif part.id in of.imported and of.imported[part.id][1]:
            uses.append(of.imported[part.id])
        elif part.id in of.outside:
            lines.add(of.outside[part.id])
    return uses, lines


def _check_names(kept: dict[str, set[str]]) -> None:
    homes: dict[str, str] = {}
    for home, names in kept.items():
        for name in names:
            if homes.setdefault(name, home) != home:
                raise ValueError(f"two modules define {name}: {homes[name]} and {home}")


def _source(of: Module, names: set[str]) -> str:
    """Definitions in their order, with the words that say which module a name is from left out."""
    modules = [alias for alias, (_, name) in of.imported.items() if not name]
    wanted = {id(of.defined[name]) for name in names}
    pieces: list[str] = []
    lines = of.source.splitlines()
    for place, node in enumerate(of.tree.body):
        if id(node) not in wanted:
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : node.end_lineno])
        after = of.tree.body[place + 1] if place + 1 < len(of.tree.body) else None
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text += "\n" + "\n".join(lines[after.lineno - 1 : after.end_lineno])
        for alias in modules:
            text = re.sub(rf"(?<![\w.]){alias}\.(?=[A-Za-z_])", "", text)
        pieces.append(text)
    return "\n\n\n".join(pieces)


# -- the files ---------------------------------------------------------------------------------------------------------


def code(split: Split, target: str, *, seed: int = 0) -> str:
    """The whole file for a split."""
    if target == "tensor":
        return _tensor(split)
    return _kornia(split, seed) if target == "kornia" else _dali(split, seed)


def _header(split: Split, what: str, use: str) -> str:
    stays = "\n".join(f"    {read.name}" for read in split.stays)
    kept = f"\nIn the dataset these stay, followed by the step to a tensor of bytes:\n\n{stays}\n" if split.stays else ""
    used = "\n".join(f"    {line}" if line else "" for line in use.splitlines())
    lead = f"{what} Written by `pipefix swap`; it needs no pipefix."
    return f'"""{lead}\n{kept}\nUse it so:\n\n{used}\n"""\n\nfrom __future__ import annotations\n\n'


def _at(name: str, *wanted: str) -> list[tuple[str, str]]:
    """Definitions of one of our modules."""
    return [(f"{_ROOM}.{name}", one) for one in wanted]


def _kinds(listed: Iterable[Op]) -> list[type[Op]]:
    found: dict[type[Op], None] = {}
    for op in listed:
        found[type(op)] = None
        for inner in ops.within(op):
            found |= dict.fromkeys(_kinds(inner))
    return list(found)


def _drawers(kinds: list[type[Op]]) -> dict[str, tuple[str, str]]:
    """Each kind of operation, and where the function that draws it is."""
    from pipefix.augment.draw_colour import ALL_DRAWS

    found = {}
    for kind in kinds:
        draw = ALL_DRAWS[kind]
        found[kind.__name__] = (draw.__module__.removeprefix(_HOME), draw.__name__)
    return found


_STEPS: dict[str, tuple[str, ...]] = {
    "draw_jitter": ("brightness", "contrast", "saturation", "hue"),
    "draw_distort": ("brightness", "contrast", "saturation", "hue", "permute"),
    "draw_permutation": ("permute",),
    "draw_horizontal_flip": ("hflip",),
    "draw_vertical_flip": ("vflip",),
    "draw_rotation": ("rotate",),
    "draw_random_crop": ("pad", "crop"),
    "draw_zoom_out": ("pad",),
    "draw_random_resize": ("resize",),
    "draw_shortest_size": ("resize",),
    "draw_scale_jitter": ("resize",),
    "draw_blur": ("gaussian_blur",),
    "draw_noise": ("gaussian_noise",),
    "draw_erasing": ("erase",),
}
"""Steps of functions that are not named for their one step."""
_POLICY = (
    "affine",
    "rotate",
    "brightness",
    "saturation",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
    "invert",
)


def _kernels(drawers: Iterable[str]) -> dict[str, tuple[str, str]]:
    from pipefix.augment.kornia import KERNELS

    names: dict[str, None] = {}
    for draw in drawers:
        if draw in ("draw_rand_augment", "draw_auto_augment", "draw_aug_mix"):
            names |= dict.fromkeys(_POLICY)
        names |= dict.fromkeys(_STEPS.get(draw, (draw.removeprefix("draw_"),)))
    return {name: (KERNELS[name].__module__.removeprefix(_HOME), KERNELS[name].__name__) for name in names if name in KERNELS}


def _listed(split: Split) -> str:
    return "OPS = (\n" + "".join(f"    {op!r},\n" for op in split.ops) + ")\n"


def _table(name: str, pairs: Iterable[tuple[str, str]], kind: str) -> str:
    return f"{name}: {kind} = {{\n" + "".join(f"    {key}: {value},\n" for key, value in pairs) + "}\n"


_ENTRY_KORNIA = '''

def augmentation(seed: int = {seed}, **settings: Any) -> Augment:
    """The module. Call it with (images, labels), on their device."""
    return Augment(OPS, kernels=KERNELS, draws=DRAWS, seed=seed, first={kept}, **settings)
'''
_ENTRY_DALI = '''

def batches(source: Any, seed: int = {seed}, **settings: Any) -> DaliLoader:
    """Batches of an epoch, again and again."""
    return DaliLoader(source, GRAPH, seed=seed, **settings)
'''


def _kornia(split: Split, seed: int) -> str:
    drawers = _drawers(_kinds(split.ops))
    kernels = _kernels(name for _, name in drawers.values())
    roots = [*_at("augment", "Augment"), *_at("ops", "Op", *drawers), *kernels.values(), *drawers.values()]
    kept = sum(len(read.ops) for read in split.stays)
    use = (
        "augment = augmentation()\n\nfor images, labels in loader:\n"
        '    images, labels = augment((images.to("cuda"), labels.to("cuda")))'
    )
    parts = [
        _header(split, "The augmentation as one module for whole batches, on any device.", use),
        gathered(roots),
        "\n\n\n",
        _table("KERNELS", ((repr(name), where[1]) for name, where in kernels.items()), "Kernels"),
        "\n",
        _table("DRAWS", ((kind, where[1]) for kind, where in drawers.items()), "Draws"),
        "\n",
        _listed(split),
        _ENTRY_KORNIA.format(seed=seed, kept=kept),
    ]
    return "".join(parts)


def _dali(split: Split, seed: int) -> str:
    from pipefix.augment.dali_plan import plan

    made = plan(split.ops)
    if made.rest:
        raise ValueError(
            f"DALI does not compute {type(made.rest[0]).__name__} ({made.why}), so there is no code of DALI's alone for this list."
        )
    drawers = _drawers(_kinds(made.listed))
    roots = [*_at("dali", "DaliLoader", "Graph"), *_at("ops", *drawers), *drawers.values()]
    use = (
        'loader = batches(files, labels=labels, batch_size=256, shuffle=True, device="cuda")\n\n'
        "for epoch in range(90):\n    loader.set_epoch(epoch)\n    for images, labels in loader:\n        ..."
    )
    parts = [
        _header(split, "The pipeline in DALI, from files to batches.", use),
        gathered(roots),
        "\n\n\n",
        _table("ALL_DRAWS", ((kind, where[1]) for kind, where in drawers.items()), "Draws"),
        "\n",
        f"GRAPH = {made!r}\n",
        _ENTRY_DALI.format(seed=seed),
    ]
    return "".join(parts)


def _tensor(split: Split) -> str:
    lines = [text for op in split.ops if (text := constructor(op))]
    use = "for images, labels in loader:\n    images = augment(images)"
    body = "".join(f"        {line},\n" for line in lines) or "        v2.Identity(),\n"
    return (
        _header(split, "The augmentation with torchvision's own transforms, on tensors.", use)
        + "import torch\nfrom torchvision.transforms import InterpolationMode, v2\n\n"
        + f"TRANSFORM = v2.Compose(\n    [\n{body}    ]\n)\n\n\n"
        + "def augment(images: torch.Tensor) -> torch.Tensor:\n"
        + '    """A batch; every picture draws its own parameters."""\n'
        + "    return torch.stack([TRANSFORM(image) for image in images])\n"
    )
