#!/usr/bin/env python3
"""Trains small SentencePiece models and notes what the `sentencepiece` package makes of some texts.

    python3 tools/goldens/sentencepiece_files.py --out sentencepiece
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c sentencepiece |
        zstd --ultra -22 --long=27 > tests/goldens/sentencepiece.tar.zst

For each model NAME: `NAME/tokenizer.model`, `NAME.gguf` with the same vocabulary as llama.cpp's converter writes it, and
`NAME.json` with `texts`, their `ids` and what these decode to (`decoded`).
"""
import argparse
import json
import pathlib

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

CORPUS = pathlib.Path(__file__).parents[2] / "models" / "LICENSES.md"

# Characters that are replaced first, as `nmt_nfkc` and its like do with many more.
RULES = {"Ａ": "A", "ﬁ": "fi", "…": "...", "\t": " ", "\n": " ", "①": "1"}

MODELS = {
    # As Llama's: pairs are merged, a space in front, unknown characters become bytes.
    "bpe": dict(model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False, split_digits=True),
    # As Gemma's: no space in front, symbols that are always whole, runs of spaces among them.
    "symbols": dict(model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
                    remove_extra_whitespaces=False, add_dummy_prefix=False, allow_whitespace_only_pieces=True,
                    user_defined_symbols=["<sep>", "▁▁", "▁▁▁", "▁▁▁▁", "\n\n"], pad_id=0, eos_id=1, bos_id=2, unk_id=3),
    # As T5's: likeliest pieces, characters replaced, single spaces, an unknown piece.
    "unigram": dict(model_type="unigram", vocab_size=300, character_coverage=0.98, pad_id=0, eos_id=1, unk_id=2,
                    bos_id=-1),
    # The same with bytes.
    "unigram_bytes": dict(model_type="unigram", vocab_size=600, byte_fallback=True, character_coverage=0.98,
                          remove_extra_whitespaces=False),
}

TEXTS = [
    "", "a", " a", "a ", "The coach had left the village behind it.", "  two  spaces, and   three  ", "    four",
    "Chère Élise: 14:05 (No. 388) £2 10s.; “à demain!”", "naïve 🦀 über 数 ✓ ﬁn… Ａ① x", "tab\there\nand\n\nbreaks\n",
    "1234567890 and 3.14159", "Pride and Prejudice, by Jane Austen", "UPPER lower MiXeD", "▁already▁there", "ééé ñandú",
    "aaaaaaaaaaaaaaaaaaaaaaaaa", "the the the the", "\u00a0no-break\u3000wide", "don't won't it's",
]


def train(name, options, folder):
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "rules.tsv"
    if options["model_type"] == "unigram":
        code = lambda text: " ".join(f"{ord(c):X}" for c in text)
        rules.write_text("".join(f"{code(a)}\t{code(b)}\n" for a, b in RULES.items()))
        options = options | dict(normalization_rule_tsv=str(rules))
    sentencepiece.SentencePieceTrainer.train(
        input=str(CORPUS), model_prefix=str(folder / "tokenizer"), num_threads=1, minloglevel=2, hard_vocab_limit=False,
        **options)
    rules.unlink(missing_ok=True)
    (folder / "tokenizer.vocab").unlink()
    # Where the files lay is nobody's business.
    path, proto = folder / "tokenizer.model", sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    proto.trainer_spec.ClearField("input")
    proto.trainer_spec.ClearField("model_prefix")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    path.write_bytes(proto.SerializeToString())
    return sentencepiece.SentencePieceProcessor(model_file=str(path)), proto


def kind(model, id):
    if model.is_unknown(id):
        return gguf.TokenType.UNKNOWN
    if model.is_control(id):
        return gguf.TokenType.CONTROL
    if model.is_byte(id):
        return gguf.TokenType.BYTE
    if model.is_unused(id):
        return gguf.TokenType.UNUSED
    return gguf.TokenType.NORMAL


def write_gguf(model, proto, options, out):
    symbols = options.get("user_defined_symbols", [])
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_tokenizer_model("t5" if options["model_type"] == "unigram" else "llama")
    ids = range(model.get_piece_size())
    pieces = [model.id_to_piece(id) for id in ids]
    # Symbols that are always whole have their spaces written as spaces.
    writer.add_token_list([piece.replace("▁", " ") if piece in symbols else piece for piece in pieces])
    writer.add_token_scores([model.get_score(id) for id in ids])
    writer.add_token_types([gguf.TokenType.USER_DEFINED if pieces[id] in symbols else kind(model, id) for id in ids])
    for add, id in ((writer.add_bos_token_id, model.bos_id()), (writer.add_eos_token_id, model.eos_id()),
                    (writer.add_unk_token_id, model.unk_id()), (writer.add_pad_token_id, model.pad_id())):
        if id >= 0:
            add(id)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    if proto.normalizer_spec.precompiled_charsmap:
        writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    out = parser.parse_args().out
    for name, options in MODELS.items():
        model, proto = train(name, options, out / name)
        write_gguf(model, proto, options, out / f"{name}.gguf")
        texts = TEXTS + (["one<sep>two", "<sep>", "a<sep>  b   c"] if name == "symbols" else [])
        ids = [model.encode(text) for text in texts]
        golden = dict(made_by="tools/goldens/sentencepiece_files.py", sentencepiece=sentencepiece.__version__,
                      texts=texts, ids=ids, decoded=[model.decode(i) for i in ids])
        (out / f"{name}.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")
        print(f"{name}: {model.get_piece_size()} pieces")


if __name__ == "__main__":
    main()
