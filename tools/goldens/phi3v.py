#!/usr/bin/env python3
"""Makes a small random checkpoint of Phi-3-vision, with its golden.

    python3 tools/goldens/phi3v.py --out tests/goldens

Transformers has no such model: tower and decoder are its CLIPVisionModel and Phi3ForCausalLM; what stands between them,
and the image processor, restate the authors' image_embedding_phi3_v.py and processing_phi3_v.py. Goldens hold what README.md
lists.
"""
import argparse
import json
import math
import pathlib

import numpy
import PIL.Image
import PIL.ImageOps
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, CLIPVisionModel, Phi3Config, Phi3ForCausalLM

import models
import record
import weights
from kept import ROWS
from tiny import SMALLEST_GAP
from vision import IMAGE_TOKEN, VOCAB, randomise, write_image, write_tokenizer

NAME = "phi3_v_tiny"
SEED = 12
SIDE, PATCH, PARTS = 28, 7, 7
MEAN, DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
TOWER = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, image_size=SIDE,
             patch_size=PATCH)
TEXT = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=192, original_max_position_embeddings=64, rms_norm_eps=1e-5,
            rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False, sliding_window=192, bos_token_id=0,
            eos_token_id=1)
FACTORS = dict(short_factor=[1.0, 1.05, 1.1, 1.2, 1.4, 1.5], long_factor=[1.0, 1.3, 2.1, 3.7, 5.2, 6.4])
EMBEDDING = "model.vision_embed_tokens."
TOWER_PREFIX = EMBEDDING + "img_processor.vision_model."


def published():
    """`config.json` with the keys that published checkpoints have; the tower's sizes, which they leave out, and the
    image token beside them."""
    return dict(
        architectures=["Phi3VForCausalLM"], model_type="phi3_v", torch_dtype="bfloat16", **TEXT,
        rope_scaling=dict(type="su", **FACTORS),
        embd_layer=dict(embedding_cls="image", hd_transform_order="sub_glb", projection_cls="mlp",
                        use_hd_transform=True, with_learnable_separator=True),
        img_processor=dict(image_dim_out=TOWER["hidden_size"], model_name="openai/clip-vit-large-patch14-336",
                           name="clip_vision_model", num_img_tokens=(SIDE // PATCH // 2) ** 2, **TOWER),
        num_crops=PARTS, image_token_id=IMAGE_TOKEN)


def fitted(image):
    """The image at the largest size that the parts cover, with white above and below."""
    if image.width < image.height:
        turn = PIL.Image.Transpose.TRANSPOSE
        return fitted(image.transpose(turn)).transpose(turn)
    ratio = image.width / image.height
    across = 1
    while (across + 1) * math.ceil((across + 1) / ratio) <= PARTS:
        across += 1
    width = across * SIDE
    image = image.resize((width, int(width / ratio)), PIL.Image.Resampling.BILINEAR)
    missing = -image.height % SIDE
    return PIL.ImageOps.expand(image, border=(0, missing // 2, 0, missing - missing // 2), fill=(255, 255, 255))


def processed(image):
    """The crops, f32 [PARTS + 1, 3, SIDE, SIDE], and how many parts stand below and beside each other."""
    image = fitted(image.convert("RGB"))
    pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float() / 255
    pixels = (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]
    down, across = pixels.shape[1] // SIDE, pixels.shape[2] // SIDE
    whole = torch.nn.functional.interpolate(pixels[None], size=(SIDE, SIDE), mode="bicubic")
    parts = pixels.reshape(3, down, SIDE, across, SIDE).permute(1, 3, 0, 2, 4).reshape(-1, 3, SIDE, SIDE)
    crops = torch.cat([whole, parts])
    return torch.cat([crops, crops.new_zeros(PARTS + 1 - len(crops), *crops.shape[1:])]), (down, across)


def merged(features, down, across):
    """Features [down * across, cells, C] as lines [2x2-merged rows, merged columns, 4 * C] of one picture."""
    side = math.isqrt(features.shape[1])
    x = features.reshape(down, across, side // 2, 2, side // 2, 2, -1)
    return x.permute(0, 2, 1, 4, 3, 5, 6).reshape(down * side // 2, across * side // 2, -1)


def arranged(features, parts, line_end, between):
    """What is projected: the parts, line by line, each line ended; the row between; the whole likewise."""
    def lines(x):
        return torch.cat([x, line_end.expand(len(x), 1, -1)], dim=1).flatten(0, 1)

    whole, cut = merged(features[:1], 1, 1), merged(features[1:1 + math.prod(parts)], *parts)
    return torch.cat([lines(cut), between, lines(whole)])


class Phi3Vision(models.Transformers):
    """Tower, arrangement, projection and decoder, with an image for prompts that have tokens for one."""

    implementation = ("Hugging Face Transformers' CLIPVisionModel and Phi3ForCausalLM, eager attention, joined as the "
                      "authors' image_embedding_phi3_v.py does")

    def __init__(self, folder, crops, parts):
        tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.rows = self.see(tensors, crops, parts)
        text = {name: tensor for name, tensor in tensors.items() if not name.startswith(EMBEDDING)}
        self.model = decoder()
        self.model.load_state_dict(text)
        self.recorder = models.Recorder(self.model.model)

    def see(self, tensors, crops, parts):
        """The rows that take the places of tokens."""
        tower = CLIPVisionModel(CLIPVisionConfig(**TOWER, attn_implementation="eager")).eval()
        tower.load_state_dict({name.removeprefix(TOWER_PREFIX): tensor for name, tensor in tensors.items()
                               if name.startswith(TOWER_PREFIX)})
        features = tower(crops, output_hidden_states=True).hidden_states[-2][:, 1:]
        part = lambda name: tensors[EMBEDDING + name]
        x = arranged(features, parts, part("sub_GN").flatten(), part("glb_GN").reshape(1, -1))
        linear = torch.nn.functional.linear
        x = linear(x, part("img_projection.0.weight"), part("img_projection.0.bias"))
        return linear(torch.nn.functional.gelu(x), part("img_projection.2.weight"), part("img_projection.2.bias"))

    def call(self, ids, **options):
        embedded = self.model.model.embed_tokens(torch.tensor([ids]))
        places = [place for place, token in enumerate(ids) if token == IMAGE_TOKEN]
        if places:
            embedded[0, places] = self.rows
        return self.model(inputs_embeds=embedded, **options)

    def run(self, ids):
        logits = self.call(ids, use_cache=False).logits[0]
        return dict(self.recorder.seen, logits=logits)

    def steps(self, texts):
        cache = None
        for ids in texts:
            output = self.call(ids, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            yield output.logits[0, -1]


def decoder():
    config = Phi3Config(**TEXT, rope_scaling=dict(type="longrope", **FACTORS), pad_token_id=0,
                        attn_implementation="eager")
    return Phi3ForCausalLM(config).eval()


def write_checkpoint(folder):
    torch.manual_seed(SEED)
    tower, text = CLIPVisionModel(CLIPVisionConfig(**TOWER)), decoder()
    columns, hidden = 4 * TOWER["hidden_size"], TEXT["hidden_size"]
    projection = torch.nn.Sequential(torch.nn.Linear(columns, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden))
    for part in (tower, text, projection):
        randomise(part)
    tensors = {TOWER_PREFIX + name: tensor for name, tensor in tower.state_dict().items() if "position_ids" not in name}
    tensors |= {EMBEDDING + "img_projection." + name: tensor for name, tensor in projection.state_dict().items()}
    tensors |= {EMBEDDING + "sub_GN": torch.randn(1, 1, 1, columns), EMBEDDING + "glb_GN": torch.randn(1, 1, columns)}
    tensors |= text.state_dict()
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    (folder / "config.json").write_text(json.dumps(published(), indent=2) + "\n")
    processor = dict(image_processor_type="Phi3VImageProcessor", num_crops=PARTS, image_mean=MEAN, image_std=DEVIATION)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    write_tokenizer(folder, "<|image|>", "{% for m in messages %}{{ m['content'] }}{% endfor %}")
    write_image(folder / "image.png", 5, 35, 66)


def run(folder):
    """Tensors and metadata of the golden of a checkpoint."""
    crops, parts = processed(PIL.Image.open(folder / "image.png"))
    cells = (SIDE // PATCH // 2) ** 2
    image = [IMAGE_TOKEN] * ((math.prod(parts) + 1) * cells + 1 + (parts[0] + 1) * math.isqrt(cells))
    random = numpy.random.default_rng(SEED)
    words = lambda count: random.integers(3, IMAGE_TOKEN, count).tolist()
    prompts = [[0] + words(6), [0] + image + words(5), [0] + words(20) + image + words(33)]
    tensors, metadata = record.decoder(lambda folder: Phi3Vision(folder, crops, parts), folder, prompts, ROWS, 16)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise weights.Refused("a near tie decides the greedy text")
    # One crop below the other.
    pixels = crops.permute(1, 0, 2, 3).flatten(1, 2)
    tensors |= dict(pixels=pixels, parts=torch.tensor(parts, dtype=torch.int32))
    return tensors, metadata | dict(image_token=str(IMAGE_TOKEN))


@torch.no_grad()
def make(folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    return weights.make(folder, SEED, write_checkpoint, run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    folder = pathlib.Path(arguments.out) / NAME
    folder.mkdir(parents=True, exist_ok=True)
    record.write(folder / "golden.safetensors", *make(folder))


if __name__ == "__main__":
    main()
