"""The texture array: one value worked out by hand per channel, then what holds for every picture."""

import pytest
import torch

from arrcoc import texture
from arrcoc.texture import TEXTURE_CHANNELS, cluster_cells, orientation_energy, pixel_canvas, texture_array

GRIDS = [(1, 1), (1, 113), (113, 1), (7, 9), (128, 128)]


def channel(canvas: torch.Tensor, grid_hw: tuple[int, int], name: str) -> torch.Tensor:
    return texture_array(canvas, grid_hw)[TEXTURE_CHANNELS.index(name)]


def grey(height: int, width: int, value: float) -> torch.Tensor:
    return torch.full((3, height, width), float(value))


def random_image(size: int = 512, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "index"), [("red", 0), ("green", 1), ("blue", 2)])
def test_colour_is_the_mean_of_the_cell(name, index):
    """Cell 1: 4 of its 16 pixels read 1, the others 0.2: (4 + 12 * 0.2) / 16 = 0.4. Cell 0 and the other colours: 0."""
    canvas = grey(4, 8, 0)
    canvas[index, :, 4:] = 0.2
    canvas[index, 1, 4:] = 1
    torch.testing.assert_close(channel(canvas, (1, 2), name), torch.tensor([[0.0, 0.4]]))
    assert texture_array(canvas, (1, 2))[:3].sum() == pytest.approx(0.4)


def test_row_is_the_centre_of_the_cell():
    """4 rows: the first spans 0 to 1/4, its centre is 1/8; each next one is 1/4 further down. The same in both columns."""
    expected = torch.tensor([0.125, 0.375, 0.625, 0.875])
    torch.testing.assert_close(channel(grey(16, 8, 0.5), (4, 2), "row"), torch.stack([expected, expected], dim=1))


def test_the_default_dtype_is_no_matter():
    canvas = pixel_canvas(random_image(96), (7, 11))
    wanted = texture_array(canvas, (7, 11))
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = texture_array(canvas, (7, 11))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, wanted)


def test_column_is_the_centre_of_the_cell():
    """5 columns of 1/5 each: centres at 0.1, 0.3, 0.5, 0.7, 0.9. The same in both rows."""
    expected = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    torch.testing.assert_close(channel(grey(8, 20, 0.5), (2, 5), "column"), torch.stack([expected, expected]))


def test_sobel_x_counts_both_sides_of_a_stroke():
    """A white line, pixel column 6 of 8, on black: column 5 reads +1, 6 reads 0, 7 reads -1. Cell 1 holds columns 4 to 7:
    (0 + 1 + 0 + 1) / 4 = 0.5 in absolute values (signed, it would be 0). Cell 0 reads 0."""
    canvas = grey(4, 8, 0)
    canvas[:, :, 6] = 1
    torch.testing.assert_close(channel(canvas, (1, 2), "sobel_x"), torch.tensor([[0.0, 0.5]]))
    torch.testing.assert_close(channel(canvas, (1, 2), "sobel_y"), torch.tensor([[0.0, 0.0]]))


def test_sobel_y_is_proportional_to_the_step():
    """Grey 0.25 above, 0.75 below, between pixel rows 2 and 3: both read 0.5. Cell 0, rows 0 to 3: 2 * 0.5 / 4 = 0.25."""
    canvas = grey(8, 4, 0.25)
    canvas[:, 3:] = 0.75
    torch.testing.assert_close(channel(canvas, (2, 1), "sobel_y"), torch.tensor([[0.25], [0.0]]))
    torch.testing.assert_close(channel(canvas, (2, 1), "sobel_x"), torch.tensor([[0.0], [0.0]]))


def test_sobel_magnitude_is_the_length_of_the_gradient():
    """A slope of 0.03 per pixel across and 0.04 down: neighbours on either side differ by 0.06 and 0.08, and
    sqrt(0.06^2 + 0.08^2) = 0.1 at every pixel of the middle cell, which does not touch the border."""
    slope = 0.03 * torch.arange(12)[None, :] + 0.04 * torch.arange(12)[:, None]
    magnitude = channel(slope.expand(3, 12, 12), (3, 3), "sobel_magnitude")
    assert magnitude[1, 1].item() == pytest.approx(0.1, abs=1e-6)


def test_saliency_intensity_of_one_bright_cell():
    """A cell of 1.0 in the middle of 3 x 3 cells of 0.2; surrounds of radius 1, 3 and 7, the cell itself left out.

    Middle: all 8 others are 0.2 at every radius: 0.8. Corner: radius 1 has 3 others, (0.2 + 0.2 + 1) / 3 = 0.46667,
    differing by 0.26667; radius 3 and 7 have all 8, (7 * 0.2 + 1) / 8 = 0.3, differing by 0.1: mean 0.15556. Side:
    radius 1 has 5 others, (4 * 0.2 + 1) / 5 = 0.36, differing by 0.16; then 0.1 and 0.1: mean 0.12.
    """
    canvas = grey(12, 12, 0.2)
    canvas[:, 4:8, 4:8] = 1
    corner, side = 0.155556, 0.12
    expected = torch.tensor([[corner, side, corner], [side, 0.8, side], [corner, side, corner]])
    torch.testing.assert_close(channel(canvas, (3, 3), "saliency_intensity"), expected, atol=1e-5, rtol=0)


def test_saliency_colour_of_a_red_cell_on_white():
    """Red: red-green 1 - 0 = 1, blue-yellow 0 - (1 + 0) / 2 = -0.5; white: 0 and 0.

    Middle: (1 + 0.5) / 2 = 0.75 at every radius. Corner: radius 1, one of 3 others is red: 0.75 / 3 = 0.25; radius 3
    and 7, one of 8: 0.09375: mean (0.25 + 2 * 0.09375) / 3 = 0.145833.
    """
    canvas = grey(12, 12, 1)
    canvas[1:, 4:8, 4:8] = 0
    saliency = channel(canvas, (3, 3), "saliency_colour")
    assert saliency[1, 1].item() == pytest.approx(0.75, abs=1e-5)
    assert saliency[2, 0].item() == pytest.approx(0.145833, abs=1e-5)


def test_saliency_orientation_of_a_stroke():
    """A white line, pixel column 6, in the middle one of three cells of 4 pixels: the horizontal derivative is 1 in size at
    columns 5 and 7, so its mean square is 2 / 4 = 0.5, the vertical one's is 0. Along 0, 45, 90, 135 degrees: 0.5,
    0.25, 0, 0.25; roots 0.70711, 0.5, 0, 0.5; mean 0.42678, and the other cells hold nothing.

    Middle: 0.42678. Ends: radius 1 sees the middle alone, 0.42678; radius 3 and 7 see it and the other end, half of
    that, 0.21339: mean 0.28452.
    """
    canvas = grey(4, 12, 0)
    canvas[:, :, 6] = 1
    expected = torch.tensor([[0.28452, 0.42678, 0.28452]])
    torch.testing.assert_close(channel(canvas, (1, 3), "saliency_orientation"), expected, atol=1e-5, rtol=0)


def test_orientation_energy_of_a_diagonal():
    """A gradient of (1, 1): 1 along 0 degrees and along 90, sqrt(2) along itself, 45, nothing across, 135."""
    energy = orientation_energy(*torch.ones(3, 1, 1))
    torch.testing.assert_close(energy.flatten(), torch.tensor([1, 1.414214, 1, 0]))


def test_cluster_membership_is_one_half_between_two_clusters():
    """Features 0, 0 | 0.18 | 0.36, 0.36 | 1, 1. The mean is 0.414, so 0.36 is the first centre; 1 and 0 are opened as the
    farthest; 0.18 lies within two spreads (0.2) of both 0 and 0.36, and opens none. It is the mirror point of those
    two, so it belongs to each by 1/2, whatever the iterations do. The 1s are alone within six spreads: 1.

    On a page of black and white halves every cell is six spreads from the other kind: 1 everywhere.
    """
    features = torch.tensor([[0, 0, 0.18, 0.36, 0.36, 1, 1]])
    membership, _ = cluster_cells(features)
    assert membership[2].item() == pytest.approx(0.5, abs=1e-4)
    assert membership[5:].tolist() == pytest.approx([1, 1], abs=1e-4)
    canvas = grey(8, 8, 0)
    canvas[:, :, 4:] = 1
    torch.testing.assert_close(channel(canvas, (2, 2), "cluster_membership"), torch.ones(2, 2))


def test_cells_that_differ_by_rounding_open_the_same_clusters():
    torch.manual_seed(0)
    page = torch.rand(5, 4).repeat_interleave(12, 1)[:, torch.randperm(48)]  # four kinds of cell
    centres, _ = texture._farthest_point_centres(page)
    for _ in range(5):
        noise = 1e-6 * torch.randn_like(page)
        others, _ = texture._farthest_point_centres(page + noise)
        of_same_cells = (others[:, None] - (page + noise)[..., None]).abs().sum(0).argmin(0)
        assert torch.equal(of_same_cells, (centres[:, None] - page[..., None]).abs().sum(0).argmin(0))


def test_cluster_contrast_of_one_green_cell_among_three_red():
    """Red 0.587 and green 0.299 have the same luminance, so that only the colour features differ: the two clusters lie
    sqrt(0.587^2 + 0.299^2) = 0.658764 apart, 0.294608 of the largest distance, sqrt(5).

    A red cell is that far from 1/4 of the page: 0.073652. The green one from 3/4: 0.220956.
    """
    canvas = grey(8, 8, 0)
    canvas[0] = 0.587
    canvas[0, 4:, 4:], canvas[1, 4:, 4:] = 0, 0.299
    expected = torch.tensor([[0.073652, 0.073652], [0.073652, 0.220956]])
    torch.testing.assert_close(channel(canvas, (2, 2), "cluster_contrast"), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("size", "grid_hw", "cell_pixels"),
    [
        (512, (1, 1), 16),  # 512 // 1, held at 16
        (512, (7, 9), 16),
        (512, (48, 64), 8),
        (512, (1, 113), 4),  # 512 // 113
        (512, (128, 128), 4),
        (512, (200, 1), 4),  # 512 // 200 = 2, held at 4
        (32, (3, 2), 10),
    ],
)
def test_canvas_has_whole_pixels_per_cell(size, grid_hw, cell_pixels):
    canvas = pixel_canvas(random_image(size), grid_hw)
    assert canvas.shape == (3, grid_hw[0] * cell_pixels, grid_hw[1] * cell_pixels)
    assert canvas.dtype == torch.float32
    assert canvas.amin() >= 0
    assert canvas.amax() <= 1


def test_canvas_without_resizing_is_the_image():
    image = random_image(64)
    torch.testing.assert_close(pixel_canvas(image, (4, 4)), image / 255, atol=0, rtol=0)


def test_canvas_keeps_left_left_and_right_right():
    """The right half white, on a grid of 2 x 8 cells: the first 3 columns of cells are black, the last 3 white."""
    image = torch.zeros(3, 64, 64, dtype=torch.uint8)
    image[:, :, 32:] = 255
    red = channel(pixel_canvas(image, (2, 8)), (2, 8), "red")
    torch.testing.assert_close(red[:, [0, 1, 2, 5, 6, 7]], torch.tensor([[0, 0, 0, 1.0, 1, 1]] * 2))


def test_a_fine_stripe_pattern_is_antialiased():
    """One column in four white, shrunk 8 times: even grey, 0.25; interpolating between two columns would give 0.5."""
    image = torch.zeros(3, 512, 512, dtype=torch.uint8)
    image[:, :, ::4] = 255
    red = channel(pixel_canvas(image, (4, 4)), (4, 4), "red")
    torch.testing.assert_close(red, torch.full((4, 4), 0.25), atol=0.01, rtol=0)


@pytest.mark.parametrize("grid_hw", GRIDS)
@pytest.mark.parametrize("kind", ["noise", "black", "white"])
def test_any_grid_is_finite_and_bounded(grid_hw, kind):
    image = random_image() if kind == "noise" else torch.full((3, 512, 512), 255 * (kind == "white"), dtype=torch.uint8)
    texture = texture_array(pixel_canvas(image, grid_hw), grid_hw)
    assert texture.shape == (13, *grid_hw)
    assert texture.dtype == torch.float32
    assert texture.isfinite().all()
    assert texture.amin() >= 0
    assert texture.amax() <= 1.5


@pytest.mark.parametrize("grid_hw", GRIDS)
def test_a_constant_image_has_colour_and_place_alone(grid_hw):
    texture = texture_array(pixel_canvas(torch.full((3, 512, 512), 90, dtype=torch.uint8), grid_hw), grid_hw)
    torch.testing.assert_close(texture[:3], torch.full((3, *grid_hw), 90 / 255))
    nothing = [
        name for name in TEXTURE_CHANNELS if name.startswith(("sobel", "saliency")) or name == "cluster_contrast"
    ]
    for name in nothing:
        assert texture[TEXTURE_CHANNELS.index(name)].abs().amax() < 1e-5, name
    torch.testing.assert_close(texture[TEXTURE_CHANNELS.index("cluster_membership")], torch.ones(grid_hw))


def test_one_cell_has_no_surround():
    texture = texture_array(pixel_canvas(random_image(), (1, 1)), (1, 1))
    assert texture[8:11].abs().amax() == 0


def test_page_borders_do_not_stand_out():
    """Every cell holds the same dark red square on white, so none differs from its surround, at the border or inside."""
    cell = torch.ones(3, 8, 8)
    cell[:, 2:6, 2:6] = torch.tensor([0.5, 0, 0])[:, None, None]
    assert texture_array(cell.repeat(1, 8, 8), (8, 8))[8:11].amax() < 1e-5


def test_the_same_image_gives_the_same_bits():
    canvas = pixel_canvas(random_image(), (19, 31))
    assert torch.equal(texture_array(canvas, (19, 31)), texture_array(canvas.clone(), (19, 31)))


def test_autocast_changes_nothing():
    image = random_image()
    expected = texture_array(pixel_canvas(image, (19, 31)), (19, 31))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(texture_array(pixel_canvas(image, (19, 31)), (19, 31)), expected)


def test_results_lie_where_the_image_lies():
    """With another default device, a tensor made without naming the image's would not mix with the image."""
    expected = texture_array(pixel_canvas(random_image(), (7, 9)), (7, 9))
    image = random_image()
    with torch.device("meta"):
        texture = texture_array(pixel_canvas(image, (7, 9)), (7, 9))
    assert torch.equal(texture, expected)


@pytest.mark.parametrize("grid_hw", GRIDS)
def test_several_images_are_measured_as_each_alone(grid_hw):
    images = torch.stack([random_image(seed=seed) for seed in range(3)])
    together = texture_array(pixel_canvas(images, grid_hw), grid_hw)
    assert together.shape == (3, 13, *grid_hw)
    alone = torch.stack([texture_array(pixel_canvas(image, grid_hw), grid_hw) for image in images])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("grid_hw", GRIDS)
def test_gpu_agrees_with_cpu(grid_hw):
    canvas = pixel_canvas(random_image(), grid_hw)
    torch.testing.assert_close(
        texture_array(canvas.cuda(), grid_hw).cpu(), texture_array(canvas, grid_hw), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("image", "grid_hw", "message"),
    [
        (torch.zeros(3, 4, 8, dtype=torch.uint8), (1, 1), r"\(3, 4, 8\); wanted \(3, S, S\)"),
        (torch.zeros(1, 1, 3, 8, 8, dtype=torch.uint8), (1, 1), r"wanted \(3, S, S\)"),
        (torch.zeros(3, 0, 0, dtype=torch.uint8), (1, 1), r"\(3, 0, 0\); wanted"),
        (torch.zeros(3, 8, 8), (1, 1), r"float32; wanted torch.uint8"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), (0, 3), r"grid_hw=\(0, 3\); wanted"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), (1, 2, 3), r"grid_hw=\(1, 2, 3\); wanted"),
    ],
)
def test_bad_images_are_refused(image, grid_hw, message):
    with pytest.raises(ValueError, match=message):
        pixel_canvas(image, grid_hw)
    pixel_canvas(torch.zeros(3, 8, 8, dtype=torch.uint8), (1, 1))


def test_bad_cell_pixels_are_refused():
    with pytest.raises(ValueError, match="max_cell_pixels=3; wanted 4 or more"):
        pixel_canvas(random_image(64), (2, 2), max_cell_pixels=3)


@pytest.mark.parametrize("shape", [(3, 8, 13), (3, 8, 4), (1, 8, 12), (8, 12), (3, 0, 0)])
def test_a_canvas_that_does_not_fit_is_refused(shape):
    with pytest.raises(ValueError, match="pixel_canvas"):
        texture_array(torch.zeros(shape), (2, 3))
    texture_array(torch.zeros(3, 8, 12), (2, 3))


def test_an_integer_canvas_is_refused():
    with pytest.raises(ValueError, match=r"uint8; wanted floats"):
        texture_array(torch.zeros(3, 8, 12, dtype=torch.uint8), (2, 3))
