"""ARRCOCQwen3VLForConditionalGeneration: Qwen3-VL whose image placeholders are filled by the cells that matter.

The number of image placeholders in `input_ids` is that image's token budget. `get_image_features` encodes, allocates and
returns what fills the placeholders, with where each kept token stands as one more entry of the DeepStack list, so that
whatever repeats or slices the features (beams, several return sequences, chunked prefill) does the same to the positions.
No selection is kept on the model between calls.
"""

import torch
from torch import nn
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .allocating import AllocatingMixin
from .arguments import refuse_lists, refuse_packed
from .caching import (
    CACHE,
    PromptEnd,
    cached_tokens,
    given_cache,
    hold_pictures,
    hold_prompt_end,
    images_end,
    is_placed,
    prompt_end,
    rope_deltas_of,
)
from .checkpoint import LoadingMixin, class_of_code
from .compiling import with_return_dict
from .configuration_arrcoc import ARRCOCQwen3VLConfig, check_spending, refuse_misspelt_arguments
from .encoded import EncodedImages, only_source
from .generating import GeneratingMixin
from .knowing import Float32Conv2d, NeutralLinear, PerspectivalScorer
from .layer import ARRCOCLayer
from .marking import CoarseMark
from .participating import ParticipatoryScorer
from .placement import check_filled, count_placeholders, replace_stray_placeholders
from .placing import PlacingMixin
from .seeing import SeeingMixin


class ARRCOCQwen3VLModel(LoadingMixin, SeeingMixin, PlacingMixin, Qwen3VLModel):
    """Qwen3-VL's multimodal model with an `ARRCOCLayer` between its vision tower and its language model."""

    config: ARRCOCQwen3VLConfig
    config_class = ARRCOCQwen3VLConfig
    # Scores are calculated in float32 in any case; weights rounded to bfloat16 move them by hundreds of `SCORE_STEP`s.
    _keep_in_fp32_modules_strict = ["arrcoc"]
    _keep_in_fp32_modules = ["arrcoc", "model.arrcoc"]  # which quantisers leave as it is, by the beginning of its name
    _no_split_modules = ["Qwen3VLTextDecoderLayer", "Qwen3VLVisionBlock", "ARRCOCLayer"]

    def __init__(self, config: ARRCOCQwen3VLConfig):
        super().__init__(config)
        self.arrcoc = ARRCOCLayer(config)
        self.post_init()

    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, CoarseMark | Float32Conv2d | NeutralLinear | ParticipatoryScorer | PerspectivalScorer):
            module.reset_parameters()  # through torch.nn.init, which leaves tensors from a checkpoint alone

    @with_return_dict
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values=None,
        inputs_embeds: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_values_videos: torch.Tensor | None = None,
        image_grid_thw: torch.LongTensor | None = None,
        video_grid_thw: torch.LongTensor | None = None,
        mm_token_type_ids: torch.IntTensor | None = None,
        mm_encoder_outputs: dict | None = None,
        texture_images: torch.Tensor | None = None,
        query_input_ids: torch.Tensor | None = None,
        query_attention_mask: torch.Tensor | None = None,
        image_token_counts: torch.Tensor | None = None,
        encode_ratio: float | str | None = None,
        allocation_mode: str | None = None,
        encoded_images: EncodedImages | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ):
        """Qwen3-VL's forward; see `get_image_features` for the inputs that are ours."""
        cache = given_cache(past_key_values, kwargs)
        if not torch.compiler.is_compiling():  # which would trace how names are compared
            refuse_packed(input_ids)
            refuse_misspelt_arguments(kwargs)
        check_spending(encode_ratio, allocation_mode)
        mm_encoder_outputs = only_source(mm_encoder_outputs, encoded_images, pixel_values, pixel_values_videos)
        if (pixel_values is not None or encoded_images is not None) and not mm_encoder_outputs:
            images = {
                "pixel_values": pixel_values, "image_grid_thw": image_grid_thw, "texture_images": texture_images,
                "query_input_ids": query_input_ids, "query_attention_mask": query_attention_mask, "encoded_images": encoded_images,
                "image_token_counts": image_token_counts, "encode_ratio": encode_ratio, "allocation_mode": allocation_mode,
            }  # fmt: skip
            videos = (pixel_values_videos, video_grid_thw)
            mm_encoder_outputs = self._encode_prompt(input_ids, attention_mask, images, videos, **kwargs)
            pixel_values = pixel_values_videos = None
        features, offsets, rope_deltas = mm_encoder_outputs.pop("image", None), None, None
        has_vision = features is not None or bool(mm_encoder_outputs) or pixel_values_videos is not None
        placed = not has_vision and is_placed(cache, position_ids)
        cached = 0 if placed else cached_tokens(cache)
        if features is not None:
            mm_encoder_outputs["image"], offsets = self._split_offsets(features)
        elif not cached and position_ids is None:  # generate() has checked, and its assistants draft without images
            check_filled(input_ids, mm_token_type_ids, self.config, with_videos=has_vision)
        input_ids = replace_stray_placeholders(input_ids, mm_token_type_ids, self.config) if has_vision else input_ids
        # Where there are ids, only shape and device of the embeddings count; without, placeholders are told by their values.
        tokens = inputs_embeds if inputs_embeds is not None or input_ids is None else input_ids[..., None]
        if position_ids is None and tokens is not None:
            rope_inputs = (input_ids, mm_token_type_ids, image_grid_thw, video_grid_thw)
            position_ids, rope_deltas = self.place_prompt(tokens, attention_mask, cache, rope_inputs)
        if offsets is not None:
            position_ids = self._place(offsets, position_ids, input_ids, tokens)
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            pixel_values=pixel_values,
            pixel_values_videos=pixel_values_videos,
            image_grid_thw=image_grid_thw,
            video_grid_thw=video_grid_thw,
            mm_token_type_ids=mm_token_type_ids,
            mm_encoder_outputs=mm_encoder_outputs or None,
            return_dict=True,
            **kwargs | {CACHE: cache},
        )
        if offsets is not None and outputs.get("image_outputs") is not None:  # from transformers 5.24 on
            outputs.image_outputs = features  # with where the tokens stand, so that they may be handed back
        cache = outputs.get(CACHE)
        if not placed and tokens is not None and cache is not None:
            placement = (position_ids, attention_mask, rope_deltas, offsets is not None)
            self._remember_end(cache, cached, input_ids, tokens, has_vision, placement)
        return outputs

    def _encode_prompt(self, input_ids, attention_mask, images: dict, videos: tuple, **kwargs) -> dict:
        """`mm_encoder_outputs` of what a prompt shows, of each image as many tokens as it has placeholders.

        Args:
            images: the arguments of `get_image_features`.
            videos: pixel_values_videos and video_grid_thw.
        """
        refuse_lists(images | {"input_ids": input_ids, "attention_mask": attention_mask})
        merge = self.config.vision_config.spatial_merge_size
        is_image = None if input_ids is None else input_ids == self.config.image_token_id
        grids, counts = images["image_grid_thw"], images["image_token_counts"]
        images = images | {"image_token_counts": count_placeholders(is_image, attention_mask, grids, merge, counts)}
        seen = {"image": self.get_image_features(**images, return_dict=True, **kwargs)}
        if videos[0] is not None:
            seen["video"] = self.get_video_features(*videos, return_dict=True, **kwargs)
        return seen

    def _remember_end(self, cache, cached: int, input_ids, tokens, has_vision: bool, placement: tuple) -> None:
        """Writes on `cache`, which held `cached` tokens before this call, where its prompt now ends, unless it tells already.

        Args:
            placement: position_ids and attention_mask of the call, its rope deltas or `None`, and whether images were pruned.
        """
        before = prompt_end(cache) if cached else None
        if not has_vision and cached and (before is None or before.tells(cached)):
            return
        position_ids, attention_mask, rope_deltas, pruned = placement
        length = cached + tokens.shape[1]
        end, known = images_end(before, input_ids, self.config, cached, length, has_vision)
        settled = rope_deltas is not None or not pruned or end < length
        if rope_deltas is None:
            rope_deltas = rope_deltas_of(position_ids, attention_mask, tokens, cached, before)
        hold_prompt_end(cache, PromptEnd(end, rope_deltas, known, settled))
        if has_vision:
            hold_pictures(cache, None)  # generate() knows them, once it is done

    def _split_offsets(self, features):
        """The features without our extra DeepStack entry, and that entry, or `None` where they are stock's."""
        if len(features.deepstack_features) == len(self.visual.deepstack_visual_indexes):
            return features, None
        stock = type(features)(**features)
        stock.deepstack_features = features.deepstack_features[:-1]
        return stock, features.deepstack_features[-1]


class ARRCOCQwen3VLForConditionalGeneration(
    LoadingMixin, GeneratingMixin, AllocatingMixin, Qwen3VLForConditionalGeneration
):
    """Qwen3-VL that answers from as many visual tokens as its prompt has image placeholders.

    Loads from its own folder or from any stock Qwen3-VL checkpoint, whose allocator then starts neutral: query-blind,
    training-free, and exactly stock Qwen3-VL wherever every token is kept.
    """

    config: ARRCOCQwen3VLConfig
    config_class = ARRCOCQwen3VLConfig

    def __init__(self, config: ARRCOCQwen3VLConfig):
        super(Qwen3VLForConditionalGeneration, self).__init__(config)  # the parent's own would build a second base
        self.model = ARRCOCQwen3VLModel(config)
        self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values=None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_values_videos: torch.Tensor | None = None,
        image_grid_thw: torch.LongTensor | None = None,
        video_grid_thw: torch.LongTensor | None = None,
        mm_token_type_ids: torch.IntTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        mm_encoder_outputs: dict | None = None,
        texture_images: torch.Tensor | None = None,
        query_input_ids: torch.Tensor | None = None,
        query_attention_mask: torch.Tensor | None = None,
        image_token_counts: torch.Tensor | None = None,
        encode_ratio: float | str | None = None,
        allocation_mode: str | None = None,
        encoded_images: EncodedImages | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ):
        """Qwen3-VL's forward with the inputs that are ours, which `generate()` requires to be named here.

        Args:
            past_key_values: the cache, also under the name that transformers 5.24 gave it, `cache`.
            texture_images: (images, 3, S, S) uint8, the raw images.
            query_input_ids, query_attention_mask: (images, Tq), the question that each image is asked; where it is several in one,
                the mask numbers them.
            image_token_counts: (images,), the placeholders of each image.
            encode_ratio: share in (0, 1] of the cells that the vision tower encodes, or "auto"; `None` for the config's.
            allocation_mode: "select" or "foveated"; `None` for the config's.
            encoded_images: from `encode_images()`, so that the vision tower need not see the images again.
        """
        kwargs[CACHE] = given_cache(past_key_values, kwargs)
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            labels=labels,
            pixel_values=pixel_values,
            pixel_values_videos=pixel_values_videos,
            image_grid_thw=image_grid_thw,
            video_grid_thw=video_grid_thw,
            mm_token_type_ids=mm_token_type_ids,
            logits_to_keep=logits_to_keep,
            mm_encoder_outputs=mm_encoder_outputs,
            texture_images=texture_images,
            query_input_ids=query_input_ids,
            query_attention_mask=query_attention_mask,
            image_token_counts=image_token_counts,
            encode_ratio=encode_ratio,
            allocation_mode=allocation_mode,
            encoded_images=encoded_images,
            **kwargs,
        )

    def save_pretrained(self, save_directory, *args, **kwargs):
        """Writes weights, config and the code files: with the processor's, a folder that the Hub loader reads. A subclass that
        stands in no file, such as a notebook's, is saved as its parent.

        Raises:
            ValueError: see `LoadingMixin.save_pretrained`.
        """
        own = class_of_code(type(self))
        name = f"{own.__module__.rsplit('.', 1)[-1]}.{own.__name__}"
        # The registration below covers one auto class; users of the others get the same class.
        also = dict.fromkeys(("AutoModel", "AutoModelForMultimodalLM"), name)
        self.config.auto_map = {**(getattr(self.config, "auto_map", None) or {}), **also}
        return super().save_pretrained(save_directory, *args, **kwargs)


ARRCOCQwen3VLModel.register_for_auto_class("AutoModel")
ARRCOCQwen3VLForConditionalGeneration.register_for_auto_class("AutoModelForImageTextToText")

__all__ = ["ARRCOCQwen3VLForConditionalGeneration", "ARRCOCQwen3VLModel"]
