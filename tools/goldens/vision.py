#!/usr/bin/env python3
"""Makes small random checkpoints of models that see an image, with their goldens.

    python3 tools/goldens/vision.py --out tests/goldens [--only NAME ...]

Goldens hold what README.md lists; the metadata's `image_token` in a prompt stands for a row of the image `pixels` f32
[3, H, W]. These are what Transformers' image processor (its Pillow form) makes of `image.png`, which lies beside the
checkpoint with `preprocessor_config.json` and a tokenizer of whole words.
"""
import argparse
import json
import pathlib

import numpy
import PIL.Image
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models as token_models, pre_tokenizers
from transformers import AutoConfig, LlavaForConditionalGeneration

import models
import record
import weights
from kept import ROWS
from tiny import SMALLEST_GAP

IMAGE_TOKEN = 97
VOCAB = 99
WORDS = """the a of and to in is it was on what where who this that picture image house garden tree river road hill sky
cloud light dark red green blue yellow white black grey small large old new near far left right above below man woman
child dog cat bird horse boat train table chair window door book lamp one two three four five six many few there here
under over between behind before very quite rather some any no not with from at by for as be are were has had seems
looks""".split()

CLIP = dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=3,
            num_attention_heads=4, image_size=28, patch_size=7, projection_dim=16)
# 30 pixels hold four patches of 7 and two pixels more.
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=32, intermediate_size=44, num_hidden_layers=2,
              num_attention_heads=4, image_size=30, patch_size=7, vision_use_head=False)
LLAMA = dict(model_type="llama", vocab_size=VOCAB, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96, rms_norm_eps=1e-5,
             bos_token_id=0, eos_token_id=1)
QWEN2 = LLAMA | dict(model_type="qwen2", tie_word_embeddings=True)

LLAVA = {
    "llava_tiny": dict(
        vision=CLIP, text=LLAMA, dtype=torch.float16, seed=0, options=dict(),
        processor=transformers.CLIPImageProcessor, sizes=dict(size=dict(shortest_edge=28), crop_size=28)),
    "llava_siglip_tiny": dict(
        vision=SIGLIP, text=QWEN2, dtype=torch.bfloat16, seed=3,
        options=dict(vision_feature_layer=-1, vision_feature_select_strategy="full", projector_hidden_act="gelu"),
        processor=transformers.SiglipImageProcessor, sizes=dict(size=dict(height=30, width=30))),
}


# A template for chats whose messages are parts, one of which may be an image.
PARTS = ("{% for m in messages %}{% for part in m['content'] if part is mapping %}"
         "{{ '<image>\n' if part['type'] == 'image' else part['text'] }}{% else %}{{ m['content'] }}"
         "{% endfor %}{% endfor %}")


def write_tokenizer(folder, image="<image>", template=PARTS):
    """A tokenizer whose tokens are words, with this token for an image."""
    words = ["<s>", "</s>", "<unk>"] + WORDS + [image, "."]
    assert words.index(image) == IMAGE_TOKEN and len(words) == VOCAB
    tokenizer = Tokenizer(token_models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<s>", "</s>", "<unk>", image)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = dict(add_bos_token=True, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_image(path, seed, height=47, width=66):
    """Waves, a bright square and a little noise: smooth and sharp places, and no symmetry."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    channels = [128 + 90 * numpy.sin(x / (5 + c) + 1.7 * c) * numpy.cos(y / (9 - 2 * c)) for c in range(3)]
    image = numpy.stack(channels, -1) + random.normal(0, 6, (height, width, 3))
    image[10:22, 33:49] += 110
    PIL.Image.fromarray(image.clip(0, 255).astype(numpy.uint8)).save(path, optimize=True)


def randomise(model):
    """Weights of a size that lets every layer matter to the result."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0.0, 1.2 / parameter[0].numel() ** 0.5)
        elif name.endswith(".weight"):
            parameter.data.normal_(1.0, 0.2)
        else:
            parameter.data.normal_(0.0, 0.3)


class Llava(models.Transformers):
    """LLaVA of Transformers, with an image for prompts that have tokens for one."""

    def __init__(self, folder, pixels):
        self.pixels = pixels
        self.model = LlavaForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.recorder = models.Recorder(self.model.model.language_model)

    def call(self, ids, **options):
        pixels = self.pixels if IMAGE_TOKEN in ids else None
        return self.model(torch.tensor([ids]), pixel_values=pixels, **options)

    def run(self, ids):
        logits = self.call(ids, use_cache=False).logits[0]
        return dict(self.recorder.seen, logits=logits)

    def steps(self, texts):
        cache = None
        for ids in texts:
            output = self.call(ids, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            yield output.logits[0, -1]


def checkpoint(made, folder):
    """Writes weights, configuration, tokenizer, image and what reads it."""
    torch.manual_seed(made["seed"])
    config = transformers.LlavaConfig(
        vision_config=AutoConfig.for_model(**made["vision"]), text_config=AutoConfig.for_model(**made["text"]),
        image_token_index=IMAGE_TOKEN, image_seq_length=16, **made["options"])
    model = LlavaForConditionalGeneration(config)
    randomise(model)
    model.to(made["dtype"]).save_pretrained(folder)
    write_tokenizer(folder)
    write_image(folder / "image.png", made["seed"])
    made["processor"](**made["sizes"]).save_pretrained(folder)


def run(made, folder):
    """Tensors and metadata of the golden of a checkpoint."""
    processor = made["processor"](**made["sizes"])
    pixels = processor(images=PIL.Image.open(folder / "image.png"), return_tensors="pt")["pixel_values"]
    random = numpy.random.default_rng(made["seed"])
    words = lambda count: random.integers(3, IMAGE_TOKEN, count).tolist()
    image = [IMAGE_TOKEN] * 16
    prompts = [[0] + words(6), [0] + image + words(5), [0] + words(20) + image + words(33)]
    tensors, metadata = record.decoder(lambda folder: Llava(folder, pixels), folder, prompts, ROWS, 16)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise weights.Refused("a near tie decides the greedy text")
    return tensors | dict(pixels=pixels[0]), metadata | dict(image_token=str(IMAGE_TOKEN))


@torch.no_grad()
def make(name, folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    made = LLAVA[name]
    return weights.make(folder, made["seed"], lambda out: checkpoint(made, out), lambda out: run(made, out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="+", choices=list(LLAVA))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    for name in arguments.only or LLAVA:
        folder = pathlib.Path(arguments.out) / name
        folder.mkdir(parents=True, exist_ok=True)
        record.write(folder / "golden.safetensors", *make(name, folder))


if __name__ == "__main__":
    main()
