"""What stage 1 reads of the raw image: shapes, what each cell sees, and how it starts."""

import pytest
import torch

from arrcoc.reading import READ_FEATURES, READ_PIXELS, CellReader
from arrcoc.texture import pixel_canvas


@pytest.fixture
def reader():
    torch.manual_seed(0)
    return CellReader()


@pytest.mark.parametrize("grid", [(1, 1), (1, 30), (3, 5), (9, 2)])
@pytest.mark.parametrize("pixels", [4, 11, 16])
def test_a_row_of_features_for_each_cell_whatever_its_pixels(grid, pixels, reader):
    read = reader(torch.rand(3, grid[0] * pixels, grid[1] * pixels), grid)
    assert read.shape == (grid[0] * grid[1], READ_FEATURES)
    assert read.dtype == torch.float32
    assert read.isfinite().all()


def test_rows_are_the_cells_in_raster_order_and_see_their_neighbours_alone(reader):
    grid, cell = (9, 11), (4, 6)
    canvas = torch.full((3, grid[0] * READ_PIXELS, grid[1] * READ_PIXELS), 0.5)
    marked = canvas.clone()
    place = tuple(slice(n * READ_PIXELS + 4, n * READ_PIXELS + 12) for n in cell)
    marked[(slice(None), *place)] = 0
    moved = (reader(canvas, grid) - reader(marked, grid)).abs().amax(-1).view(grid)
    assert moved.argmax() == cell[0] * grid[1] + cell[1]
    rows, columns = torch.meshgrid(torch.arange(9), torch.arange(11), indexing="ij")
    near = ((rows - cell[0]).abs() <= 3) & ((columns - cell[1]).abs() <= 3)
    assert (moved[~near] == 0).all()
    assert (moved[near] > 0).sum() > 9


def test_cells_of_other_sizes_are_resampled_not_cut(reader):
    image = (torch.rand(3, 8, 8).repeat_interleave(64, 1).repeat_interleave(64, 2) * 255).to(torch.uint8)
    fine, coarse = (pixel_canvas(image, (8, 8), max_cell_pixels=p) for p in (16, 8))
    near = (reader(fine, (8, 8)) - reader(coarse, (8, 8))).norm() / reader(fine, (8, 8)).norm()
    other = (reader(fine, (8, 8)) - reader(fine.flip(2), (8, 8))).norm() / reader(fine, (8, 8)).norm()
    assert near < other / 2


def test_it_calculates_in_float32_whatever_it_is_stored_in(reader):
    canvas = torch.rand(3, 32, 48)
    expected = reader(canvas, (2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(reader(canvas, (2, 3)), expected)
    stored = reader.to(torch.bfloat16)(canvas, (2, 3))
    assert stored.dtype == torch.float32
    assert 0 < (stored - expected).abs().max() < 0.2 * expected.abs().max()


def test_a_canvas_that_does_not_fit_is_refused(reader):
    with pytest.raises(ValueError, match="make it with pixel_canvas"):
        reader(torch.rand(3, 32, 50), (2, 3))


def test_a_model_starts_it_as_the_layer_does(new_model, tiny_config):
    """transformers initialises what a checkpoint lacks; 0.02 for every convolution would hardly let a picture through."""
    for convolution in new_model(tiny_config(), awake=False).model.arrcoc.reader.modules():
        if isinstance(convolution, torch.nn.Conv2d):
            fan_in = convolution.weight[0].numel()
            assert convolution.weight.std().item() == pytest.approx((1 / 3 / fan_in) ** 0.5, rel=0.25)
