"""The three scorers: values worked out by hand, what must rank above what, and how the learned parts start."""

from functools import lru_cache

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arrcoc import matching
from arrcoc.knowing import (
    InformationScorer,
    PerspectivalScorer,
    incompressibility,
    luminance_entropy,
    saliency_prior,
    stroke_density,
)
from arrcoc.matching import PhraseMatcher, WordMatcher
from arrcoc.participating import ParticipatoryScorer
from arrcoc.texture import TEXTURE_CHANNELS, pixel_canvas, texture_array

GRIDS = [(1, 1), (1, 113), (113, 1), (7, 9), (128, 128)]
GRID_OF_CELL_PIXELS = {16: (32, 32), 12: (42, 42), 8: (64, 64), 5: (100, 100), 4: (128, 128)}  # on 512 pixels
WORDS = "Invoice 4680 due 31 May: seven boxes of jars, net $97.25. The quick brown fox jumps over a lazy dog. "


# ---- propositional ---------------------------------------------------------------------------------------------------


def test_information_of_stripes():
    """White and black columns of one pixel, cells of 4 pixels.

    Entropy: half black, half white, two of 8 bins: log 2 / log 8 = 1/3. Stroke density: closing fills every black
    column and opening removes every white one, so each pixel's top-hat is 1: 1.1 * 1 / (1 + 0.1) = 1. Along the columns
    every pixel equals its neighbours, so nothing is incompressible: (1/3 + 1) / 2 * (1 - 0) = 2/3.
    """
    canvas = torch.zeros(3, 12, 12)
    canvas[:, :, ::2] = 1
    torch.testing.assert_close(InformationScorer()(canvas, (3, 3)), torch.full((3, 3), 2 / 3), atol=1e-5, rtol=0)


def test_information_of_sparse_noise_is_nothing():
    """One black pixel in every 8 x 8, cells of 16 pixels.

    At a black pixel every direction errs by 1; at its 8 neighbours the smallest error is 0. So the mean square of the
    smallest error is 1/64; the variance is 1/64 - 1/64^2 = 0.015381, plus 0.03 times the contrast of 1: unexplained
    sqrt(0.015625 / 0.045381) = 0.58678, above 0.53: incompressibility 1, whatever the entropy and the top-hat say.
    """
    canvas = torch.ones(3, 48, 48)
    canvas[:, 4::8, 4::8] = 0
    assert stroke_density(canvas, 16).amin() > 0.1
    torch.testing.assert_close(InformationScorer()(canvas, (3, 3)), torch.zeros(3, 3))


def test_entropy_counts_the_neighbours_by_half():
    """A white cell between two black ones. Beyond the border the outermost cell is repeated.

    Middle: 2/4 white, 2/4 black: log 2 / log 8 = 1/3. Ends: 1/4 white, 3/4 black: 0.562335 / 2.079442 = 0.270426.
    """
    luminance = torch.zeros(4, 12)
    luminance[:, 4:8] = 1
    expected = torch.tensor([[0.270426, 1 / 3, 0.270426]])
    torch.testing.assert_close(luminance_entropy(luminance, 4), expected, atol=1e-5, rtol=0)


def test_stroke_density_of_one_line():
    """One yellow column (no blue) on white in a cell of 8: covered 1/8, 1.1 * 0.125 / (0.125 + 0.1) = 0.611111. Nothing
    where white meets black, at column 20: a square of 5 pixels fits on either side."""
    canvas = torch.ones(3, 8, 32)
    canvas[2, :, 3] = 0
    canvas[:, :, 20:] = 0
    torch.testing.assert_close(stroke_density(canvas, 8), torch.tensor([[0.611111, 0, 0, 0]]), atol=1e-5, rtol=0)


def test_incompressibility_of_a_ramp_and_of_a_lattice():
    """A ramp: every pixel is the mean of its neighbours, 0. A lattice of black pixels, every third row and column: 1 of 9
    pixels errs by 1 in all directions, its 8 neighbours not at all along their best one; so the unexplained share is
    sqrt((1/9) / (1/9 - 1/81 + 0.03)) = 0.93, above 0.53: 1."""
    ramp = (torch.arange(48) / 48)[None].expand(48, 48)
    torch.testing.assert_close(incompressibility(ramp, 16)[1, 1], torch.tensor(0.0))
    lattice = torch.ones(48, 48)
    lattice[1::3, 1::3] = 0
    torch.testing.assert_close(incompressibility(lattice, 16), torch.ones(3, 3))


def test_incompressibility_between_print_and_noise():
    """A lattice of black pixels with sides 20, cells of 20: in every cell one pixel errs by 1 in all directions and 8 err by
    1/2 in one of four. Smallest: 1/400 = 0.0025. Unexplained: sqrt(0.0025 / (0.0025 - 0.00000625 + 0.03)) = 0.277392,
    below 0.43: 0. With sides of 12, cells of 12: 1/144 = 0.006944, sqrt(0.006944 / (0.006944 - 0.000048 + 0.03)) =
    0.433833, which is 0.038 of the way to 0.53. Isotropy is far below: 1/144 / (2/144 + 0.03 + 0.00098) = 0.15."""
    for side, expected in ((20, 0.0), (12, 0.0383)):
        lattice = torch.ones(3 * side, 3 * side)
        lattice[side // 2 :: side, side // 2 :: side] = 0
        result = incompressibility(lattice, side)
        torch.testing.assert_close(result, torch.full((3, 3), expected), atol=1e-3, rtol=0)


def page(size: int, ink=(0, 0, 0), paper=(255, 255, 255), words: str = WORDS) -> Image.Image:
    """Lines of print, `size` pixels high, on 512 x 512: drawn four times as large and shrunk, as small print comes."""
    drawn = Image.new("RGB", (1024, 1024), paper)
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(4 * size)
    line = words * (4096 // (size * len(words)) + 2)
    for number, top in enumerate(range(0, 1024, 5 * size)):
        draw.text((2, top), line[7 * number % len(words) :], fill=ink, font=font)
    tile = drawn.resize((256, 256), Image.Resampling.BOX)
    image = Image.new("RGB", (512, 512))
    for corner in ((0, 0), (0, 256), (256, 0), (256, 256)):
        image.paste(tile, corner)
    return image


def noise(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:
        return 255 * torch.rand(shape, generator=generator)

    def resized(pixels: torch.Tensor, mode: str) -> torch.Tensor:
        return torch.nn.functional.interpolate(pixels[None], size=(512, 512), mode=mode)[0]

    draw = {
        "uniform": lambda: uniform(1, 512, 512),
        "coloured": lambda: uniform(3, 512, 512),
        "gaussian": lambda: 128 + 40 * torch.randn(1, 512, 512, generator=generator),
        "faint": lambda: 128 + 8 * torch.randn(1, 512, 512, generator=generator),
        "salt and pepper 5%": lambda: sprinkled(uniform(1, 512, 512), 0.05),
        "salt and pepper 20%": lambda: sprinkled(uniform(1, 512, 512), 0.20),
        "salt and pepper 100%": lambda: sprinkled(uniform(1, 512, 512), 1.0),
        "enlarged 2x, nearest": lambda: resized(uniform(1, 256, 256), "nearest"),
        "enlarged 2x, bilinear": lambda: resized(uniform(1, 256, 256), "bilinear"),
        "box blurred": lambda: torch.nn.functional.avg_pool2d(uniform(1, 513, 513), 2, stride=1),
    }
    return draw[kind]().clamp(0, 255).to(torch.uint8).expand(3, 512, 512)


def sprinkled(uniform: torch.Tensor, share: float) -> torch.Tensor:
    grey = torch.full_like(uniform, 128)
    grey[uniform < 127.5 * share] = 0
    grey[uniform > 255 - 127.5 * share] = 255
    return grey


NOISES = [
    "uniform",
    "coloured",
    "gaussian",
    "faint",
    "salt and pepper 5%",
    "salt and pepper 20%",
    "salt and pepper 100%",
    "enlarged 2x, nearest",
    "enlarged 2x, bilinear",
    "box blurred",
]


def pixels_of(image: Image.Image) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(*image.size[::-1], 3).permute(2, 0, 1)


def information(image: Image.Image | torch.Tensor, cell_pixels: int) -> torch.Tensor:
    grid = GRID_OF_CELL_PIXELS[cell_pixels]
    image = pixels_of(image) if isinstance(image, Image.Image) else image
    return InformationScorer()(pixel_canvas(image, grid), grid)


@lru_cache
def median_of_edges(cell_pixels: int) -> torch.Tensor:
    """The median over the cells that hold an edge of a large plain shape."""
    image = Image.new("RGB", (512, 512), "white")
    ImageDraw.Draw(image).rectangle((150, 150, 512, 512), fill=(30, 60, 160))
    ImageDraw.Draw(image).ellipse((20, 260, 220, 460), fill=(200, 40, 40))
    score = information(image, cell_pixels)
    return score[score > 0.02].median()


@lru_cache
def most_of_paper(paper: tuple[int, int, int], cell_pixels: int) -> torch.Tensor:
    return information(Image.new("RGB", (512, 512), paper), cell_pixels).amax()


@pytest.mark.parametrize("cell_pixels", GRID_OF_CELL_PIXELS)
def test_print_tells_more_than_noise(cell_pixels):
    """Letters of a cell's height: the median cell of print scores 1.5 times what nine cells in ten of any noise do.

    The closest is sparse salt and pepper where the image does not fit the grid: resampling turns its pixels into blobs.
    """
    print_score = information(page(cell_pixels), cell_pixels).median()
    for kind in NOISES:
        noise_score = information(noise(kind), cell_pixels).quantile(0.9)
        assert print_score > 1.5 * noise_score, (kind, print_score, noise_score)


@pytest.mark.parametrize("cell_pixels", [4, 8, 16])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ((0, 0, 0), (255, 255, 255)),
        ((255, 255, 255), (20, 20, 20)),
        ((30, 30, 200), (250, 220, 80)),
        ((255, 240, 0), (255,) * 3),
    ],
    ids=["black on white", "white on black", "blue on yellow", "yellow on white"],
)
@pytest.mark.parametrize("letter_cells", [0.75, 1, 1.5])
def test_print_tells_more_than_edges_more_than_nothing(letter_cells, ink, paper, cell_pixels):
    print_score = information(page(int(letter_cells * cell_pixels), ink, paper), cell_pixels).median()
    edge_score = median_of_edges(cell_pixels)
    assert print_score > 1.5 * edge_score
    assert edge_score > 0.05
    assert most_of_paper(paper, cell_pixels) < 1e-5


@pytest.mark.parametrize("words", ["l", "E", "1"])
def test_repeated_print_tells_as_much_as_prose(words):
    prose = information(page(16), 16).median()
    assert information(page(16, words=words), 16)[:, :16].median() > 0.6 * prose


def test_a_lone_digit_is_not_taken_for_noise():
    image = Image.new("RGB", (512, 512), "white")
    ImageDraw.Draw(image).text((264, 264), "7", fill="black", font=ImageFont.load_default(14), anchor="mm")
    score = information(image, 16)
    assert score.amax() > 0.15
    assert (score > 0.05).sum() <= 9


@pytest.mark.parametrize("cell_pixels", [4, 8, 16])
def test_a_smooth_gradient_tells_little_but_something(cell_pixels):
    slope = torch.linspace(0, 255, 512)
    image = ((slope[:, None] + slope[None]) / 2).to(torch.uint8).expand(3, 512, 512)
    score = information(image, cell_pixels)
    assert score.amin() > 0
    assert score.median() < 0.1


@pytest.mark.parametrize("grid_hw", GRIDS)
@pytest.mark.parametrize("level", [0, 37, 90, 200, 255])
def test_a_constant_image_tells_nothing(grid_hw, level):
    image = torch.full((3, 512, 512), level, dtype=torch.uint8)
    assert InformationScorer()(pixel_canvas(image, grid_hw), grid_hw).amax() < 1e-5


@pytest.mark.parametrize("grid_hw", GRIDS)
def test_information_on_any_grid(grid_hw):
    canvas = pixel_canvas(pixels_of(page(20)), grid_hw)
    score = InformationScorer()(canvas, grid_hw)
    assert score.shape == grid_hw
    assert score.dtype == torch.float32
    assert score.isfinite().all()
    assert 0 <= score.amin() <= score.amax() <= 1
    assert torch.equal(score, InformationScorer()(canvas.clone(), grid_hw))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):  # every tensor must name its own device
        assert torch.equal(score, InformationScorer()(canvas, grid_hw))


def test_information_of_several_images_is_that_of_each_alone():
    canvases = torch.stack([pixel_canvas(pixels_of(page(size)), (32, 32)) for size in (20, 30, 40)])
    scorer = InformationScorer()
    alone = torch.stack([scorer(canvas, (32, 32)) for canvas in canvases])
    torch.testing.assert_close(scorer(canvases, (32, 32)), alone, atol=1e-6, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_information_on_gpu_agrees_with_cpu():
    canvas = pixel_canvas(pixels_of(page(20)), (32, 32))
    scorer = InformationScorer()
    torch.testing.assert_close(scorer(canvas.cuda(), (32, 32)).cpu(), scorer(canvas, (32, 32)), atol=1e-4, rtol=0)


def test_information_refuses_a_canvas_that_does_not_fit():
    with pytest.raises(ValueError, match=r"\(3, 8, 13\) for a grid of 2 x 3 cells"):
        InformationScorer()(torch.zeros(3, 8, 13), (2, 3))


# ---- perspectival ----------------------------------------------------------------------------------------------------


def saliency_texture(intensity, colour, orientation) -> torch.Tensor:
    texture = torch.zeros(len(TEXTURE_CHANNELS), 2, 2)
    texture[8:11] = torch.tensor([intensity, colour, orientation])
    return texture


def test_prior_weighs_peaks_over_patterns():
    """Intensity 0.8 in one of four cells: over its peak 1, mean 0.25, weight 0.75^2 = 0.5625. Colour 0.4 everywhere: mean
    1, weight 0. Orientation 0.05 in one cell, over the floor of 0.1: 0.5, mean 0.125, weight 0.875^2 = 0.765625, times
    0.5 = 0.382813. The largest sum, 0.5625, is below 1 and stays."""
    texture = saliency_texture([[0.8, 0], [0, 0]], [[0.4, 0.4], [0.4, 0.4]], [[0, 0.05], [0, 0]])
    torch.testing.assert_close(saliency_prior(texture), torch.tensor([[0.5625, 0.382813], [0, 0]]), atol=1e-5, rtol=0)


def test_prior_is_at_most_one():
    """All three peak in one cell: 3 * 0.5625 = 1.6875, divided by itself. Orientation also has 0.1 of 0.2 in another: mean
    0.375, weight 0.625^2 = 0.390625; so the peak is 1.125 + 0.390625 = 1.515625 and the other 0.195313, over it 0.128866."""
    peak = [[0.6, 0], [0, 0]]
    torch.testing.assert_close(saliency_prior(saliency_texture(peak, peak, peak)), torch.tensor([[1.0, 0], [0, 0]]))
    texture = saliency_texture(peak, peak, [[0.2, 0], [0, 0.1]])
    expected = torch.tensor([[1.0, 0], [0, 0.128866]])
    torch.testing.assert_close(saliency_prior(texture), expected, atol=1e-5, rtol=0)


def random_texture(height: int = 5, width: int = 6, channels: int = 13) -> torch.Tensor:
    return torch.rand(channels, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("grid_hw", GRIDS)
def test_perspective_is_exactly_the_prior_at_start(grid_hw):
    texture = random_texture(*grid_hw)
    score = PerspectivalScorer()(texture)
    assert score.shape == grid_hw
    assert torch.equal(score, saliency_prior(texture))
    assert 0 <= score.amin() <= score.amax() <= 1


def test_the_odd_one_out_stands_out():
    """A red cell in a page of print, from the picture on."""
    image = page(16)
    ImageDraw.Draw(image).rectangle((256, 128, 271, 143), fill="red")
    texture = texture_array(pixel_canvas(pixels_of(image), (32, 32)), (32, 32))
    assert divmod(PerspectivalScorer()(texture).argmax().item(), 32) == (8, 16)


def test_perspective_learns_from_the_first_step():
    """Step one opens the gate, step two reaches everything behind it."""
    torch.manual_seed(0)
    scorer, texture = PerspectivalScorer(), random_texture()
    _assert_gradients(scorer, lambda: scorer(texture), at_first={"gate"})


def test_perspective_takes_more_channels_and_refuses_fewer():
    texture = random_texture(channels=40)
    assert torch.equal(PerspectivalScorer(texture_channels=40)(texture), saliency_prior(texture))
    with pytest.raises(ValueError, match=r"texture_channels=12; wanted at least 13"):
        PerspectivalScorer(texture_channels=12)
    with pytest.raises(ValueError, match=r"\(40, 5, 6\); wanted \(13, h, w\)"):
        PerspectivalScorer()(texture)


# ---- participatory ---------------------------------------------------------------------------------------------------

SIZES = {"texture_channels": 13, "feature_sizes": [24, 20, 20], "query_size": 32}


def participant(gate: float | None = None, **sizes) -> ParticipatoryScorer:
    torch.manual_seed(0)
    scorer = ParticipatoryScorer(**(SIZES | sizes), hidden_size=16)
    if gate is not None:
        torch.nn.init.constant_(scorer.gate, gate)
    return scorer


def arguments(tokens: int = 4, height: int = 5, width: int = 6, sizes=(24, 20, 20), dtype=torch.float32) -> dict:
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    return {
        "texture": random_texture(height, width).to(dtype),
        "features": [normal(height * width, size) for size in sizes],
        "query": normal(tokens, 32),
        "query_mask": torch.ones(tokens, dtype=torch.bool),
    }


@pytest.mark.parametrize("scale", [1, 1e4])
@pytest.mark.parametrize("grid_hw", GRIDS)
def test_participation_is_exactly_zero_at_start(grid_hw, scale):
    given = arguments(height=grid_hw[0], width=grid_hw[1])
    given["features"][0] *= scale
    score = participant()(**given)
    assert score.shape == grid_hw
    assert score.dtype == torch.float32
    assert torch.equal(score, torch.zeros(grid_hw))


def test_participation_learns_from_the_first_step():
    """Step one opens the gate, step two reaches everything behind it."""
    scorer, given = participant(), arguments()
    _assert_gradients(scorer, lambda: scorer(**given), at_first={"gate"})


def test_participation_depends_on_the_question_and_on_the_cell():
    scorer, given = participant(gate=1.0), arguments()
    score = scorer(**given)
    assert score.std() > 1e-3
    assert score.isfinite().all()
    assert (scorer(**(given | {"query": given["query"].flip(1)})) - score).abs().amax() > 1e-3
    assert (scorer(**(given | {"texture": given["texture"].flip(1)})) - score).abs().amax() > 1e-3
    for number, feature in enumerate(given["features"]):
        changed = [*given["features"][:number], feature.flip(1), *given["features"][number + 1 :]]
        assert (scorer(**(given | {"features": changed})) - score).abs().amax() > 1e-3, number


def test_participation_keeps_the_order_of_large_scores_and_their_gradient():
    """gate * asinh(score): finite, in proportion to the gate, and never flat, however large the score behind it."""
    scorer, given = participant(gate=1.0), arguments()
    small = scorer(**given).detach()
    torch.testing.assert_close(participant(gate=3.0)(**given).detach(), 3 * small)
    with torch.no_grad():
        for parameter in scorer.score.parameters():
            parameter.mul_(1e6)
    large = scorer(**given)
    assert large.isfinite().all()
    torch.testing.assert_close(large, torch.asinh(1e6 * torch.sinh(small)), rtol=1e-4, atol=1e-4)
    assert torch.equal(large.flatten().argsort(), small.flatten().argsort())
    large.sum().backward()
    assert scorer.gate.grad.abs() > 1


@pytest.mark.parametrize("gate", [2.0, -2.0])
def test_cells_that_are_not_encoded_take_part_the_least(gate):
    """A trained gate may be below 0, which had made them those that take part the most."""
    given, encoded = arguments(), torch.tensor([0, 3, 4, 11, 17, 28])
    given["features"] = [feature[encoded] for feature in given["features"]]
    score = participant(gate=gate)(**given, encoded=encoded).flatten()
    others = torch.ones(30, dtype=torch.bool).index_fill(0, encoded, False)
    assert score[encoded].std() > 1e-3
    assert (score[others] == score[encoded].amin()).all()


def test_participation_without_a_question_is_exactly_zero():
    scorer, given = participant(gate=1.0), arguments()
    masked = scorer(**(given | {"query_mask": torch.zeros(4, dtype=torch.bool)}))
    assert torch.equal(masked, torch.zeros(5, 6))
    assert torch.equal(scorer(**arguments(tokens=0)), torch.zeros(5, 6))
    assert scorer(**given).abs().amax() > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("padding", [0.0, 7.0, torch.nan])
def test_padding_of_the_question_changes_nothing(side, padding):
    scorer, given = participant(gate=1.0), arguments()
    query, rest = given.pop("query"), torch.full((3, 32), padding)
    mask, off = given.pop("query_mask"), torch.zeros(3, dtype=torch.bool)
    padded_query = torch.cat([rest, query] if side == "left" else [query, rest])
    padded_mask = torch.cat([off, mask] if side == "left" else [mask, off])
    expected = scorer(query=query, query_mask=mask, **given)
    torch.testing.assert_close(scorer(query=padded_query, query_mask=padded_mask, **given), expected, atol=1e-6, rtol=0)


def test_a_cell_is_compared_with_the_word_that_fits_it_best():
    """By hand: cells and words as they are, at mean 0 and variance 1, no neighbours."""
    torch.manual_seed(0)
    matcher = WordMatcher((4,), 4, 4, num_heads=1, phrase_size=3)
    with torch.no_grad():
        matcher.cells[0].weight.copy_(torch.eye(4))
        matcher.words.weight.copy_(torch.cat([torch.zeros(4, 4), torch.eye(4), torch.zeros(4, 4)], -1))
    cells, words = torch.randn(6, 4), torch.randn(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    met = matcher((cells,), words * mask[..., None], mask, (2, 3))
    assert met.shape == (2, 6, 5)
    for question, asked, found in zip(words, (2, 3), met, strict=True):
        fit = normal(cells) @ normal(question[:asked]).T / 2
        expected = torch.stack([fit.amax(-1), (2 * fit - fit.amax(0)).amax(-1)], -1).clamp_min(0)
        torch.testing.assert_close(found[:, :2], expected, atol=1e-4, rtol=0)  # of the norm


def normal(rows: torch.Tensor) -> torch.Tensor:
    return (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()


def test_words_are_compared_with_their_neighbours_and_a_long_question_as_a_short_one(monkeypatch):
    torch.manual_seed(0)
    matcher = WordMatcher((4, 3), 5, 8, num_heads=2, phrase_size=3)
    features, words, mask = (
        (torch.randn(6, 4), torch.randn(6, 3)),
        torch.randn(150, 5),
        torch.ones(150, dtype=torch.bool),
    )
    met = matcher(features, words, mask, (2, 3))
    assert (matcher(features, words.flip(0), mask, (2, 3)) - met).abs().amax(0).min() > 1e-2  # in another order
    for pairs in (1, 6 * 7, 6 * 149):
        monkeypatch.setattr(matching, "_PAIRS_AT_ONCE", pairs)
        torch.testing.assert_close(matcher(features, words, mask, (2, 3)), met, atol=1e-6, rtol=0)
    assert torch.equal(matcher(features, words[:0], mask[:0], (2, 3)), torch.zeros(6, 7))
    assert torch.equal(matcher(features, words * 0, mask & False, (2, 3)), torch.zeros(6, 7))


def diagonal() -> PhraseMatcher:
    """One that asks whether the next cell fits the next word, whatever the words are there for."""
    phrases = PhraseMatcher(4, num_heads=1, size=1)
    with torch.no_grad():
        for parameter in phrases.parameters():
            parameter.zero_()
        phrases.together.weight[0, 0, 1, 3] = phrases.together.weight[0, 0, 2, 4] = 1.0
    return phrases


def test_words_that_follow_each_other_are_found_in_cells_that_do():
    """By hand: cell 1 fits word 2, and the cell to its right word 3; cell 5, which ends a row, word 2, and the next row word 3."""
    fit = torch.zeros(9, 1, 6)
    fit[1, 0, 2] = fit[2, 0, 3] = fit[5, 0, 2] = fit[6, 0, 3] = 1.0
    found = diagonal()(fit, torch.zeros(6, 1), torch.ones(6, dtype=torch.bool), (3, 3), None)
    expected = torch.nn.functional.gelu(torch.tensor([2.0, 1.0]))
    assert found.shape == (9, 1, 6)
    assert found[1, 0, 2] == expected[0]
    assert found[5, 0, 2] == expected[1]


def test_phrases_of_cells_encoded_in_part_stand_where_they_stand():
    """A cell that is left out fits no word, and parts its neighbours."""
    fit = torch.rand(9, 1, 6)
    encoded = torch.tensor([0, 1, 4, 5, 8])
    left_out = torch.ones(9, dtype=torch.bool).index_fill(0, encoded, False)
    arguments = torch.zeros(6, 1), torch.ones(6, dtype=torch.bool), (3, 3)
    whole = diagonal()(fit.masked_fill(left_out[:, None, None], 0), *arguments, None)
    assert torch.equal(diagonal()(fit[encoded], *arguments, encoded), whole[encoded])


def test_what_a_word_is_there_for_hangs_on_the_words_around_it():
    torch.manual_seed(0)
    phrases, words, mask = PhraseMatcher(4, 1, 8), torch.randn(30, 4), torch.ones(30, dtype=torch.bool)
    changed = words.index_fill(0, torch.tensor([12]), 5.0)
    moved = (phrases.parts(words, mask) - phrases.parts(changed, mask)).abs().amax(-1) > 1e-6
    assert moved.nonzero().flatten().tolist() == [n for n in range(30) if abs(n - 12) <= 13 and n - 12 in reach()]


def reach() -> set[int]:
    """How far words are from those that change what they are there for: a step of 1, 3 and 9 words at most."""
    return {one + three + nine for one in (-1, 0, 1) for three in (-3, 0, 3) for nine in (-9, 0, 9)}


def test_participation_works_on_one_feature():
    score = participant(gate=1.0, feature_sizes=[24])(**arguments(sizes=[24]))
    assert score.isfinite().all()
    assert score.std() > 1e-3


def test_no_gradient_enters_the_embeddings():
    scorer, given = participant(gate=1.0), arguments()
    learned = [given["texture"], *given["features"]]  # by stage 1's reader, or a texture channel
    for tensor in (*learned, given["query"]):
        tensor.requires_grad_()
    scorer(**given).sum().backward()
    assert given["query"].grad is None
    assert all(tensor.grad is not None for tensor in learned)


def test_features_may_be_bfloat16():
    """Rounding 8-bit mantissas moves the score by a little; the arithmetic itself is float32."""
    scorer = participant(gate=1.0)
    score = scorer(**arguments(dtype=torch.bfloat16))
    assert score.dtype == torch.float32
    rounded = arguments(dtype=torch.bfloat16)
    rounded |= {name: rounded[name].float() for name in ("texture", "query")}
    rounded["features"] = [feature.float() for feature in rounded["features"]]
    assert torch.equal(score, scorer(**rounded))


@pytest.mark.parametrize(
    "build", [PerspectivalScorer, lambda: participant(gate=0.5)], ids=["perspectival", "participatory"]
)
def test_dtype_of_the_model_and_autocast(build):
    """Under autocast: the same bits. Weights of bfloat16: float32 out, the score of the rounded weights exactly."""
    torch.manual_seed(0)
    scorer = build()
    given = arguments() if isinstance(scorer, ParticipatoryScorer) else {"texture": random_texture()}
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_((parameter + 0.01).bfloat16())
    expected = scorer(**given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(scorer(**given), expected)
    half = scorer.bfloat16()(**given)
    assert half.dtype == torch.float32
    assert torch.equal(half, expected)


@pytest.mark.parametrize(
    "build", [PerspectivalScorer, lambda: ParticipatoryScorer(**SIZES)], ids=["perspectival", "participatory"]
)
def test_built_on_meta_equals_built_on_cpu(build):
    """Nothing lives outside the parameters, so that a model built without memory and then filled is the same model."""
    torch.manual_seed(0)
    expected = build()
    with torch.device("meta"):
        scorer = build()
    scorer.to_empty(device="cpu")
    torch.manual_seed(0)
    expected.reset_parameters()
    torch.manual_seed(0)
    scorer.reset_parameters()
    assert not list(scorer.buffers())
    for (name, parameter), other in zip(scorer.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(parameter, other), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texture": torch.zeros(12, 5, 6)}, r"\(12, 5, 6\); wanted \(13, h, w\)"),
        ({"features": [torch.zeros(29, 24)] * 3}, r"\[\(29, 24\), .*wanted \[\(30, 24\), \(30, 20\)"),
        ({"features": [torch.zeros(30, 24)]}, r"shapes \[\(30, 24\)\]; wanted \[\(30, 24\), \(30, 20\)"),
        ({"query": torch.zeros(1, 1, 4, 32)}, r"\(1, 1, 4, 32\); wanted \(Tq, 32\)"),
        ({"query_mask": torch.ones(4)}, r"torch.float32 of shape \(4,\); wanted torch.bool"),
        ({"query_mask": torch.ones(3, dtype=torch.bool)}, r"shape \(3,\); wanted torch.bool of shape \(4,\)"),
    ],
)
def test_participation_refuses_what_does_not_fit(change, message):
    scorer, given = participant(), arguments()
    with pytest.raises(ValueError, match=message):
        scorer(**(given | change))
    scorer(**given)


def test_participation_refuses_heads_that_do_not_divide():
    with pytest.raises(ValueError, match="hidden_size=10 is not a multiple of num_heads=8"):
        ParticipatoryScorer(**SIZES, hidden_size=10)


def test_participation_is_light_on_the_largest_model():
    """4 * 4096 -> 64 + 256 from visual tokens and DeepStack, 4096 -> 64 + 32 and three words -> 256 from the question: 9.0 million
    parameters, a thousandth of 8B."""
    scorer = ParticipatoryScorer(13, [4096] * 4, 4096)
    assert sum(parameter.numel() for parameter in scorer.parameters()) < 9_000_000


def _assert_gradients(scorer: torch.nn.Module, score, at_first: set[str]) -> None:
    """One step of gradient descent on a loss that wants high scores in the first row: who has a gradient, and when."""
    optimizer = torch.optim.SGD(scorer.parameters(), lr=0.1)
    for expected in (at_first, {name for name, _ in scorer.named_parameters()}):
        optimizer.zero_grad()
        result = score()
        (result[1:].sum() - result[:1].sum() * 3).backward()
        gradients = {name: parameter.grad for name, parameter in scorer.named_parameters()}
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
        assert {name for name, gradient in gradients.items() if gradient.abs().amax() > 0} == expected
        optimizer.step()
