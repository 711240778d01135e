#!/usr/bin/env python3
"""Makes the numbers that the importer's tests of rotary positions compare with, by Hugging Face Transformers in float32.

    python3 tools/goldens/rope.py > crates/import/src/block/rope/golden.json

Each case is a configuration as `config.json` has it, a length of text, and what Transformers makes of them: the angle
per position of each pair, and the factor on cosines and sines.
"""
import json

from transformers import LlamaConfig, PhiConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

# What is the same in all configurations: heads of 16 elements.
SIZES = dict(hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=256)
EIGHT = [1.0, 1.05, 1.2, 1.7, 2.5, 4.0, 7.5, 9.0]
LONG = [0.99, 1.5, 2.0, 3.0, 6.0, 12.0, 30.0, 48.5]

# Keys of config.json beside the sizes, and lengths of text.
CASES = [
    (dict(rope_parameters=dict(rope_type="default", rope_theta=500.0)), [1]),
    (dict(rope_theta=500.0, rope_scaling=dict(type="linear", factor=2.5)), [1]),
    (dict(rope_parameters=dict(rope_type="default", rope_theta=2000.0, partial_rotary_factor=0.5)), [1]),
    (dict(partial_rotary_factor=0.75, rope_parameters=dict(rope_type="linear", rope_theta=2000.0, factor=3.0)), [1]),
    (dict(rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
                               high_freq_factor=4.0, original_max_position_embeddings=64)), [1]),
    (dict(rope_theta=10000.0, rope_scaling=dict(type="dynamic", factor=2.0)), [256, 257, 300, 5000]),
    (dict(rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=1.0, partial_rotary_factor=0.5)), [999]),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=150.0, factor=4.0,
                               original_max_position_embeddings=64)), [1]),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, truncate=False, beta_fast=32.0,
                               beta_slow=1.0, original_max_position_embeddings=4096)), [1]),
    (dict(rope_theta=10000.0, rope_scaling=dict(type="yarn", factor=40, beta_fast=32, beta_slow=1, mscale=0.707,
                                                mscale_all_dim=1.0, original_max_position_embeddings=4096)), [1]),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=16.0, attention_factor=0.75, beta_fast=8.0,
                               beta_slow=0.5, original_max_position_embeddings=512, partial_rotary_factor=0.75)), [1]),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=None,
                               original_max_position_embeddings=64)), [1]),
    # The ramp between both ends is empty, or upside down.
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0, beta_fast=1.0, beta_slow=1.0,
                               truncate=False, original_max_position_embeddings=500)), [1]),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0,
                               original_max_position_embeddings=4)), [1]),
    (dict(original_max_position_embeddings=64, rope_theta=1000.0,
          rope_scaling=dict(type="longrope", short_factor=EIGHT, long_factor=LONG)), [64, 65]),
    (dict(rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, short_factor=EIGHT, long_factor=LONG,
                               factor=32.0, original_max_position_embeddings=64)), [10, 256]),
    (dict(rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, short_factor=EIGHT[:4], long_factor=LONG[:4],
                               attention_factor=1.5, partial_rotary_factor=0.5,
                               original_max_position_embeddings=128)), [10, 129]),
]


def angles(keys, length):
    """Frequencies and factor, as a model with this configuration takes them for a text of this length."""
    keys = json.loads(json.dumps(keys))
    partial = "partial_rotary_factor" in json.dumps(keys)
    config = (PhiConfig if partial else LlamaConfig)(**SIZES, **keys)
    kind = config.rope_parameters["rope_type"]
    make = PhiRotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    return make(config, None, seq_len=length)


def main():
    cases = []
    for keys, lengths in CASES:
        for length in lengths:
            frequencies, factor = angles(keys, length)
            cases.append(dict(config=SIZES | keys, length=length, scale=float(factor),
                              inv_freq=[float(f"{f:.9g}") for f in frequencies.tolist()]))
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


if __name__ == "__main__":
    main()
