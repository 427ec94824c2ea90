"""A saved folder, copied elsewhere, loads through the Hub loader in a fresh process that knows nothing of this package."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from arrcoc.checkpoint import check_loaded, fitted

pytestmark = pytest.mark.core

MODES = [{"encode_ratio": 0.5}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}]
PREAMBLE = """
import importlib.util, json, sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
assert importlib.util.find_spec("arrcoc") is None, "the process must not know the package"
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    AutoProcessor,
    pipeline,
)
folder, out = sys.argv[1:]
"""

LOAD = """
result = {}
for trust in ({}, {"trust_remote_code": False}):
    for loader in (AutoConfig, AutoModel, AutoModelForImageTextToText):
        try:
            loader.from_pretrained(folder, **trust)
            result.setdefault("loaded untrusted", []).append(loader.__name__)
        except (ValueError, EOFError) as error:
            result["untrusted"] = str(error)

package = sys.modules["transformers"]
release, package.__version__ = package.__version__, "5.19.0"
try:
    AutoConfig.from_pretrained(folder, trust_remote_code=True)
except ImportError as error:
    result["older release"] = str(error)
package.__version__ = release

model = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=True).eval()
result["class"] = [type(model).__name__, type(model).__module__.split(".")[0]]
others = [auto.from_pretrained(folder, trust_remote_code=True) for auto in (AutoModel, AutoModelForMultimodalLM)]
result["same class"] = all(type(other) is type(model) for other in others)
del others
state, file = model.state_dict(), load_file(f"{folder}/model.safetensors")
result["tensors"] = all(torch.equal(state[name], value) for name, value in file.items()) and set(state) - set(file) <= {
    "lm_head.weight"
}
for parameter in model.parameters():  # a file's tensors lie at any byte, which moves some processors' last bits
    parameter.data = parameter.data.clone()
inputs = torch.load(f"{folder}/inputs.pt")
with torch.no_grad():
    logits = {name: model(**value).logits for name, value in inputs.items()}
    for mode in json.load(open(f"{folder}/modes.json")):
        logits[str(mode)] = model(**inputs["pruned"], **mode).logits
    encoded = model.encode_images(**inputs["pruned"])
    result["encoded once"] = torch.equal(model(**inputs["pruned"], encoded_images=encoded).logits, logits["pruned"])
    torch.save(logits, f"{out}/logits.pt")
processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
result["processor"] = [type(processor).__name__, type(processor).__module__.split(".")[0]]

from PIL import Image
chat = [{"role": "user", "content": [
    {"type": "image", "image": Image.open(f"{folder}/page.png")}, {"type": "text", "text": "what is the total?"}]}]
again = processor.apply_chat_template([chat], tokenize=True, add_generation_prompt=True, return_dict=True,
                                      return_tensors="pt", processor_kwargs={"token_budget": 9})
result["processor's inputs"] = all(torch.equal(again[name], value) for name, value in inputs["pruned"].items())

pipe = pipeline("image-text-to-text", model=folder, trust_remote_code=True)
answer = pipe(chat, processor_kwargs={"token_budget": 9}, max_new_tokens=3, return_full_text=False)
result["pipeline"] = [isinstance(answer[0]["generated_text"], str), type(pipe.model).__name__]

given = pipeline("image-text-to-text", model=folder, trust_remote_code=True, model_kwargs={"encode_ratio": 0.5})
result["the model's arguments through a pipeline"] = given.model.config.encode_ratio

model.base_model.save_pretrained(f"{out}/base")
model.save_pretrained(f"{out}/again")
processor.save_pretrained(f"{out}/again")
json.dump(result, open(f"{out}/result.json", "w"))
"""

RELOAD = """
model = AutoModelForImageTextToText.from_pretrained(f"{out}/again", trust_remote_code=True).eval()
AutoProcessor.from_pretrained(f"{out}/again", trust_remote_code=True)
from transformers import AutoModel
base, info = AutoModel.from_pretrained(f"{out}/base", trust_remote_code=True, output_loading_info=True)
assert type(base).__name__ == "ARRCOCQwen3VLModel" and not info["missing_keys"], info
inputs = torch.load(f"{folder}/inputs.pt")
with torch.no_grad():
    torch.save({name: model(**value).logits for name, value in inputs.items()}, f"{out}/logits_again.pt")
"""


def fresh_process(script, folder, out):
    """Runs `script` where no cache, no network, no stdin and no copy of this package is at hand."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON", "TRANSFORMERS"))}
    env |= {"HF_HOME": str(out / "home"), "HF_MODULES_CACHE": str(out / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script, str(folder), str(out)],
        cwd=out,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def inputs(make_inputs, page):
    return {name: dict(make_inputs([page()], token_budget=b)) for name, b in (("pruned", 9), ("full", "full"))}


@pytest.fixture(scope="module")
def expected(tiny_model, inputs):
    with torch.no_grad():
        plain = {name: tiny_model()(**value).logits for name, value in inputs.items()}
        return plain | {str(mode): tiny_model()(**inputs["pruned"], **mode).logits for mode in MODES}


@pytest.fixture(scope="module")
def loaded(tiny_model, processor, inputs, page, tmp_path_factory):
    """(folder, out, result) of a saved folder that was copied and loaded by a fresh process."""
    saved, out = tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("out")
    tiny_model().save_pretrained(saved / "model")
    processor.save_pretrained(saved / "model")
    folder = tmp_path_factory.mktemp("elsewhere") / "a model"
    shutil.copytree(saved / "model", folder)
    shutil.rmtree(saved)
    torch.save(inputs, folder / "inputs.pt")
    page().save(folder / "page.png")
    (folder / "modes.json").write_text(json.dumps(MODES))
    fresh_process(LOAD, folder, out)
    return folder, out, json.loads((out / "result.json").read_text())


def test_the_hub_copy_has_the_same_logits(loaded, expected, report):
    logits = torch.load(loaded[1] / "logits.pt")
    for name, value in expected.items():
        assert report("Hub copy - original", (logits[name] - value).abs().max()) == 0
    assert loaded[2]["encoded once"]


def test_every_loader_gives_the_class_of_the_folder(loaded):
    result = loaded[2]
    assert result["class"] == ["ARRCOCQwen3VLForConditionalGeneration", "transformers_modules"]
    assert result["same class"]
    assert result["processor"] == ["ARRCOCProcessor", "transformers_modules"]
    assert result["the model's arguments through a pipeline"] == 0.5
    assert result["pipeline"] == [True, "ARRCOCQwen3VLForConditionalGeneration"]
    assert result["processor's inputs"]


def test_the_loaded_tensors_are_those_of_the_file(loaded):
    assert loaded[2]["tensors"]


def test_without_trust_remote_code_nothing_loads(loaded):
    assert "loaded untrusted" not in loaded[2]
    assert "trust_remote_code" in loaded[2]["untrusted"]


def test_an_older_release_is_refused_in_words(loaded):
    assert "5.19.0 is installed; run: pip install 'transformers>=5.20" in loaded[2]["older release"].replace("\n", " ")


def test_the_folder_is_complete_and_names_every_loader(loaded):
    folder = loaded[0]
    maps = json.loads((folder / "config.json").read_text())["auto_map"]
    assert set(maps) >= {"AutoConfig", "AutoModel", "AutoModelForImageTextToText", "AutoModelForMultimodalLM"}
    maps |= json.loads((folder / "processor_config.json").read_text())["auto_map"]
    for name in ("AutoConfig", "AutoModel", "AutoModelForImageTextToText", "AutoProcessor"):
        assert (folder / f"{maps[name].split('.')[0]}.py").exists()
    written = {path.name for path in folder.glob("*.py")}
    from arrcoc import upload

    assert written == set(upload.CODE_FILES)


def test_what_the_hub_copy_saves_loads_again(loaded, expected):
    folder, out, _ = loaded
    fresh_process(RELOAD, folder, out)
    logits = torch.load(out / "logits_again.pt")
    assert all(torch.equal(value, expected[name]) for name, value in logits.items())
    assert {path.name for path in folder.glob("*.py")} == {path.name for path in (out / "again").glob("*.py")}
    configs = [json.loads((where / "config.json").read_text()) for where in (folder, out / "again")]
    assert dials(configs[0]) == dials(configs[1])


def dials(config: dict) -> dict:
    """`config` without what says where and as which dtype it was loaded."""
    config = {name: value for name, value in config.items() if name not in ("dtype", "_name_or_path")}
    return {name: dials(value) if isinstance(value, dict) else value for name, value in config.items()}


@pytest.fixture
def folder(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    return tmp_path


def load(folder, **options):
    return ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, **options)


def test_a_model_that_fsdp_shards_is_saved_with_the_code_of_its_own_class(tiny_config, new_model, tmp_path):
    model, plain, sharded = new_model(tiny_config()), tmp_path / "plain", tmp_path / "sharded"
    model.save_pretrained(plain)
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        before = type(model)
        assert before is not ARRCOCQwen3VLForConditionalGeneration
        model.save_pretrained(sharded, True, whole)  # in the order of transformers' own
        assert type(model) is before
    finally:
        dist.destroy_process_group()
    assert {path.name for path in sharded.iterdir()} == {path.name for path in plain.iterdir()}
    configs = [json.loads((where / "config.json").read_text()) for where in (plain, sharded)]
    assert configs[0] == configs[1]


def test_an_adapter_that_can_not_be_read_this_way_is_told(tiny_model):
    lost = {"missing_keys": {"model.layers.0.q_proj.lora_magnitude_vector.default.weight"}, "unexpected_keys": set()}
    with pytest.raises(ValueError, match=r"PeftModel\.from_pretrained\(model, FOLDER\)"):
        check_loaded(tiny_model(), lost)


@pytest.mark.parametrize("beside", [(), (type("Mixin", (), {"__module__": "a_file"}),)])
def test_a_subclass_without_a_file_is_saved_as_its_parent(beside, tiny_config, new_model, tmp_path):
    model, parent, own = new_model(tiny_config()), tmp_path / "parent", tmp_path / "own"
    model.save_pretrained(parent)
    model.__class__ = mine = type("Mine", (*beside, type(model)), {"__module__": "__main__"})
    model.save_pretrained(own)
    assert type(model) is mine
    assert {path.name for path in own.iterdir()} == {path.name for path in parent.iterdir()}
    assert (own / "config.json").read_text() == (parent / "config.json").read_text()


@torch.no_grad()
def test_saving_in_shards_changes_nothing(tiny_model, inputs, expected, tmp_path):
    tiny_model().save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert torch.equal(load(tmp_path).eval()(**inputs["pruned"]).logits, expected["pruned"])


def test_an_allocator_alone_fits_a_layer_with_pooled_cells_and_one_without(tiny_config, new_model):
    plain, pooled = (new_model(tiny_config(coarse_share=share)).model.arrcoc for share in (0.0, 0.3))
    for held, wanted in ((plain, pooled), (pooled, plain), (plain, plain)):
        found = fitted(held.state_dict(), wanted)
        assert found.keys() == wanted.state_dict().keys()
        shared = held.state_dict().keys() & found.keys()
        assert all(torch.equal(found[name], held.state_dict()[name]) for name in shared)


def test_saving_and_loading_keeps_every_tensor_and_dial(tiny_config, new_model, tmp_path):
    model = new_model(tiny_config(coarse_share=0.3, min_deepstack_levels=1, diversity=0.1))
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    buffers = dict(again.named_buffers())
    for name, value in model.named_buffers():  # those that no file holds, too
        assert torch.equal(value, buffers[name]), name
    read = dials(again.config.to_dict())
    assert {name for name, value in dials(model.config.to_dict()).items() if read[name] != value} == set()


@torch.no_grad()
def test_a_stock_checkpoint_loads_with_only_the_allocator_new(tiny_model, stock_twin, inputs, tmp_path):
    model = tiny_model(awake=False)
    stock_twin(model).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "qwen3_vl"
    loaded, info = load(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == {name for name in loaded.state_dict() if ".arrcoc." in name}
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    loaded.eval()
    assert torch.equal(loaded(**inputs["full"]).logits, model(**inputs["full"]).logits)
    # A fresh allocator is neutral: whatever its random parts are, the choice is the same.
    assert torch.equal(loaded(**inputs["pruned"]).logits, model(**inputs["pruned"]).logits)


@torch.no_grad()
def test_a_bfloat16_checkpoint_keeps_the_allocator_in_float32(tiny_model, stock_twin, inputs, tmp_path):
    """Also where the checkpoint is stock's and the allocator is new."""
    tiny_model().save_pretrained(tmp_path / "ours")
    stock_twin(tiny_model()).save_pretrained(tmp_path / "stock")
    for folder in ("ours", "stock"):
        loaded = load(tmp_path / folder, dtype=torch.bfloat16).eval()
        assert loaded.dtype == torch.bfloat16
        assert {p.dtype for p in loaded.model.arrcoc.parameters()} == {torch.float32}
        assert torch.isfinite(loaded(**inputs["pruned"]).logits).all()


BROKEN = {
    "a lost tensor of the base": (
        lambda s: s.pop("model.visual.merger.linear_fc1.weight"),
        "lacks 1 tensors.*linear_fc1",
    ),
    "a lost tensor of the allocator": (lambda s: s.pop("model.arrcoc.participation.gate"), "lacks 1 tensors.*gate"),
    "a renamed tensor": (
        lambda s: s.update({"model.visual.merger.renamed": s.pop("model.visual.merger.linear_fc1.weight")}),
        "lacks 1 tensors.*renamed",
    ),
    "NaN in the base": (lambda s: s["model.visual.merger.linear_fc1.weight"].fill_(torch.nan), "holds NaN"),
    "infinity in the allocator": (lambda s: s["model.arrcoc.participation.gate"].fill_(torch.inf), "holds NaN or inf"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_refused(name, folder):
    state = load_file(folder / "model.safetensors")
    breaks, words = BROKEN[name]
    breaks(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=words):
        load(folder)


def test_a_truncated_file_is_refused(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="a file of them is cut off or damaged"):
        load(folder)
