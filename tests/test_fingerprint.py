"""By what an allocator file knows its base: everything that a scorer reads counts, each alone, and nothing else does."""

import pytest
import torch

from training.allocator import load_allocator, read_tensors, save_allocator, write_tensors
from training.average import average
from training.fingerprint import base_fingerprint, tower_fingerprint

TEXT = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
VISION = ("depth", "hidden_size", "patch_size", "spatial_merge_size", "out_hidden_size")


@pytest.fixture
def model(new_model, tiny_config):
    return new_model(tiny_config())


@pytest.mark.parametrize("row", [0, -1], ids=["first row", "last row that is read"])
@pytest.mark.parametrize(
    "name",
    ["model.visual.patch_embed.proj", "model.visual.merger.linear_fc2", "model.language_model.embed_tokens"],
)
@torch.no_grad()
def test_a_base_whose_features_or_words_changed_is_another(name, row, model):
    before = base_fingerprint(model)
    model.get_submodule(name).weight[:64][row] += 1
    assert base_fingerprint(model) != before


@pytest.mark.parametrize(
    ("part", "name"), [*(("text_config", name) for name in TEXT), *(("vision_config", name) for name in VISION)]
)
def test_a_base_of_another_shape_is_another(part, name, model):
    before, config = base_fingerprint(model), getattr(model.config, part)
    setattr(config, name, getattr(config, name) + 1)
    assert base_fingerprint(model) != before


def test_a_base_with_other_deepstack_levels_is_another(model):
    before = base_fingerprint(model)
    model.config.vision_config.deepstack_visual_indexes = [0, 1]
    assert base_fingerprint(model) != before


@torch.no_grad()
def test_the_language_models_layers_the_allocator_and_the_dtype_do_not_count(model):
    before = base_fingerprint(model)
    for part in (model.model.language_model.layers, model.model.language_model.norm, model.model.arrcoc):
        for parameter in part.parameters():
            parameter += 1
    assert base_fingerprint(model) == before
    assert base_fingerprint(model.to(torch.bfloat16)) == before


@torch.no_grad()
def test_a_float16_copy_takes_the_allocator_of_its_base(model, tmp_path):
    """It has lost what is below 6e-8, and bits of what is below 6e-5, so its own bfloat16 fingerprint is another."""
    weight = model.get_input_embeddings().weight
    weight[0, :3] = torch.tensor([1.5e-9, 3.3e-8, 1.2345e-6])
    model.to(torch.bfloat16)
    save_allocator(model, tmp_path / "new.safetensors")
    before = base_fingerprint(model)
    model.to(torch.float16)
    assert base_fingerprint(model) != before
    load_allocator(model, tmp_path / "new.safetensors")
    tensors, metadata = read_tensors(tmp_path / "new.safetensors")
    write_tensors(tmp_path / "old.safetensors", tensors, {k: v for k, v in metadata.items() if k != "base_float16"})
    with pytest.raises(
        ValueError, match="In float16 its own base may look like another where the file is of older code"
    ):
        load_allocator(model, tmp_path / "old.safetensors")
    save_allocator(model, tmp_path / "from_float16.safetensors")
    load_allocator(model, tmp_path / "from_float16.safetensors")
    for names in (("new", "old"), ("old", "new")):
        mean = average([tmp_path / f"{name}.safetensors" for name in names], tmp_path / "mean.safetensors")
        load_allocator(model, mean)
    with pytest.raises(ValueError, match="is one of the files that are read and would be lost"):
        average([tmp_path / "new.safetensors", mean], mean)
    weight = model.get_input_embeddings().weight
    weight[1] += 1
    with pytest.raises(ValueError, match="was trained on base"):
        load_allocator(model, tmp_path / "new.safetensors")


TOWER = ("blocks.0.attn.qkv", "blocks.1.mlp.linear_fc2", "deepstack_merger_list.0.linear_fc1", "pos_embed")


@pytest.mark.parametrize("name", [*(f"model.visual.{part}" for part in TOWER), "model.language_model.embed_tokens"])
@torch.no_grad()
def test_an_allocator_is_refused_by_a_tuned_tower_or_tuned_words(name, model, tmp_path):
    save_allocator(model, tmp_path / "new.safetensors")
    tensors, metadata = read_tensors(tmp_path / "new.safetensors")
    later = {name: text for name, text in metadata.items() if not name.startswith("tower")}
    write_tensors(tmp_path / "old.safetensors", tensors, later)
    weight = model.get_submodule(name).weight
    weight[64 if "embed_tokens" in name else 0 :] += 1
    with pytest.raises(ValueError, match="with another vision tower or other embeddings; load the base"):
        load_allocator(model, tmp_path / "new.safetensors")
    load_allocator(model, tmp_path / "old.safetensors")  # of older code, which did not look


@torch.no_grad()
def test_a_base_with_tokens_added_takes_its_allocator_and_one_with_fewer_does_not(model, tmp_path):
    save_allocator(model, tmp_path / "before.safetensors")
    words = model.config.text_config.vocab_size
    model.resize_token_embeddings(words + 3)
    load_allocator(model, tmp_path / "before.safetensors")
    save_allocator(model, tmp_path / "after.safetensors")
    load_allocator(model, tmp_path / "after.safetensors")
    model.resize_token_embeddings(words)
    load_allocator(model, tmp_path / "before.safetensors")
    with pytest.raises(ValueError, match="was trained on base"):
        load_allocator(model, tmp_path / "after.safetensors")


@torch.no_grad()
def test_what_can_not_be_read_of_a_tower_is_not_compared(model, tmp_path):
    save_allocator(model, tmp_path / "new.safetensors")
    model.model.visual.blocks[0].to("meta")
    assert tower_fingerprint(model, torch.bfloat16) is None
    load_allocator(model, tmp_path / "new.safetensors")
