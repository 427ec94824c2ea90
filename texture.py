"""The texture array: 13 plain measurements of every visual token's cell, taken from the raw image without any network.

A cell is the square of the image that one merged Qwen3-VL token stands for. Everything here works on one image or on several of
one grid (leading dimensions, `...` in the shapes), each as if it was alone, in float32 (also under autocast), and on the device
of its input. On a GPU the arithmetic is next to nothing and the launch of each operation is what it costs, so what can be measured
together is stacked.
"""

import torch
import torch.nn.functional as F

TEXTURE_CHANNELS: tuple[str, ...] = (
    "red",
    "green",
    "blue",
    "row",
    "column",
    "sobel_x",
    "sobel_y",
    "sobel_magnitude",
    "saliency_intensity",
    "saliency_colour",
    "saliency_orientation",
    "cluster_membership",
    "cluster_contrast",
)

SURROUND_RADII = (1, 3, 7)  # cells; with the centre of one cell, surrounds of 3, 7 and 15 cells across
CLUSTER_COUNT = 5  # at most; fewer where the page has fewer kinds of cell
CLUSTER_SPREAD = 0.1  # feature units: the standard deviation of a cluster
CLUSTER_ITERATIONS = 8
_MIN_CELL_PIXELS = 4  # a side


def pixel_canvas(image: torch.Tensor, grid_hw: tuple[int, int], *, max_cell_pixels: int = 16) -> torch.Tensor:
    """The raw image at its grid's true aspect, a whole number of pixels per cell.

    `image` is (3, S, S) uint8, the picture squeezed or stretched into a square, or (n, 3, S, S). Returns (3, h * p, w * p), or n of
    them, float32 in [0, 1] with p = S // max(h, w), held between 4 and `max_cell_pixels`; p depends on the grid and S alone.
    Resampling is bilinear with antialiasing. Raises ValueError on any other shape or dtype, an empty grid, or a `max_cell_pixels`
    below 4.
    """
    if image.ndim not in (3, 4) or image.shape[-3] != 3 or image.shape[-2] != image.shape[-1] or image.shape[-1] == 0:
        raise ValueError(
            f"image has shape {tuple(image.shape)}; wanted (3, S, S), channels first and square, or several of these: pass "
            "texture_images"
        )
    if image.dtype != torch.uint8:
        raise ValueError(
            f"image has dtype {image.dtype}; wanted torch.uint8 (0 to 255): pass the raw image, not pixel_values"
        )
    if max_cell_pixels < _MIN_CELL_PIXELS:
        raise ValueError(f"max_cell_pixels={max_cell_pixels}; wanted {_MIN_CELL_PIXELS} or more")
    height, width = _checked_grid(grid_hw)
    cell_pixels = min(max(image.shape[-1] // max(height, width), _MIN_CELL_PIXELS), max_cell_pixels)
    size = (height * cell_pixels, width * cell_pixels)
    canvas = image.float() / 255
    if size != tuple(image.shape[-2:]):
        pictures = canvas if image.ndim == 4 else canvas[None]
        pictures = F.interpolate(pictures, size=size, mode="bilinear", align_corners=False, antialias=True)
        canvas = pictures if image.ndim == 4 else pictures[0]
    return canvas.clamp(0, 1)


def texture_array(canvas: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
    """The 13 channels of `TEXTURE_CHANNELS` for every cell: (..., 13, h, w) float32, all finite and at least 0.

    `canvas` is (..., 3, h * p, w * p) in [0, 1], as `pixel_canvas` returns it. Units, in order of the channels:

    - red, green, blue: mean over the cell, 0 to 1.
    - row, column: the cell's centre, (i + 0.5) / h and (j + 0.5) / w.
    - sobel_x, sobel_y, sobel_magnitude: the Sobel response of the luminance, divided by 4, so that the two pixel
      columns at an ideal black and white step read 1 each; averaged over the cell. x and y are averaged as absolute
      values: signed, the two sides of a stroke would cancel, and a page of text would look blank.
    - saliency_*: |centre - surround| of a cell and its neighbourhood, averaged over the `SURROUND_RADII`: in luminance
      (0 to 1), in the two colour opponents (red on white 0.75) and in oriented energy (root mean square derivative
      along 4 directions).
    - cluster_membership, cluster_contrast: see `cluster_cells`.

    Raises ValueError if the canvas does not fit the grid. Sources: Itti, Koch and Niebur, "A model of saliency-based
    visual attention for rapid scene analysis" (1998), for saliency; Fu, Cao and Tu, "Cluster-based co-saliency
    detection" (2013), for cluster contrast.
    """
    height, width, cell_pixels = cell_geometry(canvas, grid_hw)
    with torch.no_grad(), torch.autocast(canvas.device.type, enabled=False):
        canvas = canvas.float()
        luminance = luminance_of(canvas)
        gradient_x, gradient_y = sobel(luminance)
        squared_x, squared_y = gradient_x.square(), gradient_y.square()
        pixels = torch.stack(
            [
                luminance,
                luminance.square(),
                gradient_x.abs(),
                gradient_y.abs(),
                (squared_x + squared_y).sqrt(),
                squared_x,
                squared_y,
                gradient_x * gradient_y,
            ],
            -3,
        )
        colour = F.avg_pool2d(canvas, cell_pixels)  # (..., 3, h, w)
        mean, mean_square, sobel_x, sobel_y, magnitude, *tensor = F.avg_pool2d(pixels, cell_pixels).unbind(-3)
        deviation = (mean_square - mean.square()).clamp(min=0).sqrt()
        rows = (torch.arange(height, device=canvas.device, dtype=canvas.dtype) + 0.5) / height
        columns = (torch.arange(width, device=canvas.device, dtype=canvas.dtype) + 0.5) / width
        # Luminance spread reaches 0.5 at most: doubled, every feature spans [0, 1].
        features = torch.cat([colour, torch.stack([2 * deviation, magnitude.clamp(max=1)], -3)], -3)
        membership, contrast = cluster_cells(features.flatten(-2))
        opponents, energy = colour_opponents(colour), orientation_energy(*tensor)
        stands_out = centre_surround(torch.cat([mean[..., None, :, :], opponents, energy], -3))
        return torch.stack(
            [
                *colour.unbind(-3),
                rows[:, None].expand_as(mean),
                columns.expand_as(mean),
                sobel_x,
                sobel_y,
                magnitude,
                stands_out[..., 0, :, :],
                stands_out[..., 1:3, :, :].mean(-3),
                stands_out[..., 3:, :, :].mean(-3),
                membership.view_as(mean),
                contrast.view_as(mean),
            ],
            -3,
        )


def cell_geometry(canvas: torch.Tensor, grid_hw: tuple[int, int]) -> tuple[int, int, int]:
    """Rows, columns and pixels per cell side of a canvas; ValueError if the canvas does not fit the grid."""
    height, width = _checked_grid(grid_hw)
    cell_pixels = canvas.shape[-1] // width if canvas.ndim in (3, 4) else 0
    if cell_pixels < 1 or tuple(canvas.shape[-3:]) != (3, height * cell_pixels, width * cell_pixels):
        raise ValueError(
            f"canvas has shape {tuple(canvas.shape)} for a grid of {height} x {width} cells; wanted (3, {height} * p, "
            f"{width} * p) with one whole p: make it with pixel_canvas(image, grid_hw)"
        )
    if not canvas.is_floating_point():
        raise ValueError(
            f"canvas has dtype {canvas.dtype}; wanted floats in [0, 1]: make it with pixel_canvas(image, grid_hw)"
        )
    return height, width, cell_pixels


def luminance_of(canvas: torch.Tensor) -> torch.Tensor:
    """(..., H, W) luma of a (..., 3, H, W) image, in the image's unit. Source: ITU-R BT.601."""
    red, green, blue = canvas.unbind(-3)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def sobel(luminance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The horizontal and vertical derivative, each (..., H, W), signed; a full step reads 1 on both of its sides."""
    padded = F.pad(luminance[None], (1, 1, 1, 1), mode="replicate")[0]
    down = torch.add(padded[..., :-2, :], padded[..., 1:-1, :], alpha=2).add_(padded[..., 2:, :]).div_(4)
    across = torch.add(padded[..., :-2], padded[..., 1:-1], alpha=2).add_(padded[..., 2:]).div_(4)
    return down[..., 2:] - down[..., :-2], across[..., 2:, :] - across[..., :-2, :]


def colour_opponents(colour: torch.Tensor) -> torch.Tensor:
    """(..., 2, h, w) red-green and blue-yellow opponents in [-1, 1]; grey is 0 in both."""
    red, green, blue = colour.unbind(-3)
    return torch.stack([red - green, blue - (red + green) / 2], -3)


def orientation_energy(squared_x: torch.Tensor, squared_y: torch.Tensor, product: torch.Tensor) -> torch.Tensor:
    """(..., 4, h, w) root mean square derivative along 0, 45, 90 and 135 degrees.

    From the cell's structure tensor: the mean square derivative along an angle a is
    xx cos^2 a + yy sin^2 a + 2 xy sin a cos a. That is a filter of two lobes steered exactly to each angle.
    """
    diagonal = (squared_x + squared_y) / 2
    return torch.stack([squared_x, diagonal + product, squared_y, diagonal - product], -3).clamp(min=0).sqrt()


def centre_surround(maps: torch.Tensor) -> torch.Tensor:
    """(..., C, h, w) mean over the surround sizes of |cell - mean of the other cells around it|, per channel.

    Only cells that exist are averaged, so the page's border does not stand out; alone on its grid a cell reads 0.
    """
    counted = torch.cat([maps, torch.ones_like(maps[..., :1, :, :])], -3)
    total = torch.zeros_like(maps)
    for radius in SURROUND_RADII:
        sums = _window_sum(counted, radius)
        count = sums[..., -1:, :, :]
        total += torch.addcmul(sums[..., :-1, :, :], maps, count, value=-1).abs_() / (count - 1).clamp_(min=1)
    return total / len(SURROUND_RADII)


def cluster_cells(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How surely each cell belongs to its cluster, and how much that differs from the page; each (..., N), in [0, 1].

    `features` is (..., D, N) in [0, 1]. Soft k-means with up to `CLUSTER_COUNT` clusters, no randomness: the first centre is
    the cell nearest to the page's mean, each next one the cell farthest from all centres so far (the first in raster
    order of equals), and none is opened within two spreads of another, so a constant page has one cluster.

    Membership is the largest responsibility (1: clearly one cluster; 1/2: between two). Contrast is the size-weighted
    mean distance from the cell's cluster to all clusters, over the largest distance possible, sqrt(D): the rarer and
    the more different its kind, the higher. It is averaged over the cell's responsibilities, so that it is continuous
    in the image.
    """
    size, cells = features.shape[-2:]
    centres, is_open = _farthest_point_centres(features)
    closed = torch.zeros_like(centres[..., 0, :]).masked_fill_(~is_open, -torch.inf)[..., None]
    counted = torch.cat([features, torch.ones_like(features[..., :1, :])], -2)
    for _ in range(CLUSTER_ITERATIONS):
        sums = counted @ _responsibility(features, centres, closed).mT  # (..., D + 1, k)
        # a centre that no cell belongs to stays where it is
        centres = sums[..., :-1, :].add_(centres, alpha=1e-6) / (sums[..., -1:, :] + 1e-6)
    responsibility = _responsibility(features, centres, closed)  # (..., k, N)
    distances = (centres[..., None] - centres[..., None, :]).square().sum(-3).sqrt()  # (..., k, k)
    contrast = distances @ (responsibility.sum(-1, keepdim=True) / cells) / size**0.5
    return responsibility.amax(-2), (contrast.mT @ responsibility)[..., 0, :].clamp(0, 1)


def binomial_mean(maps: torch.Tensor, rounds: int = 1) -> torch.Tensor:
    """(..., C, h, w) mean over each cell and its neighbours, weighted 1 2 1 in both directions, `rounds` times."""
    for _ in range(rounds):
        maps = F.pad(maps, (1, 1, 1, 1), mode="replicate")
        maps = F.avg_pool2d(F.avg_pool2d(maps, 2, stride=1), 2, stride=1)  # 1 1 of 1 1 is 1 2 1
    return maps


def dilate(maps: torch.Tensor, size: int) -> torch.Tensor:
    """(..., C, H, W) largest value in the square of an odd `size` around each pixel."""
    if maps.is_cuda:  # two launches; on a CPU windows that double are quicker
        rows = F.max_pool2d(maps, (size, 1), stride=1, padding=(size // 2, 0))
        return F.max_pool2d(rows, (1, size), stride=1, padding=(0, size // 2))
    maps = F.pad(maps, (size // 2,) * 4, mode="replicate")
    for dim in (-2, -1):
        covered = 1
        while covered < size:
            step = min(covered, size - covered)
            length = maps.shape[dim] - step
            maps = torch.maximum(maps.narrow(dim, 0, length), maps.narrow(dim, step, length))
            covered += step
    return maps


def direction_errors(luminance: torch.Tensor, distance: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the mean, each (..., H, W), of |pixel - mean of its two opposite neighbours| in 4 directions."""
    height, width = luminance.shape[-2:]
    padded = F.pad(luminance[None], (distance,) * 4, mode="replicate")[0]

    def shifted(row: int, column: int) -> torch.Tensor:
        return padded[..., distance + row : distance + row + height, distance + column : distance + column + width]

    ways = ((0, distance), (distance, 0), (distance, distance), (distance, -distance))
    ahead = torch.stack([shifted(row, column) for row, column in ways])
    for there, (row, column) in zip(ahead, ways, strict=True):
        there.add_(shifted(-row, -column))
    errors = torch.add(luminance, ahead, alpha=-0.5).abs_()
    return errors.amin(0), errors.mean(0)


def _farthest_point_centres(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    def at(index: torch.Tensor) -> torch.Tensor:
        return features.gather(-1, index[..., None, :].expand(*features.shape[:-1], 1))

    distance = (features - features.mean(-1, keepdim=True)).square().sum(-2)
    centres = [at(_rounded(distance).argmin(-1, keepdim=True))]
    room = [torch.full_like(distance[..., :1], torch.inf)]
    nearest = torch.full_like(distance, torch.inf)
    for _ in range(CLUSTER_COUNT - 1):
        nearest = torch.minimum(nearest, (features - centres[-1]).square_().sum(-2))
        index = _rounded(nearest).argmax(-1, keepdim=True)
        centres.append(at(index))
        room.append(nearest.gather(-1, index))
    return torch.cat(centres, -1), torch.cat(room, -1) > (2 * CLUSTER_SPREAD) ** 2


def _rounded(distance: torch.Tensor) -> torch.Tensor:
    # Cells that look alike differ in the last bits from device to device; the choice among them must not.
    return (distance * 2**12).round()


def _responsibility(features: torch.Tensor, centres: torch.Tensor, closed: torch.Tensor) -> torch.Tensor:
    # (..., k, N); `closed` (..., k, 1) is -inf for a cluster that is not open
    squared = (features[..., None, :] - centres[..., None]).square_().sum(-3)
    return torch.add(closed, squared, alpha=-1 / (2 * CLUSTER_SPREAD**2)).softmax(-2)


def _window_sum(maps: torch.Tensor, radius: int) -> torch.Tensor:
    size = 2 * radius + 1
    rows = F.avg_pool2d(maps, (size, 1), stride=1, padding=(radius, 0), divisor_override=1)
    return F.avg_pool2d(rows, (1, size), stride=1, padding=(0, radius), divisor_override=1)


def _checked_grid(grid_hw: tuple[int, int]) -> tuple[int, int]:
    if len(grid_hw) != 2 or min(grid_hw) < 1:
        raise ValueError(f"grid_hw={tuple(grid_hw)}; wanted (rows, columns), both at least 1, of the merged grid")
    return int(grid_hw[0]), int(grid_hw[1])
