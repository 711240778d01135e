"""Chats about pictures as ids and tensors, for `see.py`: the tokenizer, the template of chats, and which rows of pictures take which places."""
import math
import multiprocessing
import os
import random

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

import pictures


BEGIN, END, PAD, IMAGE, USER, ASSISTANT, SYSTEM = range(7)
SPECIAL = ["<|begin|>", "<|end|>", "<|pad|>", "<image>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{{ bos_token }}{% set seen = namespace(images=0) %}{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if not loop.first %}{{ '\n' }}{% endif %}{% if part['type'] == 'image' %}{% set seen.images = seen.images + 1 %}"
    "{{ 'image ' ~ seen.images ~ ':<image>' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
VOCABULARY, CONTEXT, ANSWERS = 480, 384, 72
PATCH = 8
# Rows of a picture: the class token and its patches.
ROWS = 1 + (pictures.SIDE // PATCH) ** 2


def tokenizer():
    """Byte-level BPE; every word of the chats is one token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(pictures.texts(2000), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def write_chat(chat, encode):
    """Ids of a chat as the template writes it, cut behind the last answer that fits, where pictures begin, and the
    answers: places of the ids that say them, the kind of question and the pictures it is about."""
    kinds, system, turns = chat
    ids, starts, answers, said = [BEGIN], [], [], 0
    if system:
        ids += [SYSTEM, *encode(system), END]
    for parts, answer, sort, about in turns:
        turn, here = [USER], []
        for number, part in enumerate(parts):
            turn += encode("\n") if number else []
            if part is None:
                turn += encode(f"image {len(starts) + len(here) + 1}:")
                here.append(len(ids) + len(turn))
                turn += [IMAGE] * ROWS
            else:
                turn += encode(part)
        says = [*encode(answer), END]
        first = len(ids) + len(turn) + 2
        said += len(says)
        if first + len(says) > CONTEXT or said > ANSWERS:
            break
        ids += [*turn, END, ASSISTANT, *says]
        starts += here
        answers.append((range(first, first + len(says)), sort, about))
    return ids, starts, answers


def arrays(chats, encode):
    """Chats as tensors: `ids [n, CONTEXT]`, `kinds [n, MOST, 3]`, `rows [n, CONTEXT]` (which row of the chat's pictures
    takes a place, -1 for none) and its inverse `places`, `says [n, ANSWERS]` (places before the ids of answers), its
    inverse `asked`, and `labels [n, ANSWERS]`. And the answers of each chat."""
    n = len(chats)
    full = lambda width, value=-1: torch.full((n, width), value, dtype=torch.int16)
    made = dict(ids=full(CONTEXT, PAD), kinds=torch.zeros(n, pictures.MOST, 3, dtype=torch.int16), rows=full(CONTEXT),
                places=full(pictures.MOST * ROWS), says=full(ANSWERS), asked=full(CONTEXT), labels=full(ANSWERS))
    all_answers = []
    for i, chat in enumerate(chats):
        ids, starts, answers = write_chat(chat, encode)
        made["ids"][i, :len(ids)] = torch.tensor(ids, dtype=torch.int16)
        made["kinds"][i, :len(starts)] = torch.tensor(chat[0][:len(starts)], dtype=torch.int16).reshape(-1, 3)
        for number, start in enumerate(starts):
            made["rows"][i, start:start + ROWS] = torch.arange(number * ROWS, (number + 1) * ROWS)
            made["places"][i, number * ROWS:(number + 1) * ROWS] = torch.arange(start, start + ROWS)
        said = [place for places, _, _ in answers for place in places]
        before = torch.tensor(said, dtype=torch.int16) - 1
        made["says"][i, :len(said)] = before
        made["asked"][i, before.long()] = torch.arange(len(said), dtype=torch.int16)
        made["labels"][i, :len(said)] = torch.tensor([ids[place] for place in said], dtype=torch.int16)
        all_answers.append([(len(places), sort, any(pictures.is_held_out(chat[0][k]) for k in about))
                            for places, sort, about in answers])
    return made, all_answers


def share_of_chats(argument):
    """The chats of one process: with pictures of the kinds in `pool`, or chats held out."""
    seed, count, pool, file = argument
    torch.set_num_threads(1)
    made, known, chance = Tokenizer.from_str(file), {}, random.Random(seed)

    def encode(text):
        if text not in known:
            known[text] = made.encode(text, add_special_tokens=False).ids
        return known[text]

    one = (lambda: pictures.chat(chance, pool)) if pool else (lambda: pictures.held_out_chat(chance))
    tensors, answers = arrays([one() for _ in range(count)], encode)
    return {name: tensor.numpy() for name, tensor in tensors.items()}, answers


def make_chats(made, seed, count, pool, processes):
    """So many chats, always the same ones, and their answers."""
    part = min(1024, count)
    work = [(seed * 1_000_003 + i, part, pool, made.to_str()) for i in range(math.ceil(count / part))]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        parts = pool.map(share_of_chats, work, chunksize=1)
    tensors = {name: torch.cat([torch.from_numpy(p[name]) for p, _ in parts]) for name in parts[0][0]}
    return tensors, [answers for _, several in parts for answers in several]
