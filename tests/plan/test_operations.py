"""What operations are, by their names, and in which order a sample meets them."""

from __future__ import annotations

import pytest

from pipefix.plan.operations import is_fixed, operations_of
from pipefix.vocabulary.stage import Stage
from tests.plan.builders import JPEGS, World


def augmented(*names: str) -> World:
    return JPEGS.but(ops={Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: names})


def fixed(world: World) -> list[str]:
    return [op.name for op in operations_of(world.measurement(), world.diagnosis()).fixed]


FIXED = ("Resize", "F.resize", "v2.F.to_dtype", "PIL.Image.convert", "cv2.resize", "Normalize", "Compose")
RANDOM = ("RandomResizedCrop", "ColorJitter", "F.crop", "F.hflip", "augment_twice", "HorizontalFlip", "Lambda(f)")


@pytest.mark.parametrize("name", [*FIXED, *RANDOM])
def test_what_is_not_known_to_give_the_same_may_be_random(name: str) -> None:
    assert is_fixed(name) == (name in FIXED)


@pytest.mark.parametrize(
    ("name", "picture"),
    [("cv2.imread", True), ("PIL.Image.load", True), ("SimpleITK.ReadImage", False), ("SimpleITK.GetArrayFromImage", False)],
)
def test_volumes_are_no_pictures(name: str, picture: bool) -> None:
    world = JPEGS.but(ops={Stage.DECODE: (name,)})
    assert bool(operations_of(world.measurement(), world.diagnosis()).pictures) == picture


def test_kept_up_to_the_first_that_may_be_random() -> None:
    world = augmented("Compose", "Resize", "CenterCrop", "RandomHorizontalFlip", "ToTensor")
    assert fixed(world) == ["Resize", "CenterCrop"]
    assert operations_of(world.measurement(), world.diagnosis()).first_random == "RandomHorizontalFlip"


def test_order_is_that_of_the_trace_not_of_the_cost() -> None:
    world = augmented("Resize", "RandomErasing")
    diagnosis = world.diagnosis()
    cost = diagnosis.stages[Stage.AUGMENT]
    diagnosis.stages[Stage.AUGMENT] = type(cost)(**{**vars(cost), "ops": cost.ops[::-1]})
    assert [op.name for op in operations_of(world.measurement(), diagnosis).fixed] == ["Resize"]


def test_code_between_operations_is_no_operation_unless_it_takes_its_time() -> None:
    name = "own code on decoded values"
    world = augmented(name, "Resize")
    assert fixed(world) == []
    diagnosis = world.diagnosis()
    cost = diagnosis.stages[Stage.AUGMENT]
    little = tuple(type(op)(op.name, 0.00001 if op.name == name else 0.003, None, 1.0) for op in cost.ops)
    diagnosis.stages[Stage.AUGMENT] = type(cost)(**{**vars(cost), "ops": little})
    assert [op.name for op in operations_of(world.measurement(), diagnosis).fixed] == ["Resize"]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("tokenizers.Tokenizer.encode", True),
        ("tiktoken.Encoding.encode", True),
        ("sentencepiece.encode", True),
        ("tokenizer.encode_plus", True),
        ("self.bpe.encode of youtokentome at data.py:7", True),
        ("WordPiece.encode", False),  # methods and functions of the user's
        ("Corpus.tokenize", False),
        ("bpe", False),
    ],
)
def test_own_code_that_tokenises_is_no_librarys(name: str, is_one: bool) -> None:
    world = JPEGS.but(ops={Stage.DECODE: (name,)})
    assert bool(operations_of(world.measurement(), world.diagnosis()).tokenisers) is is_one


def test_pictures_and_tokenisers() -> None:
    world = JPEGS.but(ops={Stage.DECODE: ("cv2.imdecode", "tokenizer()"), Stage.AUGMENT: ("F.to_tensor", "Rotate")})
    operations = operations_of(world.measurement(), world.diagnosis())
    assert operations.pictures == ("cv2.imdecode",)
    assert [op.name for op in operations.tokenisers] == ["tokenizer()"]
    assert not operations.all_fixed
