"""Bad and unusual inputs: each works, or raises an error that says what to do, and leaves processor and model as they were.

Refusals go: a good input works, one thing is broken, the error names it, and repaired it works again.
"""

import base64
import copy
import inspect
import json
import logging
import re
import shutil
import struct
from io import BytesIO

import numpy as np
import pytest
import torch
from jinja2 import TemplateError
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, Qwen3VLForConditionalGeneration
from transformers.image_transforms import convert_to_rgb
from transformers.utils import is_torchvision_available
from transformers.utils.logging import warning_once

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.modeling_arrcoc_qwen import ARRCOCQwen3VLModel
from arrcoc.picture import open_picture, upright

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
PROMPT = f"<|im_start|>user\n{IMAGE}what is it?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def model(tiny_model):
    return tiny_model()


@pytest.fixture(autouse=True)
def unchanged(processor, model):
    """Fails a test that leaves anything changed on the shared processor or model."""
    before = state_of(processor, model)
    yield
    after = state_of(processor, model)
    assert before.keys() == after.keys()
    for name, value in before.items():
        equal = torch.equal(value, after[name]) if isinstance(value, torch.Tensor) else value == after[name]
        assert equal, f"{name} has changed"


def state_of(processor, model) -> dict:
    """Everything that a call could change: weights, buffers, plain attributes of all modules, configs, tokens."""
    state = {f"weight {name}": value.clone() for name, value in model.state_dict().items()}
    for name, buffer in model.named_buffers():
        state[f"buffer {name}"] = buffer.clone()
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, (bool, int, float, str, torch.Tensor, type(None))) and name != "rope_deltas":
                state[f"{path}.{name}"] = value.clone() if isinstance(value, torch.Tensor) else value
    state["config"] = copy.deepcopy(model.config.to_dict())
    state["generation config"] = copy.deepcopy(model.generation_config.to_dict())
    state["processor"] = copy.deepcopy(processor.to_dict())
    state["processor attributes"] = sorted(vars(processor))
    state["vocabulary"] = len(processor.tokenizer)
    state["padding side"] = processor.tokenizer.padding_side
    return state


def call(processor, images, text=PROMPT, **kwargs):
    return processor(images=images, text=text, return_tensors="pt", **{"token_budget": 4} | kwargs)


@torch.no_grad()
def answer(processor, model, images, **kwargs) -> torch.Tensor:
    """The whole way, from a picture to logits; they must be finite."""
    logits = model(**call(processor, images, **kwargs)).logits
    assert logits.isfinite().all()
    return logits


# --- pictures that are refused


@pytest.fixture
def files(page, tmp_path):
    """Files that are no readable picture, by name, and the good one that they were made of."""
    page().save(tmp_path / "good.png")
    page().save(tmp_path / "good.jpg")
    png, jpg = ((tmp_path / name).read_bytes() for name in ("good.png", "good.jpg"))
    broken = {
        "truncated.png": png[: len(png) // 2],
        "header.png": png[:20],
        "truncated.jpg": jpg[: len(jpg) // 2],
        "flipped.png": png[:60] + bytes(255 - byte for byte in png[60:90]) + png[90:],
        "empty.png": b"",
        "text.png": b"this is no picture",
        "page.pdf": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "vector.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.png").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("truncated.png", "truncated"),
        ("header.png", "truncated|not a picture that PIL reads"),
        ("truncated.jpg", "truncated"),
        ("flipped.png", "can't be read as a picture"),
        ("empty.png", "not a picture that PIL reads"),
        ("text.png", "not a picture that PIL reads; convert it to PNG or JPEG"),
        ("page.pdf", "not a picture that PIL reads"),
        ("vector.svg", "not a picture that PIL reads"),
        ("folder.png", "there is no image file"),
        ("missing.png", "there is no image file .* check the path"),
    ],
)
def test_files_that_are_no_picture(processor, files, name, says):
    """As a path, as a string, among good ones, and within a chat; the message names the file."""
    path = files / name
    messages = [{"role": "user", "content": [{"type": "image", "path": str(path)}, {"type": "text", "text": "what?"}]}]
    attempts = [
        lambda: call(processor, path),
        lambda: call(processor, str(path)),
        lambda: call(processor, [files / "good.png", path], [PROMPT, PROMPT], padding=True),
        lambda: processor.apply_chat_template(messages, tokenize=True, return_dict=True),
    ]
    for attempt in attempts:
        with pytest.raises((ValueError, FileNotFoundError), match=says) as error:
            attempt()
        assert name in str(error.value)
    messages[0]["content"][0]["path"] = str(files / "good.png")
    assert "pixel_values" in processor.apply_chat_template(messages, tokenize=True, return_dict=True)
    assert call(processor, files / "good.jpg")["image_token_counts"].tolist() == [4]


@pytest.mark.parametrize("name", ["truncated.png", "truncated.jpg", "flipped.png"])
def test_a_damaged_picture_that_pil_opens_lazily(processor, files, name):
    with Image.open(files / name) as image, pytest.raises(ValueError, match="the image can't be read as a picture"):
        call(processor, image)


def test_base64_that_is_no_picture(processor, files):
    """The message shows the beginning of the text, not all of it."""
    for content in (b"no picture " * 60, (files / "good.png").read_bytes()[:-300]):
        text = base64.b64encode(content).decode()
        for form in (text, "data:image/png;base64," + text):
            with pytest.raises(ValueError, match=r"the base64 text .* picture") as error:
                call(processor, form)
            assert len(str(error.value)) < 250
    with pytest.raises(ValueError, match="can't be decoded"):
        call(processor, "data:image/png;base64,abc")
    text = base64.b64encode((files / "good.png").read_bytes()).decode()
    assert call(processor, text)["image_token_counts"].tolist() == [4]


def test_a_file_as_bytes_as_a_url_and_as_datasets_has_it(processor, files):
    """Undecoded rows of `datasets`, and the file:// of Qwen's own examples."""
    good, path = (files / "good.png").read_bytes(), files / "a page.png"
    path.write_bytes(good)
    want = call(processor, Image.open(path))
    for form in (
        good,
        bytearray(good),
        memoryview(good),
        BytesIO(good),
        {"bytes": good, "path": None},
        {"bytes": None, "path": str(path)},
        path.as_uri(),
    ):
        got = call(processor, form)
        assert all(torch.equal(got[name], want[name]) for name in ("pixel_values", "texture_images"))
    with path.open("rb") as file:
        assert torch.equal(call(processor, file)["pixel_values"], want["pixel_values"])
    with path.open("rb") as file:
        conversation = [
            {"role": "user", "content": [{"type": "image", "image": file}, {"type": "text", "text": "what?"}]}
        ]
        chat = processor.apply_chat_template(conversation, tokenize=True, return_dict=True, return_tensors="pt")
    assert torch.equal(chat["pixel_values"], want["pixel_values"])
    with pytest.raises(ValueError, match="the picture in bytes can't be read"):
        call(processor, good[:-300])
    with pytest.raises(ValueError, match="the picture in the open file is not a picture that PIL reads"):
        call(processor, BytesIO(b"no picture"))
    with pytest.raises(FileNotFoundError, match=r"no image file '.*none\.png'"):
        call(processor, (files / "none.png").as_uri())


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_no_pixels(processor, size):
    with pytest.raises(ValueError, match=f"{size[0]} x {size[1]} pixels; pass an image with at least one pixel"):
        call(processor, Image.new("RGB", size))
    with pytest.raises(ValueError, match=re.escape(f"({size[1]}, {size[0]}, 3); pass (height, width, 3)")):
        call(processor, np.zeros((size[1], size[0], 3), np.uint8))
    call(processor, Image.new("RGB", (1, 1)))


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.full((8, 8, 3), np.nan), "NaN or infinity; pass finite values"),
        (np.full((8, 8, 3), np.inf, np.float32), "NaN or infinity"),
        (np.full((8, 8, 3), 1.2, np.float32), "up to 1.2, which may be of 0 to 1 or of 0 to 255; clip them"),
        (torch.full((3, 8, 8), torch.nan), "NaN or infinity"),
        (torch.full((3, 8, 8), torch.nan, dtype=torch.bfloat16), "NaN or infinity"),
        (np.full((8, 8, 3), -0.5), "values -0.5 to -0.5; pass 0 to 1 or 0 to 255, not normalized"),
        (np.full((8, 8, 3), 256.0), "values 256 to 256"),
        (np.full((8, 8, 3), 40000, np.uint16), "dtype uint16; pass uint8"),
        (np.full((8, 8, 3), 256, np.int64), "dtype int64; pass uint8"),
        (np.zeros((8, 8, 3), bool), "dtype bool; pass uint8"),
        (torch.full((3, 8, 8), -1, dtype=torch.int32), "dtype int32; pass uint8"),
        (np.zeros((8, 8, 5), np.uint8), r"shape \(8, 8, 5\); pass \(height, width, 3\)"),
        (np.zeros((4, 8, 4), np.uint8), r"shape \(4, 8, 4\), whose channels may be first or last"),
        (np.zeros((8, 8, 2), np.uint8), r"shape \(8, 8, 2\)"),
        (np.zeros((1, 8, 3), np.uint8), r"shape \(1, 8, 3\), whose channels may be first or last"),
        (np.zeros((3, 8, 3), np.uint8), "channels may be first or last; pass input_data_format"),
        (np.zeros((3, 8, 1), np.uint8), "channels may be first or last"),
        (np.zeros((2, 2, 2, 8, 8), np.uint8), r"shape \(2, 2, 2, 8, 8\)"),
    ],
)
def test_arrays_that_are_no_picture(processor, array, says):
    with pytest.raises(ValueError, match=says):
        call(processor, array)


def test_what_is_no_image_at_all(processor):
    for wrong in (5, {"image": 1}, object()):
        with pytest.raises((TypeError, ValueError)):
            call(processor, wrong)
        with pytest.raises((TypeError, ValueError)):
            call(processor, [wrong])


def test_pictures_of_floating_point_pixels(processor):
    with pytest.raises(ValueError, match="floating-point pixels of unknown scale; convert it to 8-bit RGB"):
        call(processor, Image.new("F", (32, 32), 0.5))
    with pytest.raises(ValueError, match=r"values -1 to -1; 16-bit pictures have 0 to 65535"):
        call(processor, Image.new("I", (32, 32), -1))
    with pytest.raises(ValueError, match="values 70000 to 70000"):
        call(processor, Image.new("I", (32, 32), 70000))


# --- unusual pictures that work


@pytest.mark.parametrize("size", [(2000, 10), (10, 2000)])
def test_strip_of_200_to_1(processor, model, size):
    """250 patches by 2: 125 cells. One more pixel of length is beyond what Qwen3-VL takes."""
    inputs = call(processor, Image.new("RGB", size, "white"), token_budget="full")
    assert inputs["image_token_counts"].tolist() == [125]
    for budget in (1, 7, 124, "full"):
        answer(processor, model, Image.new("RGB", size, "white"), token_budget=budget)
    longer = tuple(side + 10 if side == 2000 else side for side in size)
    with pytest.raises(ValueError, match=f"picture 0 .* {longer[0]} x {longer[1]} pixels; one side may be 200 times"):
        call(processor, Image.new("RGB", longer))


def test_a_picture_that_is_not_resized_has_whole_cells(processor, page):
    given = {"do_resize": False, "token_budget": "full"}
    assert call(processor, page(), **given)["image_token_counts"].tolist() == [48]
    odd = [page(), Image.new("RGB", (100, 64))]
    with pytest.raises(ValueError, match=r"picture 1 .* 100 x 64 pixels; with do_resize=False both must be .* of 16"):
        call(processor, odd, [PROMPT] * 2, padding=True, images_kwargs={"do_resize": False})


@pytest.mark.parametrize("name", ["patch_size", "temporal_patch_size", "merge_size"])
@pytest.mark.parametrize("nested", [False, True])
def test_an_image_is_not_cut_otherwise_than_the_model_knows(processor, name, nested):
    own, picture = getattr(processor.image_processor, name), Image.new("RGB", (64, 64))
    given = {name: own} if not nested else {"images_kwargs": {name: own}}
    assert call(processor, picture, token_budget="full", **given)["image_token_counts"].tolist() == [16]
    given = {name: own + 1} if not nested else {"images_kwargs": {name: own + 1}}
    with pytest.raises(
        ValueError, match=rf"{name}={own + 1} cuts an image otherwise than the {own} that the model was made for"
    ):
        call(processor, picture, **given)


@pytest.mark.parametrize(
    ("empty", "says"),
    [
        ({"bytes": None, "path": None}, "neither bytes nor a path"),
        ({"bytes": b""}, "neither bytes nor a path"),
        (np.zeros((0, 8, 8, 3), np.uint8), r"an array of shape \(0, 8, 8, 3\) holds no picture"),
        (torch.zeros(0, 3, 8, 8), r"an array of shape \(0, 3, 8, 8\) holds no picture"),
    ],
)
def test_what_holds_no_picture_is_told(processor, page, empty, says):
    for given in (empty, [page(), empty]):
        with pytest.raises(ValueError, match=says):
            call(processor, given, PROMPT)


def test_no_picture_among_several_is_told(processor, page):
    with pytest.raises(ValueError, match=r"entry 1 of images is None; leave it out, or pass \[\]"):
        call(processor, [page(), None], [PROMPT, "hi"], padding=True)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (1, 150), (3, 40), (17, 3)])
@pytest.mark.parametrize("budget", [1, "full", "auto"])
def test_pictures_of_few_pixels(processor, model, size, budget):
    picture = Image.new("RGB", size, "red")
    inputs = call(processor, picture, token_budget=budget)
    cells = int(inputs["image_grid_thw"].prod()) // 4
    assert inputs["image_token_counts"].tolist() == [1 if budget == 1 else cells]  # "auto" gives at least 64
    assert answer(processor, model, picture, token_budget=budget).shape[:2] == inputs["input_ids"].shape


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LAB"])
def test_every_8_bit_mode(processor, model, mode, page):
    picture = page()
    if mode == "RGBa":
        picture = picture.convert("RGBA")
    picture = Image.new("LAB", picture.size, (128, 128, 128)) if mode == "LAB" else picture.convert(mode)
    assert picture.mode == mode
    answer(processor, model, picture)


def test_a_lab_picture_of_another_size_keeps_its_colours(processor):
    picture = Image.new("LAB", (64, 64), (128, 128, 128)).resize((48, 48))  # which leaves 0 where alpha is looked for
    seen = call(processor, picture)["texture_images"]
    assert seen.float().mean() < 200


@pytest.mark.parametrize(("values", "told"), [((0, 1), True), ((0, 255), False), ((1, 1), False), ((0, 0), False)])
def test_a_mask_of_0_and_1_is_told(processor, values, told, caplog, monkeypatch):
    """As a picture of 0 to 255 it is all but black."""
    monkeypatch.setattr(logging.getLogger("arrcoc.picture"), "handlers", [caplog.handler])
    warning_once.cache_clear()  # another test may have been told
    mask = np.full((32, 32, 3), values[0], np.uint8)
    mask[:8] = values[1]
    call(processor, mask)
    assert ("if it is a mask, pass it times 255" in caplog.text) is told


def test_a_closed_picture_is_refused(processor, page, tmp_path):
    page().save(tmp_path / "page.png")
    picture = Image.open(tmp_path / "page.png")
    picture.close()
    with pytest.raises(ValueError, match="truncated or closed"):
        call(processor, picture)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, {"tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}]}),
        ({"tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {}}}]}, {}),
        ({"content": None}, {}),
    ],
    ids=["tools", "tool calls", "no content"],
)
def test_the_bundled_template_drops_nothing_in_silence(change, options, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    message = {"role": "user", "content": "what is the total?"}
    with pytest.raises(TemplateError, match="this template has no place"):
        tokenizer.apply_chat_template([message | change], tokenize=False, **options)
    assert "total" in tokenizer.apply_chat_template([message], tokenize=False)


def test_the_bundled_template_takes_a_part_for_what_its_type_says(checkpoint):
    """Arrow gives every part all fields, those of the others as None."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    empty = {"text": None, "image": None, "image_url": None, "video": None}
    parts = [
        {"type": "image"},
        {"type": "text", "text": "a "},
        {"type": "video"},
        {"text": "b"},
        {"image_url": {"url": "c"}},
    ]
    plain = tokenizer.apply_chat_template([{"role": "user", "content": parts}], tokenize=False)
    seen = "<|vision_start|><|{}_pad|><|vision_end|>"
    assert f"\n{seen.format('image')}a {seen.format('video')}b{seen.format('image')}<|im_end|>" in plain
    filled = [{"role": "user", "content": [empty | part for part in parts]}]
    assert tokenizer.apply_chat_template(filled, tokenize=False) == plain
    named = tokenizer.apply_chat_template([*filled, *filled], tokenize=False, add_vision_id=True)
    assert all(
        f"{name}: {seen.format(name.split()[0].lower().replace('picture', 'image'))}" in named
        for name in ("Picture 4", "Video 2")
    )
    with pytest.raises(TemplateError, match="must be text, image or video"):
        tokenizer.apply_chat_template([{"role": "user", "content": [empty | {"type": "text"}]}], tokenize=False)


def test_a_broken_transparency_is_named(processor, page):
    picture = page()
    picture.info["transparency"] = b"\x00\x01"
    with pytest.raises(ValueError, match=r"transparency b'.*', which PIL can't convert; save it without that"):
        call(processor, picture)


def test_mode_that_pil_cannot_convert(processor, page):
    picture = page().convert("LA").convert("La")
    with pytest.raises(ValueError, match="mode La, which PIL can't convert; convert it to 8-bit RGB"):
        call(processor, picture)
    call(processor, picture.convert("LA"))


def see_through(kind):
    """A picture of 64 x 64, transparent but for its middle."""
    picture = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    picture.paste((200, 100, 50, 255), (16, 16, 48, 48))
    picture.paste((200, 100, 50, 100), (24, 24, 40, 40))
    if kind in ("RGBA", "LA", "PA"):
        return picture.convert(kind)
    if kind == "P":
        flat = Image.new("P", (64, 64), 0)
        flat.putpalette([0, 0, 0, 200, 100, 50])
        flat.paste(1, (16, 16, 48, 48))
        flat.info["transparency"] = 0
        return flat
    flat = Image.new("RGB", (64, 64), (0, 0, 0))  # a PNG with one colour that counts as transparent
    flat.paste((200, 100, 50), (16, 16, 48, 48))
    flat.info["transparency"] = (0, 0, 0)
    return flat


@pytest.mark.parametrize("kind", ["RGBA", "LA", "PA", "P", "RGB"])
def test_what_is_transparent_is_what_stock_makes_of_it(processor, kind):
    """White from transformers 5.21 on; and the raw picture that is scored is the one that is encoded."""
    picture = see_through(kind)
    inputs = call(processor, picture)
    stock = processor.image_processor([picture], return_tensors="pt")
    assert torch.equal(inputs["pixel_values"], stock["pixel_values"])
    (texture,) = inputs["texture_images"]
    white = "return_numpy" in inspect.signature(convert_to_rgb).parameters
    assert texture[:, 0, 0].tolist() == [255 if white else 0] * 3


def test_what_is_transparent_is_warned_of_where_stock_drops_it(monkeypatch):
    monkeypatch.setattr(
        "transformers.image_transforms.convert_to_rgb", lambda image: image.convert("RGB")
    )  # as of 5.20
    told = []
    monkeypatch.setattr(logging.Logger, "warning", lambda self, said, *_: told.append(said))
    warning_once.cache_clear()  # another test may have been told
    open_picture(Image.new("L", (8, 8)))
    assert not told
    assert open_picture(see_through("RGBA")).getpixel((0, 0)) == (0, 0, 0)
    assert told[0].startswith("a picture is transparent in parts, and below transformers 5.21")


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
def test_arrays_with_alpha(processor, first):
    with pytest.raises(ValueError, match="alpha with values above 1"):
        call(processor, np.full((8, 8, 4), 200.0))
    wide = np.zeros((3, 40, 4), np.uint8)
    assert len(call(processor, wide, images_kwargs={"input_data_format": "channels_last"})["texture_images"]) == 1
    broken = Image.new("RGB", (8, 8))
    broken.info["transparency"] = b"\x00"
    with pytest.raises(ValueError, match="mode RGB"):
        call(processor, broken)
    picture = see_through("RGBA")
    array = np.asarray(picture)
    array = np.moveaxis(array, -1, 0) if first else array
    assert torch.equal(call(processor, array)["pixel_values"], call(processor, picture)["pixel_values"])


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I"])
def test_16_bit_pictures_do_not_turn_white(processor, model, mode):
    """257 g is grey g: 0, 25,700 and 65,535 read 0, 100 and 255. PIL's own conversion would clip at 255."""
    values = np.repeat(np.array([[0, 25700, 65535]]), 3, axis=0)
    if mode == "I":
        picture = Image.fromarray(values.astype(np.int32))
    else:
        order = ">" if mode == "I;16B" else "<"
        picture = Image.frombytes(mode, (3, 3), values.astype(f"{order}u2").tobytes())
    assert picture.mode == mode
    large = picture.resize((96, 96), Image.Resampling.NEAREST) if mode == "I" else picture
    inputs = call(processor, large)
    seen = inputs["texture_images"][0, :, 256, [0, -1]].tolist()
    assert seen == [[0, 255]] * 3
    centre = inputs["texture_images"][0, :, 256, 256].tolist()
    assert centre == [100] * 3
    assert inputs["pixel_values"].min() == -1
    assert inputs["pixel_values"].max() == 1
    answer(processor, model, large)


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I"])
def test_8_bit_values_in_a_wider_mode_do_not_turn_black(processor, mode):
    grey = Image.fromarray(np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[None], 32, axis=0))
    wide = grey.convert(mode)
    assert wide.mode == mode
    for name in ("pixel_values", "texture_images"):
        assert torch.equal(call(processor, wide)[name], call(processor, grey)[name])


def test_16_bit_file_and_base64(processor, tmp_path):
    Image.frombytes("I;16", (32, 32), np.full((32, 32), 25700, np.uint16).tobytes()).save(tmp_path / "scan.png")
    text = base64.b64encode((tmp_path / "scan.png").read_bytes()).decode()
    for form in (tmp_path / "scan.png", "data:image/png;base64," + text, Image.open(tmp_path / "scan.png")):
        assert call(processor, form)["texture_images"].unique().tolist() == [100]


def test_8_bit_values_in_a_32_bit_picture_do_not_turn_black(processor):
    assert call(processor, Image.new("I", (32, 32), 200))["texture_images"].unique().tolist() == [200]


def test_exif_orientation(processor):
    """Orientation 6: stored lying, shown standing."""
    lying = Image.new("RGB", (128, 64))
    lying.getexif()[0x0112] = 6
    assert call(processor, lying)["image_grid_thw"].tolist() == [[1, 16, 8]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_once_as_pil_turns_it(orientation):
    image = Image.effect_noise((6, 4), 90).convert("RGB")
    image.getexif()[0x0112] = orientation
    turned = upright(image, "the image")
    assert np.array_equal(np.asarray(turned), np.asarray(ImageOps.exif_transpose(image)))
    assert np.array_equal(np.asarray(upright(turned, "the image")), np.asarray(turned))


@pytest.mark.parametrize(
    ("tag", "kind", "content"),
    [(0x0128, 5, struct.pack("<II", 5, 2)), (0x010F, 5, struct.pack("<II", 5, 2)), (0x011A, 2, b"wide\0")],
    ids=["unit", "make", "resolution"],
)
def test_an_odd_tag_beside_the_orientation_costs_no_picture(processor, tmp_path, tag, kind, content):
    """What a camera wrote in another type than the standard's: PIL reads it, and can't write it."""
    entries = [(tag, kind, len(content) if kind == 2 else 1, 38), (0x0112, 3, 1, 6)]
    fields = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + fields + bytes(4) + content
    path = tmp_path / "page.jpg"
    Image.new("RGB", (128, 64), "white").save(path, exif=exif)
    assert call(processor, path)["image_grid_thw"].tolist() == [[1, 16, 8]]
    with pytest.raises(Exception), Image.open(path) as image:  # noqa: B017, PT011
        ImageOps.exif_transpose(image)  # else it is not odd


def test_first_frame_of_an_animation(processor, tmp_path):
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "page.gif", save_all=True, append_images=frames[1:])
    texture = call(processor, tmp_path / "page.gif")["texture_images"]
    assert texture[0, :, 0, 0].tolist() == [255, 0, 0]


# --- placeholders


def test_a_text_without_placeholders_and_a_prompt_in_the_pictures_place_are_told(processor, page):
    with pytest.raises(ValueError, match=r"placeholder|tokens"):
        call(processor, page(), "hello")
    with pytest.raises(TypeError, match="the first argument is images, and a prompt came; pass both by name"):
        processor(f"{IMAGE}hello", page())


def test_placeholders_and_images_must_agree(processor, page):
    two, one, none = IMAGE * 2 + "what?", IMAGE + "what?", "what?"
    for images, text, says in [
        (None, one, "1 <|image_pad|> tokens in the text but no images"),
        ([], one, "no images were passed"),
        ([page()], none, "total 0 <|image_pad|> tokens and 1 images"),
        ([page()], two, "total 2 <|image_pad|> tokens and 1 images"),
        ([page()] * 2, one, "total 1 <|image_pad|> tokens and 2 images"),
        ([[page()], []], [one, one], "total 2 <|image_pad|> tokens and 1 images"),
    ]:
        with pytest.raises(ValueError, match=re.escape(says)):
            call(processor, images, text, padding=True)
    assert call(processor, [page()] * 2, two)["image_token_counts"].tolist() == [4, 4]


@pytest.mark.parametrize("text", [5, [["what?"]], [None], {"text": "what?"}])
def test_text_that_is_none(processor, page, text):
    with pytest.raises((ValueError, TypeError)):
        call(processor, page(), text)


@pytest.fixture
def inputs(processor, page):
    return call(processor, page(), token_budget=5)


def broken(inputs, **changes):
    made = {**inputs, **changes}
    return {name: value for name, value in made.items() if value is not None}


@pytest.mark.parametrize("method", ["forward", "generate"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda good: {"image_token_counts": good["image_token_counts"] + 1}, r"image_token_counts is \[6\], .* \[5\]"),
        (lambda good: {"texture_images": None}, "texture_images is missing.* make the inputs with ARRCOCProcessor"),
        (lambda good: {"texture_images": good["texture_images"].repeat(2, 1, 1, 1)}, "texture_images holds 2 images"),
        (lambda good: {"texture_images": list(good["texture_images"])}, "texture_images is a list; pass the tensor"),
        (
            lambda good: {"texture_images": good["texture_images"].numpy()},
            "texture_images is a ndarray; pass the tensor",
        ),
        (lambda good: {"texture_images": good["texture_images"].float()}, "dtype torch.float32; wanted torch.uint8"),
        (lambda good: {"query_input_ids": good["query_input_ids"].repeat(2, 1)}, "query_input_ids holds 2 images"),
        (lambda good: {"image_grid_thw": good["image_grid_thw"].repeat(2, 1)}, "prompt has 1 images .* has 2"),
        (
            lambda good: {"image_grid_thw": good["image_grid_thw"][None]},
            r"image_grid_thw is \(1, 1, 3\), wanted \(images, 3\)",
        ),
        (
            lambda good: {"texture_images": good["texture_images"][None]},
            r"wanted \(images, 3, height, width\); where a coll",
        ),
        (
            lambda good: {name: good[name][None] for name in ("query_input_ids", "query_attention_mask")},
            r"query_input_ids is \(1, 1, \d+\), wanted \(images, length\); where a collator stacked",
        ),
        (
            lambda good: {"image_grid_thw": torch.tensor([[1, 7, 8]])},
            r"has \[1, 7, 8\] for image 0; wanted t, h and w in pat",
        ),
        (
            lambda good: {"image_grid_thw": torch.tensor([[2, 6, 8]])},
            "has 2 x 3 x 4 cells for image 0, wanted one frame",
        ),
        (lambda good: {"image_token_counts": torch.tensor([5.0])}, "is no tensor of whole numbers"),
        (lambda good: {"image_token_counts": ["a"]}, r"image_token_counts=\['a'\] is no tensor of whole numbers"),
    ],
)
def test_model_inputs_that_do_not_fit(model, inputs, method, change, says):
    """Each is refused by `forward` and by `generate`, and the good inputs work afterwards, with the same logits."""
    run = model if method == "forward" else lambda **kwargs: model.generate(**kwargs, max_new_tokens=1)
    with torch.no_grad():
        before = model(**inputs).logits
        with pytest.raises(ValueError, match=says):
            run(**broken(inputs, **change(inputs)))
        assert torch.equal(model(**inputs).logits, before)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_a_raw_image_of_wider_numbers_is_the_same_image(model, inputs, dtype):
    """`datasets` gives bytes back as int64."""
    with torch.no_grad():
        wide = {**inputs, "texture_images": inputs["texture_images"].to(dtype)}
        assert torch.equal(model(**wide).logits, model(**inputs).logits)
        encoded = model.encode_images(**wide)
        assert torch.equal(model(**inputs, encoded_images=encoded).logits, model(**inputs).logits)
        with pytest.raises(ValueError, match=r"texture_images holds .* to 300; wanted the raw image, 0 to 255"):
            model(**{**wide, "texture_images": wide["texture_images"] * 0 + 300})


def test_more_placeholders_than_cells(processor, model, inputs):
    token = torch.tensor([[processor.image_token_id]])
    place = int((inputs["input_ids"][0] == processor.image_token_id).nonzero()[0])

    def grown(name, value, by):
        old = inputs[name]
        return torch.cat([old[:, :place], value.expand(1, by), old[:, place:]], dim=1)

    one = torch.tensor([[1]])
    more = {
        "input_ids": grown("input_ids", token, 44),
        "attention_mask": grown("attention_mask", one, 44),
        "mm_token_type_ids": grown("mm_token_type_ids", one, 44),
        "image_token_counts": None,
    }
    with pytest.raises(ValueError, match="49 placeholders but only 48 cells"), torch.no_grad():
        model(**broken(inputs, **more))


def test_no_placeholders_for_an_image(processor, model, inputs):
    """An image that the prompt does not mention is refused, not encoded for nothing."""
    text = processor(text="what is it?", return_tensors="pt")
    with pytest.raises(ValueError, match="the prompt has 0 images"), torch.no_grad():
        model(**broken(inputs, **text))


def test_allocate_without_its_inputs(model, inputs):
    with pytest.raises(TypeError, match="query_input_ids is a list"):
        model.allocate(**inputs | {"query_input_ids": inputs["query_input_ids"].tolist()})
    with pytest.raises(ValueError, match="image_token_counts is missing: allocate"):
        model.allocate(**broken(inputs, image_token_counts=None))
    with pytest.raises(ValueError, match="texture_images is missing"):
        model.allocate(**broken(inputs, texture_images=None))
    with pytest.raises(ValueError, match="pixel_values is missing beside image_grid_thw"):
        model.allocate(**broken(inputs, pixel_values=None))
    assert model.allocate(**broken(inputs, pixel_values=None, image_grid_thw=None)) == []
    assert len(model.allocate(**inputs)[0]) == 5


@pytest.mark.parametrize("counts", [torch.tensor([5.0]), torch.tensor([4.5]), torch.tensor([True])])
def test_token_counts_that_are_no_whole_numbers(model, inputs, counts):
    with pytest.raises(ValueError, match="for image 0; pass one whole number per image"):
        model.allocate(**inputs | {"image_token_counts": counts})


@pytest.mark.parametrize("name", ["pixel_values", "image_grid_thw"])
def test_images_that_come_in_half_are_named(model, inputs, name):
    with pytest.raises(ValueError, match=f"{name} is missing beside "):
        model.encode_images(**broken(inputs, **{name: None}))


def test_no_advice_to_keep_every_cell_where_every_cell_is_kept(processor, model, page):
    full = broken(call(processor, page(), token_budget="full"), texture_images=None)
    for method in (model.encode_images, model.allocate):
        with pytest.raises(ValueError, match=r"texture_images is missing.* pass on all that it returns$"):
            method(**full)


@torch.no_grad()
@pytest.mark.parametrize("call", ["__call__", "generate"])
def test_placeholders_of_a_video_that_did_not_come_are_refused(call, model, processor):
    prompt = processor.tokenizer("<|vision_start|><|video_pad|><|vision_end|>hi", return_tensors="pt")
    with pytest.raises(ValueError, match="the prompt has 1 video placeholders but no videos; pass pixel_values_videos"):
        getattr(model, call)(**prompt)


@pytest.mark.parametrize(
    "given", [("input_ids", "attention_mask"), ("input_ids", "attention_mask", "mm_token_type_ids")]
)
def test_placeholders_without_an_image_are_refused(model, inputs, given):
    for run in (model, model.generate):
        with pytest.raises(ValueError, match=r"5 image placeholders but no images; .* mm_token_type_ids of zeros"):
            run(**{name: inputs[name] for name in given})
    text = {"input_ids": inputs["input_ids"], "mm_token_type_ids": torch.zeros_like(inputs["mm_token_type_ids"])}
    assert model(**text).logits.isfinite().all()


@pytest.mark.skipif(is_torchvision_available(), reason="with torchvision, videos work")
def test_image_and_video_without_torchvision(processor, page, chat):
    """Refused in words, alone and beside an image; the same chat without the video works."""
    video = np.zeros((4, 32, 32, 3), np.uint8)
    with pytest.raises(ImportError, match=r"videos need torchvision.* pip install torchvision"):
        processor(text="<|vision_start|><|video_pad|><|vision_end|>", videos=[video])
    messages = chat(page())
    messages[0]["content"].insert(1, {"type": "video", "video": video})
    with pytest.raises(ImportError, match="videos need torchvision"):
        processor.apply_chat_template(messages, tokenize=True, return_dict=True)
    del messages[0]["content"][1]
    assert "pixel_values" in processor.apply_chat_template(messages, tokenize=True, return_dict=True)


# --- checkpoints


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of `tiny_folder` of the test's own."""
    return shutil.copytree(tiny_folder, tmp_path / "copy")


def edit_weights(folder, change):
    """Applies `change` to the folder's tensors by name, in place."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def load(folder, **options):
    return ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, **options)


BASE, OWN = "model.language_model.layers.1.mlp.up_proj.weight", "model.arrcoc.participation.score.weight"


def test_good_checkpoint_loads(folder, model):
    loaded = load(folder).state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value), name


@pytest.mark.parametrize(
    "name", [BASE, OWN, "model.visual.merger.linear_fc1.bias", "model.arrcoc.reader.stem.0.weight"]
)
def test_missing_weight(folder, name):
    edit_weights(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(ValueError, match="the checkpoint lacks 1 tensors") as error:
        load(folder)
    assert name in str(error.value)
    assert "Download it again" in str(error.value)


def test_a_checkpoint_of_another_architecture(folder):
    """Not as one that lacks tensors: there is nothing to download again."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen3_vl_moe"}))
    with pytest.raises(ValueError, match="is of type qwen3_vl_moe, and ARR-COC prunes qwen3_vl alone"):
        load(folder)


def test_budgets_without_an_image(processor):
    assert processor(text="hello", token_budget=[])["input_ids"]
    with pytest.raises(ValueError, match="has 2 entries for 0 images"):
        processor(text="hello", token_budget=[64, "full"])
    for nothing in ([], [[]]):
        assert processor(images=nothing, text="hello", token_budget=64)["input_ids"]
        with pytest.raises(ValueError, match="token_budget='huge' is not a budget"):
            processor(images=nothing, text="hello", token_budget="huge")


def test_stage_one_may_be_missing_as_a_whole(folder, model):
    stage_one = ("model.arrcoc.reader.", "model.arrcoc.early_participation.")

    def drop(tensors):
        for name in [name for name in tensors if name.startswith(stage_one)]:
            tensors.pop(name)

    edit_weights(folder, drop)
    loaded = load(folder).model.arrcoc
    assert not loaded.early_participation.gate.any()  # neutral
    assert torch.equal(loaded.participation.gate, model.model.arrcoc.participation.gate)


def test_the_base_model_loads_by_the_same_rules_alone(folder, model):
    loaded = ARRCOCQwen3VLModel.from_pretrained(folder, dtype=torch.bfloat16)
    for name, tensor in loaded.arrcoc.state_dict().items():
        assert torch.equal(tensor, model.model.arrcoc.state_dict()[name]), name

    def drop(names):
        return lambda tensors: [tensors.pop(name) for name in [*tensors] if name.startswith(names)]

    edit_weights(folder, drop("model.arrcoc.restorer."))
    assert not ARRCOCQwen3VLModel.from_pretrained(folder).arrcoc.restorer.leave[0].weight.any()
    edit_weights(folder, drop("model.arrcoc.participation."))
    with pytest.raises(ValueError, match=r"lacks .*arrcoc\.participation"):
        ARRCOCQwen3VLModel.from_pretrained(folder)
    edit_weights(folder, drop("model.arrcoc."))  # as a stock checkpoint
    stock = ARRCOCQwen3VLModel.from_pretrained(folder, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in stock.arrcoc.parameters()} == {torch.float32}
    edit_weights(folder, drop("model.language_model.norm."))
    with pytest.raises(ValueError, match=r"lacks 1 tensors.*language_model\.norm"):
        ARRCOCQwen3VLModel.from_pretrained(folder)


def test_the_restorer_may_be_missing_as_a_whole(folder):
    def drop(tensors):
        for name in [name for name in tensors if name.startswith("model.arrcoc.restorer.")]:
            tensors.pop(name)

    edit_weights(folder, drop)
    restorer = load(folder).model.arrcoc.restorer
    assert not any(layer.weight.any() or layer.bias.any() for layer in restorer.leave)  # neutral


def test_the_mark_of_coarse_views_may_be_missing_as_a_whole(folder):
    edit_weights(
        folder, lambda tensors: [tensors.pop(f"model.arrcoc.coarse_mark.{name}") for name in ("gain", "offset")]
    )
    mark = load(folder).model.arrcoc.coarse_mark
    assert not mark.gain.any()
    assert not mark.offset.any()


def test_the_scope_of_questions_may_be_missing_as_a_whole(folder):
    def drop(tensors):
        for name in [name for name in tensors if name.startswith("model.arrcoc.scope.")]:
            tensors.pop(name)

    edit_weights(folder, drop)
    score = load(folder).model.arrcoc.scope.score
    assert not score.weight.any()
    assert not score.bias.any()


@pytest.mark.parametrize("name", [BASE, OWN])
def test_renamed_weight(folder, name):
    """Both names are in the message; named right again, the folder loads."""
    wrong = name.replace("weight", "wieght")
    edit_weights(folder, lambda tensors: tensors.update({wrong: tensors.pop(name)}))
    with pytest.raises(ValueError, match="the checkpoint lacks 1 tensors") as error:
        load(folder)
    assert name in str(error.value)
    assert wrong in str(error.value)
    edit_weights(folder, lambda tensors: tensors.update({name: tensors.pop(wrong)}))
    load(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [BASE, OWN])
def test_weight_that_is_not_finite(folder, name, bad):
    """One value is enough."""

    def change(tensors):
        tensors[name].view(-1)[3] = bad

    edit_weights(folder, change)
    with pytest.raises(ValueError, match=f"{re.escape(name)} holds NaN or infinity; the checkpoint is damaged"):
        load(folder)


def test_weight_of_another_shape(folder):
    edit_weights(folder, lambda tensors: tensors.update({OWN: tensors[OWN][:, :3].contiguous()}))
    with pytest.raises((RuntimeError, ValueError), match="size"):
        load(folder)


def test_an_allocator_of_another_shape_is_not_made_new_in_part(folder):
    with pytest.raises(
        ValueError, match=r"allocator have other shapes than the config asks for.* would choose at random"
    ):
        load(folder, ignore_mismatched_sizes=True, scorer_hidden_size=32)


def test_truncated_weights_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match="a file of them is cut off or damaged"):
        load(folder)


def test_stock_base_gets_a_new_neutral_allocator(folder):
    """Without any of the allocator's tensors the folder is a stock checkpoint: the gates start at zero."""

    def change(tensors):
        for name in [name for name in tensors if ".arrcoc." in name]:
            del tensors[name]

    edit_weights(folder, change)
    loaded = load(folder)
    arrcoc = loaded.model.arrcoc
    assert arrcoc.participation.gate.item() == 0
    assert arrcoc.balancer.tension.weight.abs().max() == 0
    assert all(parameter.isfinite().all() for parameter in loaded.parameters())


def test_stock_folder_loads(tiny_model, stock_twin, tmp_path):
    stock_twin(tiny_model()).save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert loaded.model.arrcoc.participation.gate.item() == 0
    weight = tiny_model().state_dict()[BASE]
    assert torch.equal(loaded.state_dict()[BASE], weight)


def test_a_stock_config_becomes_one_of_ours(tiny_model, stock_twin, tmp_path):
    """As with stock, where a config is read, changed and handed over."""
    stock_twin(tiny_model()).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    config.text_config.num_hidden_layers = 1
    config._attn_implementation = "eager"
    loaded = load(tmp_path, config=config)
    assert loaded.config.model_type == "arrcoc_qwen3_vl"
    assert len(loaded.model.language_model.layers) == 1
    assert loaded.config._attn_implementation == loaded.config.text_config._attn_implementation == "eager"
    assert loaded.model.arrcoc.participation.gate.item() == 0


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_a_stock_config_keeps_the_attention_of_one_part(part, tiny_model, stock_twin, tmp_path):
    stock_twin(tiny_model()).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, attn_implementation={part: "eager"})
    stock = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path, config=copy.deepcopy(config)).config
    ours = load(tmp_path, config=config).config
    for each in ("text_config", "vision_config"):
        wanted = getattr(stock, each)._attn_implementation
        assert getattr(ours, each)._attn_implementation == wanted
        assert (wanted == "eager") == (each == part)


def test_config_of_a_newer_version(folder):
    file = folder / "config.json"
    good = file.read_text()
    file.write_text(good.replace('"arrcoc_version": 1', '"arrcoc_version": 99'))
    with pytest.raises(ValueError, match=r"arrcoc_version=99 is newer .* update the ARR-COC code files"):
        load(folder)
    file.write_text(good)
    load(folder)


def test_bad_dial_given_to_the_model(folder):
    with pytest.raises(Exception, match="'coverage_floor'"):
        ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, coverage_floor=2.0)
    with pytest.raises(ValueError, match="did you mean coverage_floor"):
        ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, coverage_flor=0.2)
    with pytest.raises(ValueError, match="token_budget is a dial of the processor"):
        ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, token_budget=64)
    loaded = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, coverage_floor=0.2)
    assert loaded.model.arrcoc.allocator.coverage_floor == 0.2


def test_folder_without_a_processor(folder):
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises((OSError, ValueError)):
        ARRCOCProcessor.from_pretrained(folder)


@torch.no_grad()
@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        ("allocate", "token_budget", "pass it to the processor"),
        ("allocate", "encode_ration", "did you mean encode_ratio"),
        ("encode_images", "alocation_mode", "did you mean allocation_mode"),
        ("encode_images", "colour", "colour is not an argument of the model"),
        ("__call__", "token_budget", "pass it to the processor"),
        ("__call__", "question", "pass it to the processor"),
        ("__call__", "encode_ration", "did you mean encode_ratio"),
    ],
)
def test_arguments_that_no_call_has(call, name, says, tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=5)
    getattr(model, call)(**inputs)
    with pytest.raises(TypeError, match=says):
        getattr(model, call)(**inputs, **{name: 0.3})


def test_what_no_image_reads_is_told_as_that(tiny_model, make_inputs, page):
    with pytest.raises(TypeError, match=r"(input_ids|attention_mask) is not an argument .*no image's; leave it out"):
        tiny_model().get_image_features(**make_inputs(page(), token_budget="full"))


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "query_input_ids", "query_attention_mask"])
@pytest.mark.parametrize("kind", [list, np.ndarray])
def test_lists_and_arrays_are_told(name, kind, tiny_model, make_inputs, page):
    inputs = make_inputs(page(), token_budget=5)
    value = inputs[name].tolist() if kind is list else inputs[name].numpy()
    with pytest.raises(TypeError, match=f"{name} is a {kind.__name__} and no tensor; pass return_tensors='pt'"):
        tiny_model()(**inputs | {name: value})


@torch.no_grad()
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ({"image_grid_thw": None}, "image_grid_thw is missing"),
        ({"query_attention_mask": None}, "query_attention_mask is missing"),
        ({"query_input_ids": None}, "query_input_ids is missing beside query_attention_mask"),
        ({"query_attention_mask": torch.ones(1, 5)}, r"query_attention_mask is of shape \(1, 5\)"),
        ({"pixel_values": torch.zeros(8, 24)}, "pixel_values holds 8 patches, but image_grid_thw lists"),
    ],
)
def test_inputs_that_lack_a_part(spoil, says, tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=5)
    with pytest.raises(ValueError, match=says):
        model(**inputs | spoil)
    if "pixel_values" in spoil:
        with pytest.raises(ValueError, match=says):
            model(**make_inputs([page(128, 96)], token_budget="full") | spoil)
    counts = inputs["image_token_counts"].tolist()
    for same in (counts, [counts]):  # a collator may have stacked rows of prompts with one image each
        assert torch.equal(model(**inputs | {"image_token_counts": same}).logits, model(**inputs).logits)
        (kept,) = model.allocate(**inputs | {"image_token_counts": same})
        assert len(kept.positions) == counts[0]


@torch.no_grad()
def test_a_question_that_was_dropped_on_the_way_is_told_once(tiny_model, make_inputs, page, caplog):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=5)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    warning_once.cache_clear()  # another test may have been told
    try:
        model(**inputs)
        model(**make_inputs([page(128, 96)], "", token_budget=5))  # nothing is asked, and that is meant
        model.encode_images(*(inputs[name] for name in ("pixel_values", "image_grid_thw", "texture_images")))
        assert not caplog.records
        del inputs["query_input_ids"], inputs["query_attention_mask"]
        model(**inputs)
        model(**inputs)
    finally:
        logger.removeHandler(caplog.handler)
    (record,) = caplog.records
    assert "query_input_ids and query_attention_mask are missing" in record.getMessage()


@torch.no_grad()
def test_images_without_their_pixels(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=5)
    del inputs["pixel_values"]
    own = {name: inputs[name] for name in ("image_grid_thw", "texture_images", "image_token_counts")}
    with pytest.raises(ValueError, match="pixel_values is missing, but image_grid_thw lists"):
        model.model.get_image_features(None, **own)


@torch.no_grad()
def test_tokens_put_behind_a_prompt_need_their_types(tiny_model, make_inputs, page):
    inputs = make_inputs([page(128, 96)], token_budget=5)
    behind = {name: torch.nn.functional.pad(inputs[name], (0, 2), value=1) for name in ("input_ids", "attention_mask")}
    for call in (tiny_model(), tiny_model().generate):
        with pytest.raises(ValueError, match=r"mm_token_type_ids is \(1, \d+\) and input_ids \(1, \d+\); where tokens"):
            call(**inputs | behind)
    behind["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, 2))
    assert tiny_model()(**inputs | behind).logits.isfinite().all()


@torch.no_grad()
def test_counts_may_be_a_list_where_generate_can_not_place_them(tiny_model, make_inputs, page):
    inputs = make_inputs([page(128, 96)], token_budget=5)
    del inputs["mm_token_type_ids"]
    with pytest.raises(ValueError, match="images need input_ids, mm_token_type_ids"):
        tiny_model().generate(**inputs | {"image_token_counts": [5]})


@torch.no_grad()
def test_encoded_images_are_recognised_or_refused(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=5)
    encoded = model.encode_images(**inputs)
    other = make_inputs([page(128, 96, 1)], token_budget=5)
    del other["texture_images"]
    with pytest.raises(ValueError, match="texture_images is missing: encoded_images can't tell"):
        model(**other, encoded_images=encoded)
    with pytest.raises(ValueError, match=r"made with encode_ratio=1\.0, but 0\.5 is asked for"):
        model(**inputs, encoded_images=encoded, encode_ratio=0.5)


@torch.no_grad()
@pytest.mark.parametrize("budget", [2, 20, "full"])
def test_what_auto_encodes_is_enough_for_its_own_prompt(budget, tiny_model, make_inputs):
    """Also where a page has less ink than tokens, or keeps all."""
    paper = Image.new("RGB", (192, 160), "white")
    paper.paste("black", (16, 16, 40, 24))
    model, inputs = tiny_model(), make_inputs([paper], token_budget=budget)
    encoded = model.encode_images(**inputs, encode_ratio="auto")
    logits = model(**inputs, encoded_images=encoded).logits
    assert torch.allclose(logits, model(**inputs, encode_ratio="auto").logits, atol=1e-5)
    least = model.encode_images(**inputs | {"image_token_counts": None}, encode_ratio="auto")
    assert len(least.vision.pooler_output[0]) <= len(encoded.vision.pooler_output[0])


def test_arrays_of_whole_numbers_and_short_base64_are_pictures(processor):
    generator = np.random.default_rng(0)
    array = generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    wanted = call(processor, array)
    for dtype in (np.int64, np.int32, np.uint16):
        assert all(torch.equal(call(processor, array.astype(dtype))[name], wanted[name]) for name in wanted)
    file = BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    text = base64.b64encode(file.getvalue()).decode()
    assert len(text) < 255
    short = call(processor, text)
    assert torch.equal(short["texture_images"], call(processor, Image.new("RGB", (4, 4), "red"))["texture_images"])
    with pytest.raises(FileNotFoundError, match="there is no image file 'abcd'"):
        call(processor, "abcd")


def test_a_long_path_without_a_file_is_no_base64(processor, tmp_path):
    path = tmp_path / "/".join(["a folder of a client"] * 20) / "page.png"
    assert len(str(path)) > 300
    for form in (path, str(path), path.as_uri()):
        with pytest.raises(FileNotFoundError, match=r"there is no image file .*page\.png'; check the path"):
            call(processor, form)


@pytest.mark.parametrize("text", ["what? \ud800", ["what?", "\udfff"]], ids=["one", "a list"])
def test_half_of_a_character_is_refused(processor, text):
    with pytest.raises(ValueError, match="text holds half of a character"):
        processor(text=text, return_tensors="pt")


@torch.no_grad()
@pytest.mark.parametrize("budget", [5, "full"])
def test_a_mask_of_four_dimensions_says_nothing_of_padding(budget, tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=budget)
    length = inputs["input_ids"].shape[1]
    causal = torch.zeros(1, 1, length, length).masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
    gap = model(**inputs | {"attention_mask": causal}, use_cache=False).logits - model(**inputs).logits
    assert gap.abs().max() < 1e-5


@torch.no_grad()
def test_names_of_other_models_are_no_misspelling(processor, model, inputs, page):
    expected = model(**inputs).logits
    others = (
        "pixel_attention_mask",
        "qformer_input_ids",
        "text_attention_mask",
        "cross_attention_mask",
        "audio_input_ids",
    )
    assert torch.equal(model(**inputs, **dict.fromkeys(others)).logits, expected)
    for name in ("querry_attention_mask", "query_atention_mask", "query_attention_msk", "queryattention_mask"):
        with pytest.raises(TypeError, match="did you mean query_attention_mask"):
            model(**inputs, **{name: None})
    with pytest.raises(TypeError, match="did you mean encode_ratio"):
        model(**inputs, encode_rate=0.5)
    vision = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "texture_images")}
    with pytest.raises(TypeError, match="did you mean encode_ratio"):
        model.get_image_features(**vision, encode_rate=0.5)
    with pytest.raises(TypeError, match="image_token_count"):
        model.get_image_features(**vision, image_token_count=torch.tensor([5]))
    call(processor, page(), thinking_budget=512)
    with pytest.raises(TypeError, match="did you mean token_budget"):
        call(processor, page(), tokens_budget=5)


def test_placeholders_and_images_that_are_not_as_many(processor, page):
    with pytest.raises(ValueError, match="image"):
        call(processor, [page()], f"{processor.image_token} and {processor.image_token}", token_budget=4)


def test_a_processors_output_that_is_not_unpacked_is_told(model, inputs_of_one):
    for call in (model, model.generate, model.allocate, model.encode_images, model.model):
        with pytest.raises(TypeError, match=r"unpack them with two stars"):
            call(inputs_of_one)
    model.generate(**inputs_of_one, max_new_tokens=1)


@pytest.fixture
def inputs_of_one(make_inputs, page):
    return make_inputs(page(64, 48), token_budget=6)


def test_what_is_no_cache_is_told(model, inputs_of_one):
    for cache in (((torch.zeros(1, 2, 3, 4),) * 2,), [1], "static", {}):
        for call in (model, model.generate):
            with pytest.raises(TypeError, match=r"and no cache; pass a Cache, such as DynamicCache\(\)"):
                call(**inputs_of_one, past_key_values=cache)


def test_one_row_without_a_batch_is_told(model, inputs_of_one):
    with pytest.raises(ValueError, match=r"input_ids is \(\d+,\), wanted \(batch, length\)"):
        model.generate(**{**inputs_of_one, "input_ids": inputs_of_one["input_ids"][0]})


@pytest.mark.parametrize("name", ["image_grid_thw", "query_input_ids"])
def test_whole_numbers_that_came_as_floats_are_told(model, inputs_of_one, name):
    for call in (model, model.generate, model.allocate):
        with pytest.raises(ValueError, match=f"{name} is torch.float32, wanted integers"):
            call(**{**inputs_of_one, name: inputs_of_one[name].float()})


@pytest.mark.parametrize("name", ["token_budget", "encode_ratio", "allocation_mode", "diversity"])
def test_dials_in_a_generation_config_are_told(model, inputs_of_one, name):
    config = copy.deepcopy(model.generation_config)
    setattr(config, name, 0.5)
    with pytest.raises(TypeError, match=f"generation_config.{name} counts for nothing"):
        model.generate(**inputs_of_one, generation_config=config)
    with pytest.raises(TypeError, match=f"generation_config.{name} counts for nothing"):
        model.generate(inputs_of_one.pop("input_ids"), config, **inputs_of_one)


@torch.no_grad()
def test_dials_that_from_pretrained_is_given_act_in_generate_and_in_what_is_saved(model, inputs_of_one, tmp_path):
    """transformers writes them on the generation config, too, where generate() refuses them."""
    published = copy.deepcopy(model)
    published.generation_config._from_model_config = False  # else it is made anew and no file of it read
    published.save_pretrained(tmp_path / "folder")
    dials = {"encode_ratio": 0.5, "allocation_mode": "foveated", "coverage_floor": 0.1}
    kind, asked = type(model), {"max_new_tokens": 2, "return_dict_in_generate": True, "output_logits": True}
    given = kind.from_pretrained(tmp_path / "folder", **dials)
    given.save_pretrained(tmp_path / "saved")
    assert not dials.keys() & json.loads((tmp_path / "saved" / "generation_config.json").read_text()).keys()
    for name in dials:  # as folders have it that were saved before
        setattr(given.generation_config, name, dials[name])
    given.generation_config.save_pretrained(tmp_path / "saved")
    set_by_hand = kind.from_pretrained(tmp_path / "folder", coverage_floor=0.1)
    calls = {"encode_ratio": 0.5, "allocation_mode": "foveated"}
    expected = set_by_hand.generate(**inputs_of_one, **asked, **calls).logits
    for one in (kind.from_pretrained(tmp_path / "folder", **dials), kind.from_pretrained(tmp_path / "saved")):
        assert all(map(torch.equal, one.generate(**inputs_of_one, **asked).logits, expected))
    plain = set_by_hand.generate(**inputs_of_one, **asked).logits
    assert not torch.equal(plain[0], expected[0])
    other = kind.from_pretrained(tmp_path / "saved", encode_ratio=0.4)  # the file says 0.5 still
    assert not hasattr(other.generation_config, "encode_ratio")
    given.config.encode_ratio = 0.3  # and the file still 0.5, which nobody would see counting for nothing
    given.config.save_pretrained(tmp_path / "saved")
    with pytest.raises(TypeError, match=r"generation_config\.encode_ratio counts for nothing"):
        kind.from_pretrained(tmp_path / "saved").generate(**inputs_of_one, **asked)


@pytest.mark.parametrize("images", [[1, 2], [3, 0], [1, 1, 1]], ids=str)
def test_pictures_in_lists_that_are_not_the_prompts_are_told(processor, page, images):
    prompts = [PROMPT.replace(IMAGE, IMAGE * 2), PROMPT]
    flat = [page(32, 32 + 16 * number) for number in range(3)]
    pictures = iter(flat)
    nested = [[next(pictures) for _ in range(count)] for count in images]
    with pytest.raises(ValueError, match=re.escape(f"images come in lists of {images}, but the prompts have [2, 1]")):
        processor(images=nested, text=prompts, token_budget=2, padding=True)
    for grouped in (flat, [flat[:2], flat[2:]]):
        given = processor(images=grouped, text=prompts, token_budget=2, padding=True, return_tensors="pt")
        assert (given["input_ids"] == processor.image_token_id).sum(-1).tolist() == [4, 2]


@pytest.mark.parametrize("group", ["text_kwargs", "images_kwargs", "videos_kwargs", "common_kwargs"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("question", "pass question beside it"),
        ("queston", "pass question beside it"),
        ("texture_sise", "did you mean texture_size"),
        ("coarse_share", "is a dial of the model"),
    ],
)
def test_dials_within_a_group_of_arguments_are_told(processor, page, group, name, told):
    with pytest.raises(TypeError, match=told):
        processor(images=page(), text=PROMPT, **{group: {name: "x"}})


@pytest.mark.parametrize("text", [3, 1.5, {"a": 1}], ids=str)
def test_what_is_no_text_is_told(processor, page, text):
    with pytest.raises(TypeError, match=f"text is of type {type(text).__name__}; pass a prompt"):
        processor(images=page(), text=text)
