"""Writes the configurations of the golden checkpoints as the installed version of Transformers writes them.

    pip install 'transformers<5' pillow   # in one environment, and 'transformers>=5' in another
    python3 tools/goldens/configs.py crates/import/tests/configs

Writes `transformers-MAJOR.json.zst`, packed by the program `zstd`, into the folder: the version, `config.json` by the name of the checkpoint, and by the model
type the defaults of its class and the class's other names for keys (`attribute_map`); the JSON files of processors and
tokenizers beside `tokenizer.json`. Needs no torch. A checkpoint whose class is in its own folder ("custom code") and
not in Transformers goes through a class made here of the same keys. What the version does not know is listed with the reason.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers
from transformers import CONFIG_MAPPING, AutoImageProcessor, AutoTokenizer, LlavaProcessor, PretrainedConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests/goldens"
# Folders with a tokenizer, and whether they have an image processor beside it.
TEXTS = {"models/llama": False, "tests/goldens/llava_tiny": True, "tests/goldens/llava_siglip_tiny": True}
# Written by no version of Transformers 4.
SINCE_5 = {"ministral3": "Transformers 4 does not have it", "mistral3": "its text model is not in Transformers 4"}


def custom(keys):
    """The configuration of a class as checkpoints with custom code bring it: it sets its own attributes, then calls the base."""
    base = set(PretrainedConfig().to_dict())
    own = {key: value for key, value in keys.items() if key not in base and key != "model_type"}

    class Custom(PretrainedConfig):
        model_type = keys["model_type"]

        def __init__(self, **kwargs):
            for key, default in own.items():
                setattr(self, key, kwargs.pop(key, default))
            super().__init__(**kwargs)

    return Custom


def written(config):
    """`config.json` as it is saved."""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return json.loads((pathlib.Path(folder) / "config.json").read_text())


def beside(folder, sees):
    """The JSON files that are saved beside `config.json` and `tokenizer.json`, by name."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / folder)
    own = LlavaProcessor(AutoImageProcessor.from_pretrained(ROOT / folder), tokenizer, patch_size=14) if sees else tokenizer
    with tempfile.TemporaryDirectory() as out:
        own.save_pretrained(out)
        files = [file for file in sorted(pathlib.Path(out).glob("*.json")) if file.name != "tokenizer.json"]
        return {file.name: json.loads(file.read_text()) for file in files}


def main():
    major = int(transformers.__version__.split(".")[0])
    configs, defaults, renamed, unknown = {}, {}, {}, {}
    for file in sorted(GOLDENS.glob("*/config.json")):
        keys, name = json.loads(file.read_text()), file.parent.name
        kind = keys["model_type"]
        if major < 5 and kind in SINCE_5:
            unknown[name] = SINCE_5[kind]
            continue
        known = kind in CONFIG_MAPPING
        if known and kind not in defaults:
            defaults[kind] = written(CONFIG_MAPPING[kind]())
            renamed[kind] = CONFIG_MAPPING[kind].attribute_map
        configs[name] = written((CONFIG_MAPPING[kind] if known else custom(keys)).from_pretrained(file.parent))
    files = {folder: beside(folder, sees) for folder, sees in TEXTS.items()}
    renamed = {kind: names for kind, names in renamed.items() if names}
    groups = {"configs": configs, "defaults": defaults, "renamed": renamed, "files": files, "unknown": unknown}
    lines = [json.dumps("transformers") + ": " + json.dumps(transformers.__version__)]
    for title, group in groups.items():
        # Without blanks: the files are large, and nobody reads a row of them.
        dense = {key: json.dumps(value, separators=(",", ":")) for key, value in group.items()}
        rows = ",\n".join(f"{json.dumps(key)}:{value}" for key, value in dense.items())
        lines.append(f"{json.dumps(title)}: {{\n{rows}\n}}")
    out = pathlib.Path(sys.argv[1]) / f"transformers-{major}.json"
    out.write_text("{" + ",\n".join(lines) + "}\n")
    subprocess.run(["zstd", "--ultra", "-22", "-q", "-f", "--rm", str(out)], check=True)
    print(f"{out}: {len(configs)} checkpoints, {len(defaults)} classes, {len(unknown)} not known to this version")


if __name__ == "__main__":
    main()
