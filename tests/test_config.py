"""Configurations: presets, types, ranges, TOML in and out."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import pytest

from chmnet.cli.changes import parse_changes
from chmnet.config import (
    PRESETS,
    BackboneConfig,
    CalibrationConfig,
    ConsensusConfig,
    CorrelationConfig,
    HoughConfig,
    ModelConfig,
    NoVotesConfig,
    OutputConfig,
    TransferConfig,
)
from chmnet.errors import ConfigError

ONE_SCALE = {"correlation": {"scales": [1.0]}}


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tests' own check of annotations, which would refuse a wrong argument first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "model.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def assert_one_sentence(caught: pytest.ExceptionInfo[ConfigError]) -> None:
    assert "\n" not in str(caught.value)


def test_presets_differ_where_paper_and_code_differ() -> None:
    paper, reference = (flat(ModelConfig.preset(name).to_dict()) for name in ("paper", "reference"))
    assert paper.keys() == reference.keys()
    differences = {name: (paper[name], reference[name]) for name in paper if paper[name] != reference[name]}
    assert differences == {
        "backbone.branches": ("shared", "separate"),
        "transfer.scale_with_grid": (True, False),
        "correlation.rectify": ("before-resize", "after-resize"),
        "output.activation": ("linear", "softplus"),
        "output.mutual_filter": (False, True),
    }


def test_preset_paper_has_the_papers_numbers() -> None:
    config = ModelConfig.preset("paper")
    assert config == ModelConfig.preset() == ModelConfig()
    assert config.image_size == (240, 240)
    assert (config.correlation.scales, config.correlation.reduction) == ((math.sqrt(1 / 2), 1, math.sqrt(2)), 4)
    assert isinstance(config.matching, HoughConfig)
    assert (config.matching.spatial_window, config.matching.scale_window, config.output.upsample) == (5, 3, 2)
    assert (config.transfer.gaussian_sigma, config.transfer.sampler_threshold) == (17, 0.1)


def test_preset_with_changes_leaves_the_preset_alone() -> None:
    changed = ModelConfig.preset("reference", output={"activation": "linear"})
    assert (changed.output.activation, changed.output.mutual_filter) == ("linear", True)
    assert ModelConfig.preset("reference").output.activation == "softplus"


def test_unknown_preset() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'papre'; use one of paper, reference"):
        ModelConfig.preset("papre")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"matching": {"chanels": 1}}, r"unknown key 'chanels' in 'matching' in .*; did you mean 'channels'\?"),
        ({"zzz": 1}, r"unknown key 'zzz' in configuration; known keys: backbone, .*, transfer"),
        ({"backbone": {"nome": "resnet18"}}, r"unknown key 'nome' in 'backbone' in .*; did you mean 'name'\?"),
        ({"matching": {"channels": True}}, r"'channels' in 'matching' .* must be of type int, got True"),
        ({"matching": {"channels": 1.0}}, r"'channels' in 'matching' .* must be of type int, got 1.0"),
        ({"matching": {"channels": "1"}}, r"'channels' in 'matching' .* must be of type int, got '1'"),
        ({"output": {"mutual_filter": 1}}, r"'mutual_filter' in 'output' .* must be of type bool, got 1"),
        ({"transfer": {"temperature": True}}, r"'temperature' in 'transfer' .* must be of type float, got True"),
        ({"transfer": {"temperature": "1"}}, r"'temperature' in 'transfer' .* must be of type float, got '1'"),
        ({"correlation": {"scales": "1.0"}}, r"'scales' in 'correlation' .* must be a list, got '1.0'"),
        ({"correlation": {"scales": 1.0}}, r"'scales' in 'correlation' .* must be a list, got 1.0"),
        ({"image_size": [240.0, 240]}, r"'image_size' in configuration must be of type int, got 240.0"),
        ({"backbone": {"layers": "layer3"}}, r"'layers' in 'backbone' .* must be a list, got 'layer3'"),
        ({"backbone": {"layers": [3]}}, r"'layers' in 'backbone' .* must be of type str, got 3"),
        ({"backbone": "resnet18"}, r"'backbone' in configuration must be a table, got 'resnet18'"),
        (
            {"matching": {"kind": "magic"}},
            r"the kind of 'matching' .* must be one of hough, .*, none, got 'magic'",
        ),
        ({"matching": ["hough"]}, r"'matching' in configuration must be a table, got \['hough'\]"),
        ({"backbone": {"name": "vgg16"}}, r"'name' in 'backbone' .* must be one of resnet18, .*, got 'vgg16'"),
    ],
)
def test_wrong_keys_and_types(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        ModelConfig.from_dict(data)
    assert_one_sentence(caught)


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"image_size": [240]}, r"image_size must be \(height, width\), got \(240,\)"),
        ({"image_size": [240, 240, 3]}, r"image_size must be \(height, width\)"),
        ({"image_size": [0, 240]}, r"image_size must be at least 1, got 0"),
        ({"image_size": [240, 10_001]}, r"image_size must be at most 4096, got 10001"),
        ({"matching": {"spatial_window": 4}}, r"spatial_window must be odd, got 4; use 3 or 5"),
        ({"matching": {"scale_window": 2}}, r"scale_window must be odd, got 2; use 1 or 3"),
        ({"matching": {"spatial_window": -1}}, r"spatial_window must be at least 1, got -1"),
        ({"matching": {"spatial_window": 10_001}}, r"spatial_window must be at most 11, got 10001"),
        ({"matching": {"channels": 0}}, r"channels must be at least 1, got 0"),
        ({"matching": {"channels": 1025}}, r"channels must be at most 1024, got 1025"),
        ({"output": {"upsample": 0}}, r"upsample must be at least 1, got 0"),
        ({"output": {"upsample": 17}}, r"upsample must be at most 16, got 17"),
        ({"correlation": {"reduction": -1}}, r"reduction must be at least 0, got -1"),
        ({"correlation": {"power": 0.5}}, r"power must be at least 1, got 0.5"),
        ({"correlation": {"power": 17}}, r"power must be at most 16, got 17"),
        ({"correlation": {"keep_top": -1}}, r"keep_top must be at least 0, got -1"),
        ({"correlation": {"scales": []}}, r"scales must be 1 to 9 numbers, got 0"),
        ({"correlation": {"scales": [1] * 10}}, r"scales must be 1 to 9 numbers, got 10"),
        ({"correlation": {"scales": [0]}}, r"scales must be above 0, got 0"),
        ({"correlation": {"scales": [17]}}, r"scales must be at most 16, got 17"),
        ({"correlation": {"scales": [math.inf]}}, r"scales must be a finite number, got inf"),
        (
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": []}},
            r"channels must be 1 to 9 numbers that end with 1, .*, got \[\]",
        ),
        (
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": [16, 2]}},
            r"channels must .* end with 1, .*, got \[16, 2\]",
        ),
        (
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": [1] * 10}},
            r"channels must be 1 to 9 numbers",
        ),
        (
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": [0, 1]}},
            r"channels must be at least 1, got 0",
        ),
        (
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": [1025, 1]}},
            r"channels must be at most 1024, got 1025",
        ),
        (
            {"matching": {"channels": 2, "last_layer": False}},
            r"channels = 2 needs both Hough layers: .*; use channels = 1",
        ),
        ({"transfer": {"gaussian_sigma": -1}}, r"gaussian_sigma must be at least 0.001, got -1"),
        ({"transfer": {"sampler_threshold": 0}}, r"sampler_threshold must be above 0, got 0"),
        ({"transfer": {"temperature": 0}}, r"temperature must be at least 1e-06, got 0"),
        ({"transfer": {"temperature": math.nan}}, r"temperature must be a finite number, got nan"),
    ],
)
def test_ranges(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        ModelConfig.from_dict(data)
    assert_one_sentence(caught)


@pytest.mark.parametrize("value", [2**63, -(10**400), 16**5000], ids=["2^63", "-10^400", "16^5000"])
@pytest.mark.parametrize("name", ["keep_top", "scales"])
def test_numbers_beyond_64_bits(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}' in .* must fit in 64 bits"):
        ModelConfig.from_dict({"correlation": {name: [value] if name == "scales" else value}})


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("data", [[1], None, "paper"], ids=str)
def test_data_that_is_no_table(data: object) -> None:
    with pytest.raises(ConfigError, match=r"configuration must be a table, got "):
        ModelConfig.from_dict(data)  # type: ignore[arg-type]


def test_limits_themselves_are_allowed() -> None:
    config = ModelConfig(
        image_size=(1, 1000),
        correlation=CorrelationConfig(scales=(16.0,) * 9),
        matching=HoughConfig(spatial_window=11, scale_window=1, channels=1024),
        output=OutputConfig(upsample=16),
        transfer=TransferConfig(gaussian_sigma=0),
    )
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_grid_that_would_not_fit_into_memory() -> None:
    with pytest.raises(ConfigError, match="make a grid of 1048576 positions"):
        ModelConfig.from_dict({"image_size": [4096, 4096], "output": {"upsample": 4}})


def test_too_many_layers() -> None:
    with pytest.raises(ConfigError, match="layers must be at most 64 names, got 65"):
        BackboneConfig.from_dict({"layers": ["layer3"] * 65})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["nonsense"], "key=value"), (["=1"], "key=value"), (["a=1", "a.b=2"], "is a value already")],
)
def test_changes_that_cannot_be_read(words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_changes(words)


def test_nested_change_keeps_the_rest_of_the_table() -> None:
    config = ModelConfig().replace(transfer={"temperature": 0.5})
    assert config.transfer == TransferConfig(temperature=0.5)
    assert ModelConfig().replace(backbone={"stride_on": "conv1"}).backbone.name == "resnet101"


def test_int_stands_for_float() -> None:
    config = ModelConfig.from_dict({"correlation": {"scales": [1, 2]}, "transfer": {"temperature": 2}})
    assert config.correlation.scales == (1.0, 2.0)
    assert all(type(scale) is float for scale in config.correlation.scales)
    assert type(config.transfer.temperature) is float


def test_nested_table_keeps_the_other_defaults() -> None:
    config = ModelConfig.from_dict({"backbone": {"name": "resnet18", "layers": ["layer2", "layer3"]}})
    assert config.backbone == BackboneConfig("resnet18", layers=("layer2", "layer3"))
    assert config == ModelConfig(backbone=config.backbone)


@pytest.mark.parametrize("name", PRESETS)
def test_round_trips(name: str, tmp_path: Path) -> None:
    config = ModelConfig.preset(name)
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert ModelConfig.from_toml(written(tmp_path, config.to_toml())) == config


def test_round_trip_of_what_differs_from_the_defaults(tmp_path: Path) -> None:
    config = ModelConfig(
        backbone=BackboneConfig("resnet50", layers=("layer2", "layer3"), stride_on="conv1"),
        transfer=TransferConfig(gaussian_sigma=1 / 3, sampler="nearest"),
        correlation=CorrelationConfig(scales=(1 / 3,)),
        matching=ConsensusConfig(channels=(8, 1)),
        calibration=CalibrationConfig(match=(1.0, 2.0, 3.0, 1 / 3), same_kind=(0.5, 1.0, 2.0)),
    )
    assert ModelConfig.from_toml(written(tmp_path, config.to_toml())) == config


def test_dictionary_is_plain() -> None:
    table = ModelConfig().to_dict()
    assert table["image_size"] == [240, 240]
    assert table["backbone"]["layers"] == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("channels = \n", r"model.toml is not valid TOML: .*line 1"),
        ("channels = 1" + "0" * 5000, r"model.toml is not valid TOML: "),
        ("scales = " + "[" * 5000, r"model.toml is not valid TOML: "),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", r"cannot read the configuration .*model.toml: .*utf-8"),
        ("[matching]\nchanels = 1", r"unknown key 'chanels' in .*model.toml; did you mean 'channels'\?"),
        ("[transfer]\ntemperature = nan", r"temperature must be a finite number, got nan"),
    ],
    ids=["syntax", "digits", "depth", "binary", "key", "nan"],
)
def test_broken_files(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        ModelConfig.from_toml(written(tmp_path, content))
    assert_one_sentence(caught)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    missing, folder = r"cannot read the configuration .*none.toml: .*No such file", "is a folder; name a file for"
    for path, sentence in ((tmp_path / "none.toml", missing), (tmp_path, folder)):
        with pytest.raises(ConfigError, match=sentence) as caught:
            ModelConfig.from_toml(path)
        assert_one_sentence(caught)


def test_configurations_cannot_be_assigned() -> None:
    config = ModelConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.image_size = (2, 2)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.backbone.name = "resnet18"  # type: ignore[misc]
    assert hash(config) == hash(ModelConfig())


def test_replace() -> None:
    config = ModelConfig()
    changed = config.replace(correlation={"keep_top": 10}, backbone=BackboneConfig("resnet18"))
    assert (changed.correlation.keep_top, changed.backbone.name) == (10, "resnet18")
    assert config == ModelConfig()
    with pytest.raises(ConfigError, match=r"unknown key 'keep_topp' in .*; did you mean 'keep_top'\?"):
        config.replace(correlation={"keep_topp": 10})
    with pytest.raises(ConfigError, match=r"'keep_top' in .* must be of type int, got '10'"):
        config.replace(correlation={"keep_top": "10"})
    with pytest.raises(ConfigError, match=r"upsample must be at least 1, got 0"):
        config.replace(output={"upsample": 0})


# ---------------------------------------------------------------- kinds of matching, and version 0.1


def test_another_kind_of_matching_has_its_own_fields() -> None:
    config = ModelConfig(matching=HoughConfig(channels=4))
    assert config.replace(matching={"first_sharing": "iso"}).matching == HoughConfig(
        first_sharing="iso", channels=4
    )
    assert config.replace(matching={"kind": "none"}).matching == NoVotesConfig()
    assert config.replace(**ONE_SCALE, matching={"kind": "consensus"}).matching == ConsensusConfig()
    with pytest.raises(ConfigError, match="unknown key 'first_sharing'"):
        config.replace(matching={"kind": "none", "first_sharing": "iso"})
    with pytest.raises(ConfigError, match="consensus works on one scale"):
        config.replace(matching={"kind": "consensus"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"dimensions": "4d-4d"}, {"correlation": {"scales": [1.0]}}),
        ({"dimensions": "6d-4d", "first_sharing": "iso"}, {"matching": {"first_sharing": "iso"}}),
        ({"matching": "none", "channels": 1, "last_sharing": "iso"}, {"matching": {"kind": "none"}}),
        (
            {"matching": "consensus", "consensus_channels": [4, 1], "spatial_window": 3},
            {**ONE_SCALE, "matching": {"kind": "consensus", "channels": [4, 1], "spatial_window": 3}},
        ),
        (
            {"output": "softplus", "mutual_filter": True, "upsample": 3},
            {"output": {"activation": "softplus", "mutual_filter": True, "upsample": 3}},
        ),
        (
            {"correlation_power": 1.5, "channel_reduction": 2, "keep_top": 3},
            {"correlation": {"power": 1.5, "reduction": 2, "keep_top": 3}},
        ),
        (
            {"transfer": {"temperature": 2.0, "calibration": [1, 2, 3, 4]}},
            {"transfer": {"temperature": 2.0}, "calibration": [1, 2, 3, 4]},
        ),
        (
            {"backend": "folded", "loss": "distance", "backbone": {"name": "resnet18", "frozen": True}},
            {"backbone": {"name": "resnet18"}},
        ),
    ],
)
def test_keys_of_version_0_1(old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="version 0.1"):
        assert ModelConfig.from_dict(old) == ModelConfig.from_dict(new)
    with pytest.warns(DeprecationWarning, match="version 0.1"):
        assert ModelConfig().replace(**old) == ModelConfig.from_dict(new)


def test_a_calibration_of_matches_alone_may_be_a_list() -> None:
    """Files of 0.1, and of 0.2 at first."""
    whole = ModelConfig(calibration=CalibrationConfig(match=(1.0, 2.0, 3.0, 4.0)))
    assert ModelConfig.from_dict({"calibration": [1, 2, 3, 4]}) == whole
    assert ModelConfig().replace(calibration=(1, 2, 3, 4)) == whole
    assert whole.replace(calibration={"pose": [5, 6, 7, 8]}).calibration.match == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "data",
    [
        {"upsample": 2, "output": 5},
        {"channels": 2, "matching": [1]},
        {"dimensions": "4d-4d", "correlation": {"scales": [0.7, 1.0]}},
    ],
    ids=str,
)
def test_old_keys_beside_something_that_is_no_table(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="table"):
        ModelConfig.from_dict(data)


def test_old_dimensions_that_never_were() -> None:
    with pytest.raises(ConfigError, match="6d-4d, 4d-4d, got '5d'"):
        ModelConfig.preset("paper", dimensions="5d")


def test_the_warning_names_the_line_of_the_caller() -> None:
    """In a process of its own: the checks of the tests stand between caller and callee."""
    code = "import chmnet\nchmnet.ModelConfig.preset('paper', dimensions='4d-4d')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "<string>:2: DeprecationWarning" in run.stderr  # shown without asking, as it is in the main program
    assert "dimensions" in run.stderr
