#!/usr/bin/env python3
"""Small tasks with one right answer each, of graded difficulty: what `models/llama_tasks` is trained on and judged by.

    python3 tools/training/tasks.py > models/llama_tasks/tasks.jsonl

writes the 164 held-out tasks, a JSON object a line: `id`, `kind`, `prompt`, `answer`. A prompt is held out if its
checksum says so (`is_held_out`), whatever the seed, so that no training example is one. Needs the standard library.
"""
import json
import math
import random
import string
import zlib

HELD_OUT_TASKS, SEED = 164, 20
# One prompt of so many is held out.
SHARE = 32
# Most characters of a prompt and its answer.
LENGTH = 30


def number(chance, digits):
    return chance.randrange(10 ** (digits - 1) if digits > 1 else 0, 10 ** digits)


def letters(chance, count, alphabet=string.ascii_lowercase):
    return "".join(chance.choice(alphabet) for _ in range(count))


def add(chance, size):
    a, b = number(chance, size), number(chance, chance.randint(1, size))
    return f"{a}+{b}", a + b


def total(chance, size):
    numbers = [number(chance, 2) for _ in range(size)]
    return " ".join(map(str, numbers)), sum(numbers)


def multiply(chance, size):
    digits = ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3))[size - 1]
    a, b = (number(chance, count) for count in digits)
    return f"{a}*{b}", a * b


def square(chance, size):
    value = number(chance, size)
    return value, value * value


def quotient(chance, size):
    a, b = number(chance, size), chance.randint(2, 9)
    return f"{a} by {b}", a // b


def remainder(chance, size):
    a, b = number(chance, size), chance.randint(2, 99)
    return f"{a} by {b}", a % b


def common_divisor(chance, size):
    """The greatest; most pairs have one above 1."""
    factor = chance.randint(1, 12)
    a, b = (factor * max(1, number(chance, size)) for _ in range(2))
    return f"{a} {b}", math.gcd(a, b)


def largest_prime(chance, size):
    """The largest prime that divides a number."""
    value = rest = max(2, number(chance, size))
    divisor = 2
    while divisor * divisor <= rest:
        if rest % divisor:
            divisor += 1
        else:
            rest //= divisor
    return value, rest


def binary(chance, size):
    value = number(chance, size)
    return value, f"{value:b}"


def hexadecimal(chance, size):
    value = number(chance, size)
    return value, f"{value:x}"


def reverse(chance, size):
    text = letters(chance, size)
    return text, text[::-1]


def sort(chance, size):
    text = letters(chance, size)
    return text, "".join(sorted(text))


def count(chance, size):
    text = letters(chance, size, "abc")
    letter = chance.choice("abc")
    return f"{letter} in {text}", text.count(letter)


def look_up(chance, size):
    names = chance.sample(string.ascii_lowercase, size)
    values = [str(chance.randrange(10)) for _ in names]
    at = chance.randrange(size)
    return f"{names[at]} in {''.join(map(''.join, zip(names, values)))}", values[at]


def follow(chance, size):
    """From letter to letter, as pairs say, up to one that no pair begins with."""
    length = chance.randint(1, size)
    names = chance.sample(string.ascii_lowercase, 2 * size + 1)
    chain, others = names[:length + 1], names[length + 1:]
    pairs = [a + b for a, b in zip(chain, chain[1:])]
    pairs += [others[2 * i] + others[2 * i + 1] for i in range(size - length)]
    chance.shuffle(pairs)
    return f"{chain[0]} in {''.join(pairs)}", chain[-1]


# Word of a prompt, what makes it, the sizes from easy to hard, and the least size that is asked of a trained model.
KINDS = {
    "add": (add, range(1, 8), 1),
    "sum": (total, range(2, 7), 2),
    "mul": (multiply, range(1, 6), 3),
    "sq": (square, range(1, 5), 4),
    "div": (quotient, range(1, 7), 1),
    "mod": (remainder, range(1, 6), 3),
    "gcd": (common_divisor, range(1, 4), 2),
    "prime": (largest_prime, range(2, 5), 4),
    "bin": (binary, range(1, 5), 4),
    "hex": (hexadecimal, range(1, 6), 4),
    "rev": (reverse, range(2, 12), 2),
    "sort": (sort, range(2, 12), 2),
    "count": (count, range(3, 15), 3),
    "get": (look_up, range(2, 9), 2),
    "hop": (follow, range(1, 8), 1),
}


def task(kind, chance, size):
    """Prompt and answer."""
    question, answer = KINDS[kind][0](chance, size)
    return f"{kind} {question}=", str(answer)


def is_held_out(prompt):
    return zlib.crc32(prompt.encode()) % SHARE == 0


def training(seed, amount):
    """Prompts, answers, kinds and sizes to train on, none of them held out."""
    chance, kinds = random.Random(f"training {seed}"), list(KINDS)
    while amount > 0:
        kind = chance.choice(kinds)
        size = chance.choice(KINDS[kind][1])
        prompt, answer = task(kind, chance, size)
        if not is_held_out(prompt):
            amount -= 1
            yield prompt, answer, kind, size


def held_out(amount, seed):
    """Tasks of all kinds in turn, and of a kind's sizes in turn; no prompt twice."""
    chance, seen = random.Random(f"held out {seed}"), set()
    for index in range(amount):
        kind = list(KINDS)[index % len(KINDS)]
        sizes = [size for size in KINDS[kind][1] if size >= KINDS[kind][2]]
        # Steps through the sizes as far apart as the few tasks of a kind allow.
        size = sizes[(index // len(KINDS)) % len(sizes)]
        while True:
            prompt, answer = task(kind, chance, size)
            if is_held_out(prompt) and prompt not in seen:
                break
            # Small numbers may have no held-out prompt left.
            size = min(size + 1, sizes[-1]) if chance.random() < 0.01 else size
        seen.add(prompt)
        yield {"id": f"{index:03}", "kind": kind, "prompt": prompt, "answer": answer, "size": size}


def main():
    for line in held_out(HELD_OUT_TASKS, SEED):
        line.pop("size")
        print(json.dumps(line))


if __name__ == "__main__":
    main()
