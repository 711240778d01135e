#!/usr/bin/env python3
"""Asks a model of `see.py` about pictures that it was not trained on, through Transformers, and keeps what it answers.

    python3 tools/training/held_out.py models/llava --chats 40 --out tests/pictures/held_out.json

The file has `pictures`, PNG files as data URLs of three sizes, and `chats`: turns with `parts` (the number of a picture, or a
text), `right`, and `torch`, what Transformers answers in float32. Half of the pictures are of kinds held out.
"""
import argparse
import base64
import io
import json
import math
import pathlib
import random

import PIL.Image
import torch
import transformers
from transformers import AutoTokenizer, LlavaForConditionalGeneration

import pictures
from chats import ROWS

SIDES = [32, 48, 64]


def paint(count):
    """Kinds and files of pictures, without grain."""
    chance, noise = random.Random(21), torch.Generator().manual_seed(22)
    half = count // 2
    kinds = [pictures.HELD_OUT[i % len(pictures.HELD_OUT)] for i in range(half)]
    rest = pictures.TRAINED * math.ceil(count / len(pictures.TRAINED))
    kinds += chance.sample(rest, count - half)
    chance.shuffle(kinds)
    arranged = [pictures.arrange(torch.tensor([kind]), noise) for kind in kinds]
    return kinds, [pictures.png(pictures.paint(at, SIDES[i % 3])[0]) for i, at in enumerate(arranged)]


def some_chats(kinds, count):
    """Chats about these pictures, at least one of a kind held out in each question; every fourth has eleven."""
    chance, made = random.Random(23), []
    for number in range(count):
        size = pictures.MOST if number % 4 == 0 else chance.choice([1, 2, 3, 4, 5, 6])
        chosen, _, turns = pictures.held_out_chat(chance, 2, size, kinds)
        files = [chance.choice([i for i, kind in enumerate(kinds) if kind == one]) for one in chosen]
        left, told = iter(files), []
        for parts, right, sort, _ in turns:
            told.append(dict(kind=sort, parts=[next(left) if part is None else part for part in parts], right=right))
        made.append(dict(turns=told))
    return made


class Asked:
    """A model in Transformers."""

    def __init__(self, folder, files):
        self.model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
        images = [PIL.Image.open(io.BytesIO(file)).convert("RGB") for file in files]
        self.pixels = processor(images=images, return_tensors="pt")["pixel_values"]

    @torch.no_grad()
    def answer(self, chat):
        """Answers all turns of a chat, each with its own answers before it."""
        messages, shown = [], []
        for turn in chat["turns"]:
            shown += [part for part in turn["parts"] if isinstance(part, int)]
            content = [dict(type="text", text=part) if isinstance(part, str) else dict(type="image") for part in turn["parts"]]
            messages.append(dict(role="user", content=content))
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            text = text.replace("<image>", "<image>" * ROWS)
            ids = torch.tensor([self.tokenizer(text, add_special_tokens=False)["input_ids"]])
            found = self.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12,
                                        pixel_values=self.pixels[shown], do_sample=False)
            turn["torch"] = self.tokenizer.decode(found[0, ids.shape[1]:], skip_special_tokens=True)
            messages.append(dict(role="assistant", content=turn["torch"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a folder with model.safetensors")
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    kinds, files = paint(arguments.pictures)
    chats = some_chats(kinds, arguments.chats)
    asked = Asked(arguments.model, files)
    for chat in chats:
        asked.answer(chat)
    turns = [turn for chat in chats for turn in chat["turns"]]
    print(f"{sum(turn['torch'] == turn['right'] for turn in turns)} of {len(turns)} answers are right")
    urls = ["data:image/png;base64," + base64.b64encode(file).decode() for file in files]
    lines = ",\n".join(json.dumps(chat, separators=(",", ":")) for chat in chats)
    arguments.out.write_text(f'{{"pictures":{json.dumps(urls, indent=0)},"chats":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
