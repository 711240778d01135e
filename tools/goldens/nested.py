"""The text parts of models that also see images: their keys nested, their tensors prefixed, beside those of a small
vision tower, which no text reaches."""
import torch

from dense import GEMMA, MISTRAL
from experts import EXPERTS
from models import TextPart
from row import Tiny

VISION = dict(
    hidden_size=8, image_size=4, intermediate_size=16, num_attention_heads=1, num_hidden_layers=1, patch_size=2)


def nested(architecture, model_type, text, vision, **keys):
    return dict(architectures=[architecture], model_type=model_type, boi_token_index=66, eoi_token_index=67,
                image_token_index=68, text_config=text.config, vision_config=VISION | vision, **keys)


def row(config, text, seed):
    return Tiny(config, torch.bfloat16, text.lengths, seed=seed, gain=text.gain, post_norm=text.post_norm,
                norm_offset=text.norm_offset, load=TextPart, idle=("vision", "multi_modal"))


NESTED = {
    "gemma3_tiny_nested": row(nested(
        "Gemma3ForConditionalGeneration", "gemma3", GEMMA["gemma3_tiny"], dict(model_type="siglip_vision_model"),
        mm_tokens_per_image=1), GEMMA["gemma3_tiny"], seed=0),
    "ministral3_tiny_nested": row(nested(
        "Mistral3ForConditionalGeneration", "mistral3", MISTRAL["ministral3_tiny"],
        dict(head_dim=8, model_type="pixtral"), spatial_merge_size=1), MISTRAL["ministral3_tiny"], seed=0),
    "llama4_tiny_nested": row(nested(
        "Llama4ForConditionalGeneration", "llama4", EXPERTS["llama4_tiny"], dict(
            model_type="llama4_vision_model", num_channels=1, pixel_shuffle_ratio=0.5, projector_input_dim=8,
            projector_output_dim=8, vision_output_dim=8)), EXPERTS["llama4_tiny"], seed=1),
}
