"""Imported by Python when a process of the user's program starts: has `observing` installed once the program imports torch.

Until then it costs what an import of this file costs: it imports nothing that Python has not loaded already.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_pipefix_observing"


def _asked() -> dict[str, str]:
    """What `launch` asks for, in a file beside this one; read now, while it is there."""
    try:
        with open(os.path.join(_HERE, "asked"), "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")]
    except OSError:
        return {}
    return dict(zip(words[::2], words[1::2], strict=True))


_ASKED = _asked()
_FOLDER = "" if os.environ.get("PIPEFIX") == "0" else _ASKED.get("folder", "")


def _remove_from_path() -> None:
    """The program's own ``sys.path`` is as without us; its children find us through the environment."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or os.curdir) != _HERE]


def _import_the_users_own() -> None:
    """The ``sitecustomize`` that Python would have imported without us, errors included."""
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


class _Awaiting:
    """A finder that finds nothing: modules of torch that are looked for are told what to call once they have been imported."""

    def __init__(self) -> None:
        self.install = {"torch.utils.data.dataloader": "install_loaders", "torch.optim.optimizer": "install_training",
                        "torchdata.nodes.loader": "install_nodes"}  # fmt: skip

    def come_first(self) -> None:
        """A finder before this one that answers by itself would keep modules from it."""
        if self in sys.meta_path[1:]:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        self.come_first()
        if name not in self.install:
            return None
        install = self.install.pop(name)
        if not self.install:
            sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_observe(module: "Any") -> None:
            try:
                execute(module)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next  # without this frame
                raise
            _without_harm(_observe, install, module)

        spec.loader.exec_module = execute_and_observe  # type: ignore[method-assign]
        return spec


def _observe(install: str, module: "Any") -> None:
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    # Under a name of its own: the program's Python may have no pipefix, or another one.
    folder = _ASKED["observing"]
    spec = spec_from_file_location(_PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    if _PACKAGE not in sys.modules and spec is not None:
        sys.modules[_PACKAGE] = module_from_spec(spec)
    getattr(import_module(f"{_PACKAGE}.patches"), install)(module, _ASKED)


def _without_harm(do: "Any", *arguments: "Any") -> None:
    """An error of ours never ends the program: it goes on unobserved."""
    try:
        do(*arguments)
    except Exception as error:  # noqa: BLE001 - see above
        import json
        import platform
        from contextlib import suppress

        note = {"event": "error", "error": f"pipefix could not look into a process of the program: {type(error).__name__}: {error}"}
        name = f"events-{platform.node()}-{os.getpid()}.jsonl"
        with suppress(OSError), open(os.path.join(_FOLDER, name), "a", encoding="utf-8") as file:
            for line in ({"event": "process", "at": 0.0}, note):
                file.write(json.dumps(line) + "\n")


_without_harm(_remove_from_path)
_awaiting = _Awaiting()
if _FOLDER:
    sys.meta_path.insert(0, _awaiting)
try:
    _import_the_users_own()
finally:
    _awaiting.come_first()
