"""Imports the file or module that a target names, as Python itself would: this runs the user's code."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from pipefix.subject import failure
from pipefix.vocabulary.errors import NothingToProbe, TargetError

UNIMPORTABLE = "pipefix_target_"
"""Prefix of a module whose own name would hide another one. A spawned worker cannot import it by that name."""


def from_file(path: Path) -> ModuleType:
    """The module in ``path``. Its neighbours can be imported as they are by ``python FILE.py``, here and in spawned workers."""
    path = path.resolve()
    name, root = _name_of(path)
    if getattr(sys.modules.get(name), "__file__", None) == str(path):
        sys.modules.pop(name)
    _make_findable(path.parent, first=not _hides(path.stem, path))
    if root is not None:
        _make_findable(root, first=False)
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise TargetError(f"{str(path)!r} cannot be imported as Python: its name must end in .py.")
    with as_a_script(path), failure.as_target_error(f"Loading {str(path)!r}", advice=_advice, exits=NothingToProbe):
        if "." in name:
            importlib.import_module(name.rpartition(".")[0])
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module
        try:
            specification.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    return module


def from_name(location: str) -> ModuleType:
    """The module called ``location``, also where it lies in the working directory."""
    if not location or not all(part.isidentifier() for part in location.split(".")):
        raise TargetError(f"{location!r} is neither a file nor the name of a module.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    with as_a_script(location), failure.as_target_error(f"Importing {location!r}", advice=_advice):
        try:
            return importlib.import_module(location)
        except ModuleNotFoundError as error:
            if error.name and (location == error.name or location.startswith(f"{error.name}.")):
                advice = "Run it from the folder that holds the package, or name the file: FILE.py:NAME."
                raise TargetError(f"There is no module {error.name!r} on the Python path.", advice=advice) from error
            raise


def _name_of(path: Path) -> tuple[str, Path | None]:
    """The name to import a file by, and a folder that must be on the path for it.

    Its own where that hides nothing; as part of the outermost package around it where it imports relatively, or where its own name
    is another's.
    """
    depth = _relative_depth(path)
    if not depth and "." not in path.stem and not _hides(path.stem, path):
        return path.stem, None
    in_folder = path.stem.isidentifier() and path.parent.name.isidentifier() and not _hides(path.parent.name, path)
    if not depth and not in_folder:
        return UNIMPORTABLE + path.stem.replace(".", "_"), None
    root, folders = path.parent, list[str]()
    while root.name and (len(folders) < max(1, depth) or (root / "__init__.py").is_file()):
        folders.insert(0, root.name)
        root = root.parent
    return ".".join([*folders, path.stem]), root


def _relative_depth(path: Path) -> int:
    """How many folders up the file imports from (``from ..data import x``: 2); 0 where it imports nothing relatively."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # importing it will tell
        tree = ast.parse(path.read_bytes())
        return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    return 0


def _hides(name: str, path: Path) -> bool:
    """Whether a module of this name other than ``path`` can be imported, or already is."""
    loaded, specification = sys.modules.get(name), None
    if loaded is not None:
        places = [getattr(loaded, "__file__", None), *getattr(loaded, "__path__", ())]
    elif name in sys.stdlib_module_names:
        return True
    else:
        with suppress(ImportError, ValueError, AttributeError):
            specification = importlib.util.find_spec(name)
        if specification is None:
            return False
        places = [specification.origin, *(specification.submodule_search_locations or ())]
    return not any(place and path.is_relative_to(place) for place in places)


def _make_findable(folder: Path, *, first: bool) -> None:
    """Put a folder on the module search path: at its end where the folder would hide modules that others need."""
    if str(folder) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(folder))


@contextmanager
def as_a_script(path: Path | str | None) -> Iterator[None]:
    """``sys.argv`` as the file would see it alone, not the arguments of this program; None: as it is."""
    own_argv = sys.argv
    sys.argv = own_argv if path is None else [str(path)]
    try:
        yield
    finally:
        sys.argv = own_argv


def _advice(error: BaseException) -> str | None:
    if isinstance(error, SystemExit):
        guard = "The file ends the program while it is imported: put what runs it under if __name__ == '__main__'"
        return f"{guard}, or give the program its arguments: pipefix run --probe FILE.py ARGUMENTS"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return f"Install {package!r} into this Python ({sys.executable}), or run pipefix with the Python that has it."
    return None
