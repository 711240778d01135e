"""Pictures of shapes, and chats about them: what `see.py` trains on, and what it never trains on.

A picture shows one to four shapes of one kind and one colour on a plain ground. Of the 120 kinds of pictures twelve are
held out: no picture of them is ever trained on, and every chat held out asks about at least one.
"""
import functools
import math
import random
import struct
import zlib

import torch

SHAPES = ["circle", "square", "triangle", "cross", "ring"]
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple"]
COUNTS = [1, 2, 3, 4]
# Red, green and blue of each colour, as shares of the way from its darkest to its brightest channel.
CHANNELS = [[1, 0, 0], [1, 0.5, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0.65, 0, 0.9]]
# Side of a picture as the model takes it, pixels; most pictures of a chat.
SIDE, MOST = 32, 11
SYSTEM = ["answer in few words.", "you see pictures of shapes.", "be brief."]
SMALL_TALK = ["here are some pictures.", "look at this.", "look at these:", "one more:", "and this one:", "now look here.",
              "hello!", "thanks.", "first picture:", "next:", "i have a question.", "please have a look."]


def is_held_out(kind):
    """Whether no picture of this kind is trained on: one in ten, with every shape, colour and count among them."""
    shape, colour, count = kind
    return (3 * shape + colour + 2 * count) % 10 == 0


KINDS = [(s, c, n) for s in range(len(SHAPES)) for c in range(len(COLOURS)) for n in range(len(COUNTS))]
HELD_OUT = [kind for kind in KINDS if is_held_out(kind)]
TRAINED = [kind for kind in KINDS if not is_held_out(kind)]


@functools.lru_cache
def constants(device):
    """Colours, and the middles of the four quarters. Made one time: a GPU that records its work takes nothing from outside."""
    quarters = [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    return torch.tensor(CHANNELS, device=device), torch.tensor(quarters, device=device)


# Pictures. ------------------------------------------------------------------------------------------------------------

def arrange(kinds, chance):
    """Where everything is in pictures of these kinds `[m, 3]`: lengths are shares of a side, colours from 0 to 1."""
    m, device = len(kinds), kinds.device
    draw = lambda low, high, *shape: torch.rand(m, *shape, generator=chance, device=device) * (high - low) + low
    counts = kinds[:, 2] + 1
    # As many of the four quarters as there are shapes, at random.
    rank = draw(0, 1, 4).argsort(dim=1).argsort(dim=1)
    present = rank < counts[:, None]
    channels, quarters = constants(device)
    centre = quarters + draw(-0.045, 0.045, 4, 2)
    radius = draw(0.135, 0.19, 1) * draw(0.9, 1.0, 4)
    # One shape may be larger and anywhere.
    large = draw(0.135, 0.42, 1)
    anywhere = large[:, None] + draw(0, 1, 1, 2) * (1 - 2 * large[:, None])
    alone = (counts == 1)[:, None]
    radius = torch.where(alone, large, radius)
    centre = torch.where(alone[:, None], anywhere, centre)
    base = channels[kinds[:, 1].long()][:, None]
    dark, bright = draw(0, 0.2, 1, 1), draw(0.78, 1, 1, 1)
    colour = (dark + (bright - dark) * base + draw(-0.05, 0.05, 4, 3)).clamp(0, 1)
    ground = (draw(0, 1, 1) + draw(-0.04, 0.04, 3)).clamp(0, 1)
    return dict(shape=kinds[:, 0], present=present, centre=centre, radius=radius, angle=draw(-0.25, 0.25, 4),
                colour=colour, ground=ground)


def distance(shape, x, y):
    """How far outside a shape of radius 1 a point is; below 0 inside. `shape` `[m]`, `x` and `y` `[m, 4, side, side]`."""
    norm = (x * x + y * y).sqrt()
    ax, ay = x.abs(), y.abs()
    tip = math.sqrt(3) / 2
    forms = [
        norm - 1,
        torch.maximum(ax, ay) - 0.86,
        torch.maximum(y, ax * tip - y * 0.5) - 0.55,
        torch.minimum(torch.maximum(ax - 1, ay - 0.33), torch.maximum(ay - 1, ax - 0.33)),
        (norm - 0.76).abs() - 0.24,
    ]
    shape = shape[:, None, None, None]
    result = forms[0]
    for number, form in enumerate(forms[1:], 1):
        result = torch.where(shape == number, form, result)
    return result


def paint(at, side=SIDE):
    """The arranged pictures as samples of 0 to 255, `f32 [m, 3, side, side]`, not rounded."""
    line = (torch.arange(side, device=at["ground"].device) + 0.5) / side
    place = lambda value: value[:, :, None, None]
    dx = (line[None, None, None, :] - place(at["centre"][..., 0])) / place(at["radius"])
    dy = (line[None, None, :, None] - place(at["centre"][..., 1])) / place(at["radius"])
    sine, cosine = place(at["angle"].sin()), place(at["angle"].cos())
    outside = distance(at["shape"], dx * cosine + dy * sine, dy * cosine - dx * sine)
    # Edges are one pixel wide.
    cover = (0.5 - outside * place(at["radius"]) * side).clamp(0, 1) * place(at["present"])
    shapes = sum(cover[:, i, None] * at["colour"][:, i, :, None, None] for i in range(4))
    ground = at["ground"][:, :, None, None] * (1 - cover.sum(1, keepdim=True))
    return 255 * (shapes + ground)


def grain(samples, chance):
    """Samples with noise of up to four steps, rounded: what is trained on."""
    noise = torch.randn(samples.shape, generator=chance, device=samples.device)
    strength = torch.rand(len(samples), 1, 1, 1, generator=chance, device=samples.device) * 4
    return (samples + noise * strength).clamp(0, 255).round()


def png(samples):
    """The file of a picture `[3, height, width]`."""
    rows = samples.clamp(0, 255).round().to(torch.uint8).permute(1, 2, 0)
    height, width, _ = rows.shape
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in rows)
    part = lambda name, body: struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(lines, 9)) + part(b"IEND", b"")


# Questions. -----------------------------------------------------------------------------------------------------------

def name(index, seen, chance):
    """A name for picture `index` of the `seen` that a chat has shown."""
    names = [f"image {index + 1}"] * 3
    if index == seen - 1:
        names += ["the last image", "this image", "this picture"] if seen > 1 else ["this image", "this", "the image"] * 2
    if index == 0:
        names.append("the first image")
    return chance.choice(names)


def noun(shape, count):
    return shape if count == 1 else shape + ("es" if shape.endswith("s") else "s")


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def of_one(kinds, chance):
    """Kind, question and answer about one of the pictures that are seen, and which."""
    index = len(kinds) - 1 if chance.random() < 0.25 else chance.randrange(len(kinds))
    shape, colour, count = SHAPES[kinds[index][0]], COLOURS[kinds[index][1]], COUNTS[kinds[index][2]]
    at = name(index, len(kinds), chance)
    word = "color" if chance.random() < 0.3 else "colour"
    sort = chance.choice(["shape", "colour", "count", "describe"])
    question, answer = {
        "shape": ([f"what shape is in {at}?", f"which shape does {at} show?", f"what shape is {at}?"], shape),
        "colour": ([f"what {word} is {at}?", f"which {word} is {at}?", f"what {word} is in {at}?"], colour),
        "count": ([f"how many shapes are in {at}?", f"how many things are in {at}?",
                   f"how many shapes does {at} show?"], str(count)),
        "describe": ([f"what is in {at}?", f"describe {at}.", f"what do you see in {at}?", f"what does {at} show?"],
                     f"{count} {colour} {noun(shape, count)}"),
    }[sort]
    return sort, chance.choice(question), answer, [index]


def of_all(kinds, chance):
    """The same about all pictures that are seen; none if no picture is the only one of its kind."""
    sort = chance.choice(["which", "which", "images", "images", "total"])
    everyone = list(range(len(kinds)))
    if sort == "total":
        question = chance.choice(["how many images are there?", "how many images do you see?"])
        return sort, question, str(len(kinds)), everyone
    axis = chance.choice([0, 1])
    seen = [kind[axis] for kind in kinds]
    # What is asked for is mostly there.
    value = chance.choice(seen) if chance.random() < 0.85 else chance.randrange([len(SHAPES), len(COLOURS)][axis])
    if sort == "which":
        single = [value for value in sorted(set(seen)) if seen.count(value) == 1]
        if not single:
            return None
        value = chance.choice(single)
    word = [SHAPES, COLOURS][axis][value]
    one, many = article(word), noun(word, 2)
    questions = {
        ("which", 0): [f"which image shows {one}?", f"which image shows {many}?", f"which image has {many}?"],
        ("which", 1): [f"which image is {word}?", f"which image shows {word} shapes?", f"which one is {word}?"],
        ("images", 0): [f"how many images show {many}?", f"how many images have {many}?", f"how many images show {one}?"],
        ("images", 1): [f"how many images are {word}?", f"how many {word} images are there?"],
    }[sort, axis]
    answer = f"image {seen.index(value) + 1}" if sort == "which" else str(seen.count(value))
    return sort, chance.choice(questions), answer, everyone


def ask(kinds, chance):
    """A question about the pictures seen so far."""
    asked = of_all(kinds, chance) if len(kinds) > 1 and chance.random() < 0.45 else None
    sort, question, answer, about = asked or of_one(kinds, chance)
    if chance.random() < 0.15:
        question = question[0].upper() + question[1:]
    if chance.random() < 0.08:
        question = question.rstrip("?.")
    return sort, question, answer, about


def chat_kinds(count, chance, pool):
    """Kinds for the pictures of a chat. Often many share a shape or a colour, so that there is something to count."""
    share, axis = chance.random() if chance.random() < 0.6 else 0, chance.choice([0, 1])
    theme = chance.choice(pool)[axis]
    alike = [kind for kind in pool if kind[axis] == theme] or pool
    return [chance.choice(alike if chance.random() < share else pool) for _ in range(count)]


def chat(chance, pool, turns=24, count=None):
    """Kinds of the pictures and turns: parts (text, or `None` for the next picture), answer, kind of question, and the
    pictures that it is about."""
    count = count or chance.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11])
    kinds = chat_kinds(count, chance, pool)
    at_once = chance.random() < 0.6
    made, seen = [], 0
    for turn in range(turns):
        left = count - seen
        fresh = left if turn == 0 and at_once else min(left, chance.choice([0, 1, 1, 2, 4]) if turn else chance.choice([1, 1, 2, 3]))
        seen += fresh
        sort, question, answer, about = ask(kinds[:seen], chance)
        parts = [None] * fresh
        for _ in range(chance.choice([0, 0, 0, 1, 2]) if fresh else 0):
            parts.insert(chance.randrange(len(parts) + 1), chance.choice(SMALL_TALK))
        # The question may come before the pictures, or among them.
        early = fresh and chance.random() < 0.2
        parts.insert(chance.randrange(len(parts) + 1) if early else len(parts), question)
        made.append((parts, answer, sort, about))
    system = chance.choice(SYSTEM) if chance.random() < 0.15 else None
    return kinds, system, made


def held_out_chat(chance, turns=24, count=None, pool=KINDS):
    """A chat in which every question is about at least one picture of a kind that is not trained on."""
    while True:
        kinds, system, made = chat(chance, pool, turns, count)
        if all(any(is_held_out(kinds[index]) for index in about) for _, _, _, about in made):
            return kinds, system, made


def texts(count):
    """What the tokenizer learns its words from."""
    chance = random.Random(5)
    for _ in range(count):
        _, _, made = chat(chance, KINDS)
        for parts, answer, _, _ in made:
            yield "\n".join(part if part else "image 1:" for part in parts)
            yield answer
    yield from SYSTEM + SMALL_TALK + [f"image {i}:" for i in range(1, MOST + 1)] * 50
