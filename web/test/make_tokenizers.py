"""Writes tokenizers.json: ids of Hugging Face's `tokenizers` for the tests of sites. Run it with that package installed."""

import json
import pathlib

import tokenizers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent.parent / "models"

TEXTS = [
    "Once upon a time, there was a boat.",
    "  two spaces, a tab\tand\n\n\nlines \r\n end  ",
    "naïve café, Ünïcödé; e\u0301 decomposed",
    "東京に行きました。 Привет, мир! שלום 😀👩‍👩‍👧",
    "I'll say: don't, WE'VE, they'd 1234567 3.14 x=y+z;",
    "<|begin|>inside<|end|> <|pad|>",
    "\u00a0no-break\u2003em\u200bzero\ufeff",
    "",
    " ",
    "a",
]

# The regular expressions of Llama 3 and of Qwen 2.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split(regex):
    parts = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    return {"type": "Sequence", "pretokenizers": parts}


# A model as SentencePiece's: spaces are marks, and what has no token becomes bytes.
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "t", "h", "e", "a", "n", "o", "i", "s"]
MERGES = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("a", "n"), ("\u2581", "a"), ("i", "s"), ("o", "n"), ("\u2581", "is")]
PIECES += ["".join(pair) for pair in MERGES]
SENTENCEPIECE = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    },
    "pre_tokenizer": None,
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "added_tokens": [
        {"id": at, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for at, text in enumerate(PIECES[:3])
    ],
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {piece: at for at, piece in enumerate(PIECES)},
        "merges": [list(pair) for pair in MERGES],
    },
}

# A file of `models/`, and what stands in place of its parts.
CASES = [
    ("as it is", "llama", {}),
    ("320 tokens", "llama_head64", {}),
    ("the splits of Llama 3", "llama", {"pre_tokenizer": split(LLAMA3)}),
    ("the splits of Qwen 2, and NFC", "llama", {"pre_tokenizer": split(QWEN2), "normalizer": {"type": "NFC"}}),
    ("marks for spaces, bytes for the rest", "llama_head64", SENTENCEPIECE),
]


def main():
    cases = []
    for name, model, parts in CASES:
        whole = {**json.loads((MODELS / model / "tokenizer.json").read_text()), **parts}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        texts = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            texts.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids)})
        cases.append({"name": name, "model": model, "parts": parts, "texts": texts})
    made = {"by": f"tokenizers {tokenizers.__version__}", "cases": cases}
    (HERE / "tokenizers.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


main()
