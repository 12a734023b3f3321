"""Every experiment tried once in one folder, as a person would: later ones find what earlier ones made."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chmnet.cli.main import app
from chmnet.evaluation import Header, PredictionFile
from chmnet.experiments import store as store_module
from chmnet.experiments.store import Setting, Store


@dataclass(frozen=True)
class QuickRun:
    """What ``chmnet experiment NAME --quick`` did."""

    result: Result
    seconds: float
    trained: list[str]
    """Names of runs."""
    predicted: list[tuple[str, str]]
    """Model and pair of everything that was computed."""

    def files(self) -> list[Path]:
        """What it says it wrote."""
        assert self.result.exit_code == 0, (self.result.output, self.result.exception)
        return [Path(line.removeprefix("wrote ")) for line in self.result.stdout.splitlines()]

    def file(self, ending: str) -> Path:
        """The one file with this ending, such as ``.md``."""
        (found,) = (path for path in self.files() if path.suffix == ending)
        return found

    def record(self) -> dict[str, Any]:
        """The JSON file."""
        record: dict[str, Any] = json.loads(self.file(".json").read_text(encoding="utf-8"))
        return record


class QuickRuns:
    """Runs the command at most once for each name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: dict[str, QuickRun] = {}

    def __call__(self, name: str) -> QuickRun:
        if name not in self.done:
            self.done[name] = self.run(name)
        return self.done[name]

    def run(self, name: str, *options: str) -> QuickRun:
        """Run it, whatever was run before."""
        trained: list[str] = []
        predicted: list[tuple[str, str]] = []
        train, predict = store_module.train, store_module.predict

        def counted_train(config: object, folder: Path, *arguments: Any, **others: Any) -> Any:
            trained.append(Path(folder).name)
            return train(config, folder, *arguments, **others)  # type: ignore[arg-type]

        def counted_predict(pairs: Any, network: Any, file: PredictionFile, header: Header, *others: Any) -> int:
            known = set(file.predictions)
            number = predict(pairs, network, file, header, *others)
            model = json.dumps([header.model["weights_sha256"], header.model["config"]])
            predicted.extend((model, pair) for pair in file.predictions if pair not in known)
            return number

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_module, "train", counted_train)
            patch.setattr(store_module, "predict", counted_predict)
            patch.delenv("CHMNET_DATA", raising=False)
            started = time.monotonic()
            command = ["experiment", name, "--quick", "-o", str(self.folder), *options]
            result = CliRunner().invoke(app, command)
        return QuickRun(result, time.monotonic() - started, trained, predicted)


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> QuickRuns:
    return QuickRuns(tmp_path_factory.mktemp("experiments") / "quick")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One that has made nothing yet."""
    return Store(tmp_path, Setting.synthetic(tmp_path))
