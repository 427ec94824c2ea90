"""Two ways of knowing what a cell is worth: what it tells and what stands out. The third, what the question needs, is in
`participating`.

Each scorer makes one (h, w) map of one image, or of each of several, as if it was alone. All calculate in float32, whatever the
dtype of the model and of autocast.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import init

from .texture import TEXTURE_CHANNELS, binomial_mean, cell_geometry, dilate, direction_errors, luminance_of

ENTROPY_BINS = 8
STROKE_HALF_SATURATION = 0.1  # mean stroke contrast of a cell
NEIGHBOUR_DISTANCES = (1, 2, 3)  # pixels
SPARSE_SHARE = 0.03  # of the local contrast: an error this small on average is too little evidence for noise
ISOTROPY_RANGE = (0.32, 0.38)  # print below, noise above: tests/test_knowing.py holds both sides
UNEXPLAINED_RANGE = (0.43, 0.53)
SALIENCY_FLOOR = 0.1  # contrast below which a map is not stretched to the full range
_LEVEL = 1 / 1024  # a quarter of an 8-bit grey level: keeps rounding from counting as structure


class InformationScorer(nn.Module):
    """Propositional knowing: how much each cell tells. No parameters."""

    def forward(self, canvas: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
        """(..., h, w) float32 in [0, 1]: (entropy + stroke density) / 2, times (1 - incompressibility).

        `canvas` is (..., 3, h * p, w * p) in [0, 1]. Entropy alone would prefer noise, which fills every grey level and says
        nothing, to a line of the letter l, which fills two. Raises ValueError if the canvas does not fit the grid.
        """
        *_, cell_pixels = cell_geometry(canvas, grid_hw)
        with torch.no_grad(), torch.autocast(canvas.device.type, enabled=False):
            canvas = canvas.float()
            luminance = luminance_of(canvas)
            told = (luminance_entropy(luminance, cell_pixels) + stroke_density(canvas, cell_pixels)) / 2
            return told * (1 - incompressibility(luminance, cell_pixels))


def luminance_entropy(luminance: torch.Tensor, cell_pixels: int) -> torch.Tensor:
    """(..., h, w) entropy of the grey levels in and around each cell, over log(`ENTROPY_BINS`): 0 where constant, 1 at most.

    Every pixel is shared between its two nearest bins, so that the score is continuous; the entropy of that sharing is
    subtracted, so that a constant region reads exactly 0 at any grey (this is the Jensen-Shannon divergence of the
    pixels). The neighbours count with the binomial weights 1 2 1.
    """
    level = luminance * (ENTROPY_BINS - 1)
    bins = torch.arange(ENTROPY_BINS, device=luminance.device)[:, None, None]
    distance = (level[..., None, :, :] - bins).abs_().clamp_(max=1)  # (..., bins, H, W); its share of a bin is 1 - that
    fraction = level.frac()
    sharing = torch.special.entr(fraction).add_(torch.special.entr(1 - fraction))
    sharing = F.avg_pool2d(sharing[..., None, :, :], cell_pixels)
    pooled = binomial_mean(torch.cat([1 - F.avg_pool2d(distance, cell_pixels), sharing], -3))
    entropy = torch.special.entr(pooled[..., :-1, :, :]).sum(-3) - pooled[..., -1, :, :]
    return (entropy / math.log(ENTROPY_BINS)).clamp(0, 1)


def stroke_density(canvas: torch.Tensor, cell_pixels: int) -> torch.Tensor:
    """(..., h, w) in [0, 1]: how much of each cell is covered by strokes, thin marks darker or lighter than their surround.

    The larger of the black and white top-hat transforms of each colour channel, with a square of half a cell (5 pixels
    at least), averaged over the cell; the strongest channel counts, so that yellow on white is text too. Saturating: d
    -> 1.1 d / (d + 0.1), because faint print says as much as bold. Source: Meyer, "Contrast feature extraction" (1979).
    """
    size = max(5, cell_pixels // 2 | 1)
    closed = -dilate(-dilate(canvas, size), size)
    opened = dilate(-dilate(-canvas, size), size)
    top_hat = torch.maximum(closed - canvas, canvas - opened)
    density = F.avg_pool2d(top_hat, cell_pixels).amax(-3).clamp(min=0)
    return (1 + STROKE_HALF_SATURATION) * density / (density + STROKE_HALF_SATURATION)


def incompressibility(luminance: torch.Tensor, cell_pixels: int) -> torch.Tensor:
    """(..., h, w) in [0, 1]: 0 where pixels follow from their neighbours along a direction, as on strokes; 1 in noise.

    A pixel's error along a direction is |I - mean of its two opposite neighbours|, in 4 directions. On a stroke the
    smallest of the four is near 0, in noise all are alike. Two signs of noise, of which the stronger counts:

    - the mean of the smallest over the mean of all, the largest over `NEIGHBOUR_DISTANCES`, because noise that was
      blurred or enlarged is smooth from one pixel to the next;
    - the share of the standard deviation that the best direction leaves unexplained: dense black and white noise agrees
      with its neighbours often by chance, but errs by a full step where it does not.

    Both denominators carry a share of the local contrast, so that a lone digit, a few pixels of evidence, is not taken
    for noise.
    """
    rounds = 1 if cell_pixels >= 8 else 2  # small cells hold too few pixels for a steady ratio
    extremes = F.max_pool2d(torch.stack([luminance, -luminance], -3), cell_pixels)
    contrast = dilate(extremes, 2 * rounds + 1).sum(-3)  # largest minus smallest
    pooled = [F.avg_pool2d(torch.stack([luminance, luminance.square()], -3), cell_pixels)]
    for distance in NEIGHBOUR_DISTANCES:
        smallest, average = direction_errors(luminance, distance)
        errors = [smallest, average, smallest.square()] if distance == 1 else [smallest, average]
        pooled.append(F.avg_pool2d(torch.stack(errors, -3), cell_pixels))
    mean, mean_square, smallest, average, square, *further = binomial_mean(torch.cat(pooled, -3), rounds).unbind(-3)
    variance = (mean_square - mean.square()).clamp(min=0)
    least = (contrast * SPARSE_SHARE).add_(_LEVEL)
    isotropy = smallest / (average + least)
    for smallest, average in zip(further[::2], further[1::2], strict=True):
        isotropy = torch.maximum(isotropy, smallest / (average + least))
    unexplained = (square / (variance + SPARSE_SHARE * contrast.square() + _LEVEL**2)).sqrt()
    return torch.maximum(_ramp(isotropy, *ISOTROPY_RANGE), _ramp(unexplained, *UNEXPLAINED_RANGE))


def _ramp(value: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return ((value - low) / (high - low)).clamp(0, 1)


class PerspectivalScorer(nn.Module):
    """Perspectival knowing: what stands out. A fixed centre-surround prior, and a learned residual behind a gate."""

    def __init__(self, hidden_channels: int = 16, texture_channels: int = len(TEXTURE_CHANNELS)):
        super().__init__()
        if texture_channels < len(TEXTURE_CHANNELS):
            raise ValueError(
                f"texture_channels={texture_channels}; wanted at least {len(TEXTURE_CHANNELS)}: the prior reads the "
                "saliency channels of texture_array"
            )
        self.texture_channels = texture_channels
        # Replicated borders: with zeros, the rim of every page would look different from its middle.
        self.first = Float32Conv2d(texture_channels, hidden_channels, 3, padding=1, padding_mode="replicate")
        self.second = Float32Conv2d(hidden_channels, hidden_channels, 3, padding=1, padding_mode="replicate")
        self.last = Float32Conv2d(hidden_channels, 1, 1)
        # A parameter of its own, not zeros in the last layer: transformers calls a remote model's _init_weights only
        # for modules that directly hold a missing parameter, and would fill that layer with its usual normal noise.
        self.gate = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The untrained state: random features behind a gate of zero."""
        for layer in (self.first, self.second, self.last):
            init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            init.zeros_(layer.bias)
        init.zeros_(self.gate)

    def forward(self, texture: torch.Tensor) -> torch.Tensor:
        """(..., h, w) float32: `saliency_prior` in [0, 1], plus gate * a residual in (-1, 1); exactly the prior before training.

        `texture` is (texture_channels, h, w), or several of these, its first 13 channels those of `TEXTURE_CHANNELS`.
        """
        check_texture(texture, self.texture_channels)
        with torch.autocast(texture.device.type, enabled=False):
            texture = texture.float()
            hidden = F.gelu(self.second(F.gelu(self.first(texture if texture.ndim == 4 else texture[None]))))
            learned = torch.tanh(self.last(hidden))[:, 0]
            return saliency_prior(texture) + self.gate.float() * (learned if texture.ndim == 4 else learned[0])


def saliency_prior(texture: torch.Tensor) -> torch.Tensor:
    """(..., h, w) in [0, 1]: what stands out from the three saliency channels of a (..., C, h, w) texture.

    Each channel is divided by its own peak (or by `SALIENCY_FLOOR`, if that is larger: nothing stands out on a page
    that is all but even) and weighted by (1 - its mean)^2, so that one peak counts and a repeated pattern does not; the
    sum is divided by its own peak where that is above 1. Source: Itti, Koch and Niebur (1998), the operator N of
    section 2.1, with the mean of the map in place of the mean of its local maxima.
    """
    start = TEXTURE_CHANNELS.index("saliency_intensity")
    saliency = texture[..., start : start + 3, :, :]
    normalised = saliency / saliency.amax((-2, -1), keepdim=True).clamp(min=SALIENCY_FLOOR)
    weight = (1 - normalised.mean((-2, -1), keepdim=True)).square()
    combined = (weight * normalised).sum(-3)
    return combined / combined.amax((-2, -1), keepdim=True).clamp(min=1)


class Float32Linear(nn.Linear):
    """A linear layer that calculates in float32 whatever its weights are stored in."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        return F.linear(input.float(), self.weight.float(), bias)


class NeutralLinear(Float32Linear):
    """A `Float32Linear` that is exactly zero until it is trained.

    A class of its own, because transformers initialises the modules of Hub code one by one and leaves out containers.
    """

    def reset_parameters(self) -> None:
        """Zero weight and bias."""
        init.zeros_(self.weight)
        init.zeros_(self.bias)


class Float32Conv2d(nn.Conv2d):
    """A convolution that calculates in float32 whatever its weights are stored in; on a GPU in TF32, unless
    `torch.backends.cudnn.allow_tf32` is off."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        return self._conv_forward(input.float(), self.weight.float(), bias)


def check_texture(texture: torch.Tensor, channels: int) -> tuple[int, int]:
    """(h, w) of a texture array (channels, h, w), or of several (n, channels, h, w). `ValueError` for any other shape."""
    if texture.ndim not in (3, 4) or texture.shape[-3] != channels:
        raise ValueError(
            f"texture has shape {tuple(texture.shape)}; wanted ({channels}, h, w): pass one image's texture_array, or "
            "build the scorer with as many texture_channels"
        )
    return texture.shape[-2], texture.shape[-1]
