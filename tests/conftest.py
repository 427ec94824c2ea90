"""Fixtures that all tests share: the small checkpoint, random models of other shapes, pictures and inputs."""

import copy
import gc
import math
import os
import sys
import zlib
from pathlib import Path

if os.environ.get("ARRCOC_QUANT"):  # before transformers, which asks once for what is installed
    sys.path.append(os.environ["ARRCOC_QUANT"])

import pytest
import torch
from PIL import Image, ImageDraw
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration

# ARRCOC_CHECKPOINT runs the tests on another checkpoint than the bundled one.
CHECKPOINT = Path(
    os.environ.get("ARRCOC_CHECKPOINT") or Path(__file__).parents[1] / "checkpoints" / "arrcoc-small"
).resolve()
QUESTION = "what is the total?"


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """Folder of the bundled checkpoint."""
    if not (CHECKPOINT / "model.safetensors").exists():
        pytest.skip(f"{CHECKPOINT} has no weights; train it with training/train_base.py")
    return CHECKPOINT


@pytest.fixture(scope="session")
def compiler():
    """Skips what compiles a model where stock Qwen3-VL can't be compiled."""
    if not hasattr(torch.compiler, "is_exporting"):
        pytest.skip(f"transformers asks a newer torch than {torch.__version__} whether it is exporting")


@pytest.fixture(scope="session")
def processor(checkpoint):
    """The checkpoint's processor; not to be changed, see `make_processor`."""
    return ARRCOCProcessor.from_pretrained(checkpoint)


@pytest.fixture(scope="session")
def model(checkpoint):
    """The checkpoint in float32, in eval mode; not to be changed."""
    return ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def stock(model):
    """Stock Qwen3-VL with the weights of `model`."""
    return stock_twin(model)


def stock_config(config) -> Qwen3VLConfig:
    own = set(ARRCOCQwen3VLConfig.__dataclass_fields__) - set(Qwen3VLConfig.__dataclass_fields__)
    values = {name: value for name, value in config.to_dict().items() if name not in own}
    return Qwen3VLConfig(**{name: value for name, value in values.items() if name not in ("model_type", "auto_map")})


def stock_twin(model) -> Qwen3VLForConditionalGeneration:
    twin = Qwen3VLForConditionalGeneration(stock_config(model.config))
    state = {name: value for name, value in model.state_dict().items() if ".arrcoc." not in name}
    twin.load_state_dict(state)
    twin.to(model.dtype).train(model.training)
    twin.generation_config = copy.deepcopy(model.generation_config)
    twin.set_attn_implementation(model.config._attn_implementation)
    return twin


@pytest.fixture(scope="session", name="stock_twin")
def stock_twin_fixture():
    """`stock_twin(model)`: stock Qwen3-VL with a copy of the weights of `model`."""
    return stock_twin


@pytest.fixture(scope="session")
def tiny_config(processor):
    """`tiny_config(vision={...}, text={...}, **dials)`: a config of about 60k parameters with the checkpoint's vocabulary."""

    def build(vision=(), text=(), **dials) -> ARRCOCQwen3VLConfig:
        token = processor.tokenizer.convert_tokens_to_ids
        vision_config = {
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1, 2],
            "out_hidden_size": 48,
        }
        text_config = {
            "vocab_size": -(-len(processor.tokenizer) // 64) * 64,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "pad_token_id": processor.tokenizer.pad_token_id,
        }
        small = {"scorer_hidden_size": 16, "scorer_heads": 2, "perspective_channels": 4, "coarse_view_min_tokens": 1}
        dials = small | dials
        return ARRCOCQwen3VLConfig(
            text_config=text_config | dict(text),
            vision_config=vision_config | dict(vision),
            image_token_id=token("<|image_pad|>"),
            video_token_id=token("<|video_pad|>"),
            vision_start_token_id=token("<|vision_start|>"),
            vision_end_token_id=token("<|vision_end|>"),
            tie_word_embeddings=True,
            **dials,
        )

    return build


# Other shapes than the checkpoint's: each is a set of arguments of `tiny_config`.
SHAPES = {
    "default": {},
    "no_deepstack": {"vision": {"deepstack_visual_indexes": []}},
    "one_level": {"vision": {"deepstack_visual_indexes": [1]}},
    "patch_14": {"vision": {"patch_size": 14, "num_position_embeddings": 49}},
    "merge_3": {"vision": {"spatial_merge_size": 3}},
    "merge_1": {"vision": {"spatial_merge_size": 1, "patch_size": 16}},
    "pooled": {"coarse_share": 0.5, "min_deepstack_levels": 1},
}


@pytest.fixture(scope="session")
def tiny_model(tiny_config):
    """`tiny_model(shape="default", awake=True)`: a cached random model of one of `SHAPES`, in eval mode; not to be changed.

    Its biases are random too, as are, if `awake`, the allocator's parameters: then the question counts.
    """
    made = {}

    def build(shape: str = "default", awake: bool = True) -> ARRCOCQwen3VLForConditionalGeneration:
        if (shape, awake) not in made:
            made[shape, awake] = new_model(tiny_config(**SHAPES[shape]), awake=awake)
        return made[shape, awake]

    return build


def new_model(config, awake: bool = True, seed: int = 0) -> ARRCOCQwen3VLForConditionalGeneration:
    torch.manual_seed(seed)
    model = ARRCOCQwen3VLForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".arrcoc." not in name:
                # Large enough that positions and DeepStack levels show in the logits, which 0.02 hides.
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    if awake:
        wake(model)
    # No end-of-turn token: tests get as many steps as they ask for. A trained model never says a placeholder.
    model.generation_config.pad_token_id = config.text_config.pad_token_id
    model.generation_config.suppress_tokens = [config.image_token_id, config.video_token_id]
    return model


@torch.no_grad()
def wake(model):
    for name, parameter in model.model.arrcoc.named_parameters():
        own = torch.Generator().manual_seed(zlib.crc32(name.encode()))  # whatever other parameters there are
        # tensions that are not at their ends, so that they leave room for pooled cells
        parameter.add_(torch.randn(parameter.shape, generator=own), alpha=0.02 if ".tension." in name else 0.5)
        if name.endswith("gate"):
            parameter.fill_(1)


@pytest.fixture(scope="session")
def tiny_folder(tiny_model, processor, tmp_path_factory):
    """A folder with a model of 60k parameters and the processor, without code files; not to be changed."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session", name="new_model")
def new_model_fixture():
    """`new_model(config, awake=True, seed=0)`: a random model that the test may change."""
    return new_model


@pytest.fixture(scope="session", name="wake")
def wake_fixture():
    """`wake(model)`: makes the allocator's parameters random, so that the question counts."""
    return wake


@pytest.fixture(scope="session")
def make_processor(checkpoint):
    """`make_processor(model=None, **dials)`: a processor of the caller's own, for the patch and merge sizes of `model`."""

    def build(model=None, **dials) -> ARRCOCProcessor:
        processor = ARRCOCProcessor.from_pretrained(checkpoint, **dials)
        if model is not None:
            vision = model.config.vision_config
            processor.image_processor.patch_size = vision.patch_size
            processor.image_processor.merge_size = vision.spatial_merge_size
            processor.image_processor.temporal_patch_size = vision.temporal_patch_size
        return processor

    return build


def draw_page(width: int = 128, height: int = 96, seed: int = 0) -> Image.Image:
    """A white page with lines of text and coloured shapes; another seed draws another page."""
    random = torch.Generator().manual_seed(seed)

    def number(high: int) -> int:
        return int(torch.randint(max(1, high), (), generator=random))

    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        left, top = number(width - 8), number(height - 8)
        colour = (number(256), number(256), number(256))
        draw.rectangle([left, top, left + 4 + number(width // 4), top + 4 + number(height // 4)], fill=colour)
    for line in range(0, height, 16):
        draw.text((number(width // 3), line), f"{seed}{line} total {number(9999)}", fill="black")
    return image


@pytest.fixture(scope="session")
def page():
    """`page(width=128, height=96, seed=0)`: a PIL picture of a drawn page."""
    return draw_page


def chat(pictures, question: str = QUESTION) -> list[dict]:
    pictures = [pictures] if isinstance(pictures, Image.Image) else list(pictures)
    images = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*images, {"type": "text", "text": question}]}]


@pytest.fixture(scope="session", name="chat")
def chat_fixture():
    """`chat(pictures, question=...)`: messages of one user turn with one picture or several."""
    return chat


@pytest.fixture(scope="session")
def make_inputs(processor):
    """`make_inputs(pictures, question=..., token_budget=..., processor=..., padding_side=...)`: a batch of chats.

    `pictures` is one PIL picture, or a list with one entry per chat, each a picture or a list of pictures; `question` is one text,
    or a list with one entry per chat.
    """
    default = processor

    def build(pictures, question=QUESTION, token_budget=None, processor=None, padding_side="left"):
        chats = [pictures] if isinstance(pictures, Image.Image) else list(pictures)
        questions = [question] * len(chats) if isinstance(question, str) else question
        return (processor or default).apply_chat_template(
            [chat(entry, text) for entry, text in zip(chats, questions, strict=True)],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"token_budget": token_budget, "padding": True, "padding_side": padding_side},
        )

    return build


@pytest.fixture
def report(record_property):
    """`report(name, value)`: keeps the largest value measured under `name` for the table at the end of the run."""

    def keep(name: str, value) -> float:
        value = float(torch.as_tensor(value).detach())
        assert math.isfinite(value), f"{name}: {value}"  # which max() of several would lose
        record_property(f"measured: {name}", value)
        return value

    return keep


def pytest_collection_finish():
    """What was imported stays until the end: the collector need not walk through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Prints the figures that tests reported, from all worker processes: name, number of measurements, largest value."""
    figures: dict[str, list[float]] = {}
    for outcome in terminalreporter.stats.values():
        for test in outcome:
            if getattr(test, "when", None) != "call":
                continue
            for name, value in test.user_properties:
                if name.startswith("measured: "):
                    figures.setdefault(name.removeprefix("measured: "), []).append(value)
    if not figures:
        return
    terminalreporter.section("measured")
    width = max(map(len, figures))
    for name, values in sorted(figures.items()):
        terminalreporter.write_line(f"{name:<{width}}  {len(values):>4} x  max {max(values):.3g}")
