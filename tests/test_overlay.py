"""The picture of an allocation, pixel by pixel."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from arrcoc.allocation import Allocation
from arrcoc.overlay import FINE_OUTLINE, HEAT_COLOURS, HEAT_OPACITY, POOLED_OUTLINE, heatmap, logger


def allocation(cell_token, level, relevance=None) -> Allocation:
    """A hand-made plan: `cell_token` as rows of the grid, the position of each token at its first cell."""
    cells = torch.tensor(cell_token)
    grid = (1, *cells.shape)
    first = [(cells.flatten() == token).nonzero()[0].item() for token in range(len(level))]
    positions = torch.tensor([[0, cell // grid[2], cell % grid[2]] for cell in first]).view(-1, 3)
    relevance = torch.zeros(grid) if relevance is None else torch.tensor([relevance])
    return Allocation(
        positions=positions,
        grid=grid,
        relevance=relevance,
        scores={},
        tensions={},
        level=torch.tensor(level),
        depth=torch.full((len(level),), 3),
        cell_token=cells.flatten(),
    )


def outlined(picture: Image.Image, colour) -> np.ndarray:
    """(height, width) bool, where a picture has exactly `colour`."""
    return (np.asarray(picture) == np.array(colour)).all(-1)


def border(height, width, top, left, bottom, right) -> np.ndarray:
    """(height, width) bool: the one-pixel outline of a rectangle, both ends included."""
    mask = np.zeros((height, width), bool)
    mask[[top, bottom], left : right + 1] = True
    mask[top : bottom + 1, [left, right]] = True
    return mask


def test_kept_cell_is_outlined_and_no_other():
    """2 x 3 cells on 30 x 20 pixels, 10 x 10 each; the kept one, row 1, column 2, spans x 20 to 29 and y 10 to 19."""
    drawn = allocation([[-1, -1, -1], [-1, -1, 0]], [0]).overlay(Image.new("RGB", (30, 20), "white"))
    assert drawn.size == (30, 20)
    assert drawn.mode == "RGB"
    assert np.array_equal(outlined(drawn, FINE_OUTLINE), border(20, 30, 10, 20, 19, 29))
    assert not outlined(drawn, POOLED_OUTLINE).any()


def test_pooled_block_is_outlined_as_one():
    """Cells of 10 x 10: the pooled 2 x 2 block spans 0 to 19 in both directions, with no line inside."""
    drawn = allocation([[0, 0, -1], [0, 0, 1]], [1, 0]).overlay(Image.new("RGB", (30, 20), "white"))
    assert np.array_equal(outlined(drawn, POOLED_OUTLINE), border(20, 30, 0, 0, 19, 19))
    assert np.array_equal(outlined(drawn, FINE_OUTLINE), border(20, 30, 10, 20, 19, 29))


def test_neighbouring_fine_cells_each_have_their_outline():
    drawn = allocation([[0, 1]], [0, 0]).overlay(Image.new("RGB", (20, 10), "white"))
    expected = border(10, 20, 0, 0, 9, 9) | border(10, 20, 0, 10, 9, 19)
    assert np.array_equal(outlined(drawn, FINE_OUTLINE), expected)


@pytest.mark.parametrize(
    ("size", "told"), [((30, 20), False), ((31, 20), False), ((300, 201), False), ((20, 30), True)]
)
def test_an_image_of_another_shape_is_told(size, told, caplog, monkeypatch):
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    allocation([[-1, -1, -1], [-1, -1, 0]], [0]).overlay(Image.new("RGB", size))
    assert ("is it that of another image?" in caplog.text) is told


def test_outline_grows_with_the_image():
    """Cells of 120 pixels: 120 / 12 = 10 pixels of outline, inside of the cell."""
    mask = outlined(allocation([[0, -1]], [0]).overlay(Image.new("RGB", (240, 120), "white")), FINE_OUTLINE)
    expected = np.zeros((120, 240), bool)
    expected[:, :120] = True
    expected[10:110, 10:110] = False
    assert np.array_equal(mask, expected)


def test_heat_under_the_outline():
    """Relevance 0 and 1: the first and the last colour at 45% over white, ending exactly where the cell ends."""
    drawn = np.asarray(allocation([[-1, -1]], [], [[0.0, 1.0]]).overlay(Image.new("RGB", (20, 10), "white")))
    for half, colour in ((drawn[:, :10], HEAT_COLOURS[0]), (drawn[:, 10:], HEAT_COLOURS[-1])):
        expected = [255 + HEAT_OPACITY * (value - 255) for value in colour]
        assert np.abs(half - np.array(expected)).max() <= 1


def test_heatmap_by_hand():
    """Stretched to the range: 2 is low, 8 high, 4 a third of the way, which is the second of four colours."""
    colours = heatmap(np.array([[2.0, 4.0, 8.0]]))
    assert colours.tolist() == [[list(HEAT_COLOURS[0]), list(HEAT_COLOURS[1]), list(HEAT_COLOURS[3])]]
    assert heatmap(np.full((2, 2), 0.7)).tolist() == [[list(HEAT_COLOURS[0])] * 2] * 2


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (31, 17), (640, 5)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "I;16"])
def test_any_size_and_mode(size, mode):
    image = Image.new("L", size, 128).convert(mode) if mode != "I;16" else Image.new("I;16", size, 2**15)
    drawn = allocation([[0, 0, 1], [0, 0, -1], [-1, 2, -1]], [1, 0, 0]).overlay(image)
    assert drawn.size == size
    assert drawn.mode == "RGB"


def test_the_image_itself_is_not_drawn_on():
    image = Image.new("RGB", (30, 20), "white")
    allocation([[0, -1, -1]], [0]).overlay(image)
    assert np.asarray(image).min() == 255


def test_an_image_that_its_exif_tag_turns_is_drawn_upright():
    """Orientation 6: stored lying, shown standing. The model saw it standing, 10 wide and 20 high."""
    lying = Image.new("RGB", (20, 10), "white")
    lying.getexif()[0x0112] = 6
    drawn = allocation([[-1], [0]], [0]).overlay(lying)
    assert drawn.size == (10, 20)
    assert np.array_equal(outlined(drawn, FINE_OUTLINE), border(20, 10, 10, 0, 19, 9))


@pytest.mark.parametrize(
    "wrong",
    ["page.png", np.zeros((4, 4, 3), np.uint8), None, torch.zeros(3, 4, 4)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_pil_image_is_refused(wrong):
    made = allocation([[0, -1]], [0])
    with pytest.raises(TypeError, match=f"got {type(wrong).__name__}; open it with PIL"):
        made.overlay(wrong)
    assert made.overlay(Image.new("RGB", (4, 2))).size == (4, 2)


def test_overlay_of_a_real_allocation(tiny_model, make_inputs, page):
    """As many outlined cells as kept tokens: counted by the middle of each cell's upper edge."""
    picture = page(128, 96)
    (made,) = tiny_model().allocate(**make_inputs(picture, token_budget=7))
    mask = outlined(made.overlay(picture), FINE_OUTLINE)
    _, height, width = made.grid
    cell = 16
    assert (picture.width, picture.height) == (width * cell, height * cell)
    edges = {(row, column) for row in range(height) for column in range(width) if mask[row * cell, column * cell + 8]}
    assert edges == {(row, column) for _, row, column in made.positions.tolist()}
    assert len(edges) == 7
    assert math.prod(made.grid) == 48
