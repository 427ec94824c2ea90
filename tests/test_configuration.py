"""Every dial of the config: its limits, where a bad value or name can come from, and what a stock config becomes."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from packaging.version import Version
from transformers import Qwen3VLConfig

from arrcoc import ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.configuration_arrcoc import (
    CONFIG_VERSION,
    PROCESSOR_DIALS,
    SHAPES,
    TRANSFORMERS_CEILING,
    TRANSFORMERS_FLOOR,
)

# Name, lowest, highest.
LIMITS = [
    ("information_weight", 0.0, 10.0),
    ("perspective_weight", 0.0, 10.0),
    ("participation_weight", 0.0, 10.0),
    ("area_strength", 0.0, 1.0),
    ("dilation_strength", 0.0, 1.0),
    ("diversity", 0.0, 0.5),
    ("coverage_floor", 0.0, 1.0),
    ("coarse_share", 0.0, 0.9),
    ("coarse_view_share", 0.05, 0.95),
    ("coarse_view_min_tokens", 1, 4096),
    ("gate_temperature", 1e-4, 10.0),
    ("min_deepstack_levels", 0, 64),
    ("max_cell_pixels", 4, 32),
    ("perspective_channels", 1, 1024),
    ("scorer_hidden_size", 8, 4096),
]
WRONG_TYPES = [(name, value) for name in ("diversity", "max_cell_pixels") for value in ("0.2", None, True, [0.2])]
WRONG_TYPES += [
    ("max_cell_pixels", 16.0),
    ("scorer_heads", 2.0),
    ("min_deepstack_levels", 1.5),
    ("min_deepstack_levels", True),
]
NOT_FINITE = [("diversity", math.nan), ("coverage_floor", math.inf), ("gate_temperature", -math.inf)]
MISSPELT = ["coverage_flor", "coarse_shares", "information_weights", "gate_temprature", "max_cel_pixels", "scorer_head"]


def test_the_docstring_gives_every_default():
    doc = " ".join(ARRCOCQwen3VLConfig.__doc__.split())
    own = ARRCOCQwen3VLConfig.__dataclass_fields__.keys() - Qwen3VLConfig.__dataclass_fields__.keys()
    assert {name for name, *_ in LIMITS} < own
    for name in own:
        default = ARRCOCQwen3VLConfig.__dataclass_fields__[name].default
        told = "" if default is None else f", defaults to {default!r}".replace("'", '"')
        told = told.replace('"select"', '`"select"`')
        (kind,) = re.findall(rf" {name} \((.*?)\): ", doc)
        assert kind.endswith(f"*optional*{told}"), name


@pytest.fixture
def folder(tmp_path):
    """A folder with the config of default dials."""
    ARRCOCQwen3VLConfig().save_pretrained(tmp_path)
    return tmp_path


def edit(folder, **values):
    """Writes `values` into the folder's config.json, past all checks."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def ways(folder):
    """The ways in which a value can reach a config: each takes a name and a value and returns the config."""

    def assigned(name, value):
        config = ARRCOCQwen3VLConfig()
        setattr(config, name, value)
        return config

    def loaded(name, value):
        edit(folder, **{name: value})
        return ARRCOCQwen3VLConfig.from_pretrained(folder)

    return {
        "constructor": lambda name, value: ARRCOCQwen3VLConfig(**{name: value}),
        "assignment": assigned,
        "argument of from_pretrained": lambda name, value: ARRCOCQwen3VLConfig.from_pretrained(folder, **{name: value}),
        "from_dict": lambda name, value: ARRCOCQwen3VLConfig.from_dict({name: value}),
        "file": loaded,
    }


WAYS = ["constructor", "assignment", "argument of from_pretrained", "from_dict", "file"]


def test_defaults_are_inside_their_limits():
    config = ARRCOCQwen3VLConfig()
    for name, low, high in LIMITS:
        value = getattr(config, name)
        assert value is None or low <= value <= high, name
    assert config.arrcoc_version == CONFIG_VERSION
    assert config.model_type == "arrcoc_qwen3_vl"


def test_a_config_of_another_type_reads_a_folder_of_this_one(tmp_path):
    class Mine(ARRCOCQwen3VLConfig):
        model_type = "mine"

    ARRCOCQwen3VLConfig(coverage_floor=0.2).save_pretrained(tmp_path)
    read = Mine.from_pretrained(tmp_path)
    assert (read.to_dict()["model_type"], read.coverage_floor) == ("mine", 0.2)


def test_every_dial_is_tested_here():
    own = set(ARRCOCQwen3VLConfig.__dataclass_fields__) - set(Qwen3VLConfig.__dataclass_fields__)
    assert own == {name for name, _, _ in LIMITS} | {
        "arrcoc_version",
        "scorer_heads",
        "encode_ratio",
        "allocation_mode",
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("encode_ratio", (1, 0.3, "auto"), (0, -1, 1.1, math.nan, True, "half")),
        ("allocation_mode", ("select", "foveated"), ("fovea", "", "auto")),
    ],
)
def test_named_values(folder, way, name, good, bad):
    set_value = ways(folder)[way]
    for value in good:
        assert getattr(set_value(name, value), name) == value
    for value in bad:
        with pytest.raises(StrictDataclassFieldValidationError, match=name):
            set_value(name, value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "low", "high"), LIMITS)
def test_limits(folder, way, name, low, high):
    """The limits themselves are allowed; a step outside is refused, and the message names the value and the limits."""
    set_value = ways(folder)[way]
    step = 1 if isinstance(low, int) else 1e-5
    for good in (low, high):
        assert getattr(set_value(name, good), name) == good
    for bad in (low - step, high + step):
        with pytest.raises(StrictDataclassFieldValidationError, match=f"'{name}'") as error:
            set_value(name, bad)
        assert f"{bad!r} is outside [{low}, {high}]" in str(error.value)


@pytest.mark.parametrize("way", WAYS[:4])
@pytest.mark.parametrize(("name", "bad"), WRONG_TYPES + NOT_FINITE)
def test_wrong_types_and_what_is_not_finite(folder, way, name, bad):
    set_value = ways(folder)[way]
    with pytest.raises(StrictDataclassFieldValidationError, match=f"'{name}'"):
        set_value(name, bad)
    good = getattr(ARRCOCQwen3VLConfig(), name)
    assert getattr(set_value(name, good), name) == good


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MISSPELT)
def test_misspelt_names(folder, way, name):
    with pytest.raises(ValueError, match=f"{name} is not a field of ARRCOCQwen3VLConfig; did you mean "):
        ways(folder)[way](name, 0.5)


@pytest.mark.parametrize("name", ["temperature", "router_temperature", "feature_size", "question_token"])
def test_names_of_other_configs(folder, name):
    """Stock keeps what is set on a config and what its file says, be it a field or not."""
    assert getattr(ways(folder)["assignment"](name, 0.5), name) == 0.5
    loaded = ways(folder)["file"](name, 0.5)
    # temperature is one of generation's, which a config that is read leaves out
    assert name == "temperature" or getattr(loaded, name) == 0.5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROCESSOR_DIALS)
def test_dials_of_the_processor(folder, way, name):
    with pytest.raises(ValueError, match=f"{name} is a dial of the processor, .* set it on ARRCOCProcessor"):
        ways(folder)[way](name, 64)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "assignment"])
def test_newer_version(folder, way):
    with pytest.raises(ValueError, match=f"arrcoc_version={CONFIG_VERSION + 1} is newer than version {CONFIG_VERSION}"):
        ways(folder)[way]("arrcoc_version", CONFIG_VERSION + 1)
    assert ways(folder)[way]("arrcoc_version", CONFIG_VERSION).arrcoc_version == CONFIG_VERSION


@pytest.mark.parametrize("way", [way for way in WAYS if way != "assignment"])
def test_heads_that_do_not_divide_the_width(folder, way):
    with pytest.raises(ValueError, match="scorer_hidden_size=64 does not divide into scorer_heads=5"):
        ways(folder)[way]("scorer_heads", 5)
    assert ways(folder)[way]("scorer_heads", 8).scorer_heads == 8


def test_heads_assigned_late_are_refused_by_the_model(tiny_config, new_model):
    config = tiny_config()
    config.scorer_heads = 5
    with pytest.raises(ValueError, match="5"):
        new_model(config)


@torch.no_grad()
def test_a_dial_assigned_late_is_that_of_a_model_built_with_it(tiny_config, new_model, make_inputs, page):
    """So that what is saved is what was seen."""
    dials = {
        "information_weight": 0.0, "perspective_weight": 3.0, "participation_weight": 0.1, "area_strength": 1.0,
        "dilation_strength": 0.5, "diversity": 0.5, "coverage_floor": 0.9, "min_deepstack_levels": 0, "max_cell_pixels": 4,
        "coarse_share": 0.0, "gate_temperature": 1.0,
    }  # fmt: skip
    inputs = make_inputs(page(160, 128), token_budget=20)
    model = new_model(tiny_config(coarse_share=0.5))

    def plan(built):
        found = built.allocate(**inputs)[0]
        return found.relevance, found.positions, found.depth, found.level

    for name, value in dials.items():
        before = plan(model)
        setattr(model.config, name, value)
        twin = new_model(copy.deepcopy(model.config))
        twin.load_state_dict(model.state_dict(), strict=False)  # without the adapter, once there are no pooled cells
        for own, other in zip(plan(model), plan(twin), strict=True):
            assert torch.equal(own, other), name
        if name != "gate_temperature":
            assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(before, plan(model), strict=True)), (
                name
            )
    plain = new_model(tiny_config())
    plain.config.coarse_share = 0.5
    with pytest.raises(ValueError, match=r"coarse_share=0\.5 needs an adapter"):
        plain.allocate(**inputs)


def test_more_levels_than_the_base_has_are_refused(tiny_config, new_model, make_inputs, page):
    with pytest.raises(ValueError, match="min_deepstack_levels=10, and this base has 3 DeepStack levels; pass at most"):
        new_model(tiny_config(min_deepstack_levels=10))
    model = new_model(tiny_config())
    model.config.min_deepstack_levels = 4
    with pytest.raises(ValueError, match="min_deepstack_levels=4, and this base has 3"):
        model(**make_inputs(page(), token_budget=5))


def test_refused_assignment_leaves_the_config_as_it_was():
    config = ARRCOCQwen3VLConfig()
    before = copy.deepcopy(config.to_dict())
    for name, bad in [("diversity", 0.7), ("coverage_flor", 0.1), ("token_budget", 3), ("max_cell_pixels", "16")]:
        with pytest.raises((ValueError, StrictDataclassFieldValidationError)):
            setattr(config, name, bad)
    assert config.to_dict() == before


def test_stock_config_keeps_its_fields_and_gets_default_dials(tmp_path):
    stock = Qwen3VLConfig(tie_word_embeddings=True, image_token_id=7)
    stock.vision_config.depth = 5
    stock.save_pretrained(tmp_path)
    config = ARRCOCQwen3VLConfig.from_pretrained(tmp_path)
    assert (config.image_token_id, config.vision_config.depth, config.tie_word_embeddings) == (7, 5, True)
    assert config.text_config.to_dict() == stock.text_config.to_dict()
    assert config.diversity == ARRCOCQwen3VLConfig().diversity


def test_round_trip(tmp_path):
    config = ARRCOCQwen3VLConfig(diversity=0.4, coverage_floor=0, min_deepstack_levels=2, max_cell_pixels=8)
    config.save_pretrained(tmp_path)
    again = ARRCOCQwen3VLConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict() | {"transformers_version": again.to_dict()["transformers_version"]}
    changed, unused = ARRCOCQwen3VLConfig.from_pretrained(tmp_path, diversity=0.1, other=3, return_unused_kwargs=True)
    assert changed.diversity == 0.1
    assert unused == {"other": 3}


def test_names_that_only_upstream_knows_pass():
    """Fields of later releases and of other tools are not taken for misspelt dials."""
    config = ARRCOCQwen3VLConfig(some_new_switch=True, quantization_config={"bits": 4}, pooler_hidden_size=8)
    config.use_cache = False
    config.another_switch = 1
    assert config.some_new_switch
    assert config.another_switch == 1


def test_an_older_transformers_is_refused_at_import(monkeypatch):
    """The module's own source, run with another version number: refused outside of the range, in words, before anything."""
    import arrcoc.configuration_arrcoc as module

    source = Path(module.__file__).read_text().split("from huggingface_hub")[0]
    for version in ("4.57.1", "5.19.9", "6.0.0"):
        monkeypatch.setattr(transformers, "__version__", version)
        with pytest.raises(ImportError, match=f"needs transformers >= 5.20, < 6, but {version} is .* pip install"):
            exec(compile(source, module.__file__, "exec"), {})
    for version in ("5.20.0", "5.23.0", "5.99.1"):
        monkeypatch.setattr(transformers, "__version__", version)
        exec(compile(source, module.__file__, "exec"), {})
    assert Version(TRANSFORMERS_FLOOR) < Version(TRANSFORMERS_CEILING)


def test_a_dial_of_the_config_is_refused_in_a_call(tiny_model, make_inputs, page):
    with pytest.raises(TypeError, match=r"set model\.config\.coverage_floor"):
        tiny_model()(**make_inputs(page(), token_budget=9), coverage_floor=0.5)


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_is_not_saved_with_a_shape_that_its_allocator_has_not(name, new_model, tiny_config, tmp_path):
    model = new_model(tiny_config())
    built = getattr(model.config, name)
    setattr(model.config, name, built // 2)
    with pytest.raises(ValueError, match=rf"{name}={built // 2} is not what the allocator was built with \({built}\)"):
        model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"{name}={built // 2} is not what the allocator was built with"):
        model.model.save_pretrained(tmp_path)
    assert not any(tmp_path.iterdir())
    setattr(model.config, name, built)
    model.save_pretrained(tmp_path)
    ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path)
