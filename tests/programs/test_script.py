"""Files that train are told from files that hand over a dataset, by their source."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pipefix.programs.script import is_program, trains_when_imported

GUARD = 'if __name__ == "__main__":'


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n    net(x).backward()\n",
        "with record():\n    try:\n        loss.backward()\n    finally:\n        pass\n",
        "def step(x):\n    net(x).backward()\ndef main():\n    step(1)\nmain()\n",
        "class Run:\n    def begin(self):\n        self.loss().backward()\nRun().begin()\n",
        "trainer = pl.Trainer()\ntrainer.fit(model, loader)\n",
        "Trainer(model, train_dataset=data).train()\n",
        "trainer = create_supervised_trainer(model, optimizer, loss)\ntrainer.run(loader, max_epochs=9)\n",
        "tr = create_supervised_trainer(model, optimizer, loss)\ntr.run(loader)\n",
        "import ignite.engine\ndef step(engine, batch): ...\ntr = ignite.engine.Engine(step)\ntr.run(loader)\n",
        "self.tr = Trainer()\nself.tr.fit(model)\n",
        "from engine import begin\nbegin()\n",
        "def again():\n    again()\n    loss.backward()\nagain()\n",
    ],
)
def test_code_outside_of_functions_trains(text: str, tmp_path: Path) -> None:
    written(tmp_path, "def begin():\n    loss.backward()\n", "engine.py")
    assert trains_when_imported(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "def main():\n    loss.backward()\n",
        f"def main():\n    loss.backward()\n{GUARD}\n    main()\n",
        "model = Engine(weights)\nmodel.train()\nserver = Photos(trainer_settings)\nserver.run()\ndataset = Photos()\n",
        "model.train()\nscaler.fit(numbers)\ndataset = Photos()\n",
        "class Trainer:\n    def fit(self):\n        loss.backward()\ndataset = Photos()\n",
        "step = lambda loss: loss.backward()\n",
        "from elsewhere import begin\nbegin()\n",
        "def again():\n    again()\nagain()\n",
        "this is no Python",
    ],
)
def test_code_that_is_only_defined_does_not(text: str, tmp_path: Path) -> None:
    assert not trains_when_imported(written(tmp_path, text))


def test_a_program_says_what_to_do_when_it_is_run(tmp_path: Path) -> None:
    assert is_program(written(tmp_path, f"def main(): pass\n{GUARD}\n    main()\n"))
    assert is_program(written(tmp_path, "if '__main__' == __name__: main()\n"))
    assert not is_program(written(tmp_path, "dataset = Photos()\n"))
    assert not is_program(tmp_path / "gone.py")
