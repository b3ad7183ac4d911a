"""Nothing is half there: what is added in one place has its counterpart in the others. Found by walking the package."""

from __future__ import annotations

import ast
import inspect
import re

from pipefix.cli.command import find
from pipefix.vocabulary import errors
from pipefix.vocabulary.stage import Stage
from tests.architecture import house

EXIT_CODES = {1, 2, 3, 4, 5, 6, 130}
"""Those of the command line's contract."""


def test_every_command_explains_itself_in_a_sentence() -> None:
    first = {command: (inspect.getdoc(module) or "").split("\n")[0] for command, module in find().items()}
    assert not {command: said for command, said in first.items() if not said.endswith(".") or len(said) > 120}


def test_every_error_brings_its_own_advice() -> None:
    kinds = house.subclasses("PipefixError").items()
    assert not [name for name, (_, node) in kinds if "default_advice" not in assigned(node)], "these need a default_advice"


def test_every_error_has_an_exit_code_of_the_contract() -> None:
    codes = {name: assigned(node).get("exit_code") for name, (_, node) in house.subclasses("PipefixError").items()}
    assert not [name for name, code in codes.items() if code is None], "these need an exit_code of their own"
    assert not [name for name, code in codes.items() if code is not None and ast.literal_eval(code) not in EXIT_CODES]


def assigned(node: ast.ClassDef) -> dict[str, ast.expr]:
    """What a class body sets."""
    pairs: dict[str, ast.expr] = {}
    for line in node.body:
        if isinstance(line, ast.Assign):
            pairs.update({target.id: line.value for target in line.targets if isinstance(target, ast.Name)})
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            pairs[line.target.id] = line.value
    return pairs


def test_the_contract_has_an_error_for_each_exit_code() -> None:
    codes = {kind.exit_code for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.PipefixError)}
    assert codes == EXIT_CODES


def test_every_seam_has_its_two_names_and_a_test() -> None:
    """A module of the hooks room that cuts a library says which one, and how, and is among those that are installed."""
    from pipefix.hooks import install

    folders = [house.ROOT / "tests" / "hooks", house.ROOT / "tests" / "frameworks"]
    tests = "\n".join(f"{path.stem}\n{path.read_text(encoding='utf-8')}" for folder in folders for path in folder.glob("*.py"))
    for name, module in house.modules().items():
        defined = {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef)}
        if module.room != "hooks" or "install" not in defined or name.endswith(".simple_calls"):
            continue
        lines = [node for node in module.tree.body if isinstance(node, ast.Assign)]
        names = {target.id for line in lines for target in line.targets if isinstance(target, ast.Name)}
        assert "LIBRARY" in names, f"{name} does not say which library it cuts"
        word = name.rpartition(".")[2]
        assert word in install.MODULES, f"{name} is installed by nobody"
        assert re.search(rf"(\b|_){word}\b", tests), f"no test names the hook {word}"


def test_every_stage_of_a_pipeline_is_replaced_by_some_experiment() -> None:
    """TRANSFER and STEP are measured by the consumer, with events; every other stage has an arm that does without it."""
    from pipefix.measurement import experiments

    table = [value for value in vars(experiments).values() if isinstance(value, experiments.Experiment)]
    replaced = {stage for experiment in table for stage in experiment.replaces}
    assert replaced >= set(Stage) - {Stage.TRANSFER, Stage.STEP}


def test_names_of_remedies_and_rules_are_their_own() -> None:
    """They are kept in run files: two things of one name could not be told apart."""
    from pipefix.audit.facts import every_rule
    from pipefix.plan.remedy import all_remedies

    for names in ([kind.id for kind in all_remedies()], [rule.id for rule in every_rule()]):
        assert len(names) == len(set(names))


def test_no_advice_names_a_command_that_does_not_exist() -> None:
    planned = {"convert", "swap", "tune", "fix", "verify", "watch"}
    absent = "|".join(sorted(planned - find().keys()))
    promised = [
        f"{name}: {node.value!r}"
        for name, module in house.modules().items()
        for node in module.nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and absent
        and re.search(rf"\bpipefix ({absent})\b", node.value)
    ]
    assert not promised


def test_every_page_of_the_documentation_is_in_its_index_and_in_the_sites_menu() -> None:
    index = (house.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    menu = (house.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.name for page in (house.ROOT / "docs").glob("*.md") if page.name != "index.md"]
    assert not [name for name in pages if f"({name})" not in index or f" {name}\n" not in menu]


def test_every_folder_of_tests_is_a_rooms_or_explained() -> None:
    explained = (house.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.name for path in (house.ROOT / "tests").iterdir() if any(path.glob("*.py"))}
    assert not [name for name in folders - house.rooms() if f"`tests/{name}`" not in explained]
