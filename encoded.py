"""Images that the vision tower has seen, for as many questions as wanted."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from .encoding import CoarseView
from .looking import Glance

_PATCHES = 2048  # of an image, by which its pixels are known again
_SAME = 0.01  # share by which statistics of the same pixels may differ: half precision rounds


class Owner:
    """Which model encoded images, as long as something else holds it. Images are of that model alone, and so of its process."""

    def __init__(self, model):
        self.model = weakref.ref(model)

    def __call__(self):
        """The model; `None` where it is gone."""
        return self.model()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError(
            "encoded images are asked by the model that encoded them, in its process, and can't be pickled or saved; keep the "
            "processor's output, and call encode_images() where the model is"
        )


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images that the vision tower has seen: made by `encode_images()`, held by the caller, asked as often as wanted.

    Attributes:
        vision: what the vision tower returned, per image.
        glances: stage 1 of each image, from `encode_images()` without what depends on a question; `None` where none was needed.
        views: encoded `CoarseView` of each image, or `None` for each.
        image_grid_thw, texture_images: what the images are recognised by.
        pixel_statistics: (images, 2) as `statistics_of` gives them, what their processing is recognised by; `None` where
            nobody holds them.
        encode_ratio, allocation_mode: that they were encoded with.
        owner: the model that encoded them.
        budgets: tokens that each was encoded for; which of several copies of a picture a prompt shows is told by them.
        makers: `makers_of` them as they were encoded; `None` where nobody holds them.
    """

    vision: Any
    glances: list[Glance | None]
    views: list[CoarseView | None]
    image_grid_thw: torch.Tensor
    texture_images: torch.Tensor
    encode_ratio: float | str
    allocation_mode: str
    owner: Owner = field(repr=False)
    budgets: list[int]
    pixel_statistics: torch.Tensor | None = None
    makers: list[tuple] | None = None

    def spending(self, encode_ratio, allocation_mode) -> tuple[float | str, str]:
        """The `encode_ratio` and the mode that the images are asked with: those that they were encoded with.

        Raises:
            ValueError: another one is asked for, and is not `None`.
        """
        if allocation_mode is not None and allocation_mode != self.allocation_mode:
            raise ValueError(
                f"encoded_images was made for allocation_mode={self.allocation_mode!r}, but {allocation_mode!r} is asked for; "
                "pass the same to encode_images(), or leave it out here"
            )
        if encode_ratio is not None and encode_ratio != self.encode_ratio:
            raise ValueError(
                f"encoded_images was made with encode_ratio={self.encode_ratio!r}, but {encode_ratio!r} is asked for; pass the "
                "same to encode_images(), or leave it out here"
            )
        return self.encode_ratio, self.allocation_mode

    def shown(
        self, model, image_grid_thw, texture_images, budgets: list[int], pixels: Sequence[torch.Tensor] | None = None
    ) -> "EncodedImages":
        """The images of a prompt in its order, each recognised by its size and raw image: some of those that are held, each as
        often as the prompt shows it, of several copies the one that was encoded for as many tokens or the next more.

        Refuses to stand for other images, another model or another dtype, and for images that were processed otherwise where
        the `pixels` of each came.

        Raises:
            ValueError: saying what differs.
        """
        own = self.owner() is model  # mypy would take what it is compared with for its type
        if not own:
            raise ValueError("encoded_images was made by another model; call encode_images() of this one")
        if self.makers is not None and self.makers != makers_of(model, self):
            raise ValueError(
                "encoded_images was made with other weights than the model has now (another allocator was loaded, or its vision "
                "tower was trained, loaded anew or given another adapter), or with another max_cell_pixels or coarse view; call "
                "encode_images() again"
            )
        came, dtype = self.vision.pooler_output[0], model.visual.dtype
        if came.dtype != dtype and not torch.is_autocast_enabled(came.device.type):
            raise ValueError(
                f"encoded_images is {came.dtype}, but the model works in {dtype} here; call encode_images() again, under the "
                "autocast and with the dtype that it is asked with"
            )
        if texture_images is None:
            raise ValueError(
                "texture_images is missing: encoded_images can't tell its pictures without; pass the processor's output as it is"
            )
        found = self._picked(self._numbers(image_grid_thw.cpu(), texture_images, budgets))
        if pixels is not None and found.pixel_statistics is not None:
            gap = statistics_of(pixels).to(found.pixel_statistics.device) - found.pixel_statistics
            if not bool((gap.abs() <= _SAME * (1 + found.pixel_statistics.abs())).all()):
                raise ValueError(
                    "encoded_images was made from pixel_values that were processed otherwise (such as do_normalize, image_mean or "
                    "do_rescale); call encode_images() with these, or leave pixel_values out"
                )
        return found

    def _numbers(self, grids: torch.Tensor, textures: torch.Tensor, budgets: list[int]) -> list[int]:
        # which of those that are held each image of a prompt is
        own, device = self.image_grid_thw.cpu(), self.texture_images.device
        plain = len(own) == 1 or budgets == self.budgets
        if plain and torch.equal(grids, own) and torch.equal(textures.to(device), self.texture_images):
            return list(range(len(own)))
        held, shown = self.texture_images.cpu(), textures.cpu()
        found = []
        for number, (grid, texture) in enumerate(zip(grids, shown, strict=True)):
            same = [n for n in range(len(own)) if torch.equal(grid, own[n]) and torch.equal(texture, held[n])]
            if not same:
                raise ValueError(
                    f"encoded_images holds other pictures than this prompt shows: image {number} is none of its {len(own)} (or the "
                    "same at another size); call encode_images() with the inputs of all that are shown"
                )
            more = {n: self.budgets[n] - budgets[number] for n in same}
            found.append(min(same, key=lambda n: (more[n] < 0, abs(more[n]))))
        return found

    def _picked(self, numbers: list[int]) -> "EncodedImages":
        if numbers == list(range(len(self.glances))):
            return self
        statistics = self.pixel_statistics
        return replace(
            self,
            vision=picked(self.vision, numbers),
            glances=[self.glances[n] for n in numbers],
            views=[self.views[n] for n in numbers],
            image_grid_thw=self.image_grid_thw[numbers],
            texture_images=self.texture_images[numbers],
            budgets=[self.budgets[n] for n in numbers],
            pixel_statistics=None if statistics is None else statistics[numbers],
        )


def makers_of(model, encoded: EncodedImages) -> list[tuple]:
    """What such features hang on: dials, and of each part of `model` its weights, how often each was written to, as autograd counts
    it, and which of PEFT's adapters act; what is offloaded is elsewhere and not told from others."""
    parts, dials = [model.visual], []
    if any(glance is not None for glance in encoded.glances):
        dials.append("max_cell_pixels")
    if any(view is not None for view in encoded.views):
        parts.append(model.arrcoc.coarse_mark)
        dials += ["coarse_view_share", "coarse_view_min_tokens"]
    if any(glance is not None and glance.encoded is not None for glance in encoded.glances):
        parts += [model.arrcoc.reader, model.arrcoc.restorer]
    weights = [[_Weight(weight) for weight in part.parameters()] for part in parts]
    adapters = [_acting(module) for part in parts for module in part.modules()]
    return [*((dial, getattr(model.config, dial)) for dial in dials), (weights,), (adapters,)]


class _Weight:
    """A weight as it was; equal to that weight until it is written to, or another stands in its place."""

    def __init__(self, weight: torch.Tensor):
        counted = weight.device.type != "meta" and not weight.is_inference()
        self.weight, self.writes = weakref.ref(weight), weight._version if counted else None

    def __eq__(self, other) -> bool:
        return self.writes == other.writes and (self.writes is None or self.weight() is other.weight())


def _acting(module: torch.nn.Module) -> tuple | None:
    # of a layer of PEFT's; transformers' models have methods of these names
    active = getattr(module, "active_adapters", None) if hasattr(type(module), "active_adapters") else None
    return (module.disable_adapters, *active, *module.merged_adapters) if isinstance(active, list) else None


def statistics_of(pixels: Sequence[torch.Tensor]) -> torch.Tensor:
    """(images, 2) float32: mean and standard deviation of some two thousand of each image's patches, evenly spread, which tell how
    the pixels were rescaled and normalised on every device and in every dtype."""
    some = [values[:: max(1, len(values) // _PATCHES)].float() for values in pixels]
    return torch.stack([torch.stack([values.mean(), values.std()]) for values in some])


def picked(vision, numbers: Sequence[int]):
    """The vision output of the images `numbers`, in that order; one may come several times."""
    found = type(vision)(**vision)
    found.pooler_output = tuple(vision.pooler_output[n] for n in numbers)
    found.deepstack_features = [tuple(level[n] for n in numbers) for level in vision.deepstack_features]
    unit = len(vision.last_hidden_state) // sum(map(len, vision.pooler_output))
    hidden = vision.last_hidden_state.split([unit * len(tokens) for tokens in vision.pooler_output])
    found.last_hidden_state = torch.cat([hidden[n] for n in numbers]) if numbers else hidden[0][:0]
    return found


def only_source(mm_encoder_outputs: dict | None, encoded_images, *pixels) -> dict:
    """A copy of `mm_encoder_outputs`.

    Raises:
        ValueError: `encoded_images`, or `pixels` of images or videos, are there, too, and one of both would not be used.
    """
    if mm_encoder_outputs and encoded_images is not None:
        raise ValueError(
            "mm_encoder_outputs and encoded_images are both there; pass one of them: what stands in the prompt, or images that "
            "are still to be asked"
        )
    if mm_encoder_outputs and any(each is not None for each in pixels):
        raise ValueError(
            "pixel_values or pixel_values_videos came beside mm_encoder_outputs; pass one of them: encode all images and videos "
            "of the prompt, or none"
        )
    return dict(mm_encoder_outputs or {})


def check_encoded(encoded_images, image_grid_thw) -> None:
    """Refuses what is no `EncodedImages`, or comes with a prompt that shows no image.

    Raises:
        ValueError: saying what came and what was wanted.
    """
    if encoded_images is None:
        return
    # not by its class, of which each repository that is loaded from the Hub has its own
    if not all(hasattr(encoded_images, each.name) for each in fields(EncodedImages)):
        raise ValueError(f"encoded_images is a {type(encoded_images).__name__}; pass what encode_images() returned")
    if image_grid_thw is None:
        raise ValueError(
            "encoded_images came with a prompt that shows no image; leave it out, or pass image_grid_thw with the prompt's other "
            "inputs, as the processor returns them"
        )
