"""PyTorch as a source: a wrong import is named at the first value that departs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapml as tml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

IDS = [[3, 17, 90, 4, 55, 61, 8], [1, 2]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny random checkpoint, and what its modules take and give."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        rms_norm_eps=1e-5,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    out = folder / "tiny.torch.safetensors"
    report = tml.torch.carve(model, IDS, out=out)
    assert (report.prompts, report.path) == (2, str(out)) and report.tensors > 40
    return folder, out


def changed(folder: Path, to: Path, change: Any) -> Path:
    """The same checkpoint with another configuration."""
    to.mkdir()
    for file in folder.glob("model*.safetensors"):
        (to / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_a_right_import_agrees_everywhere(source: tuple[Path, Path]) -> None:
    folder, suite = source
    report = tml.align(folder, suite=suite)
    assert report.passed and report.departs is None
    values = [row.value for row in report.values]
    for name in ("model.rotary_emb", "model.layers.1.self_attn.attention", "model.layers.0.add_attention", "lm_head"):
        assert name in values, values
    assert max(row.worst for row in report.values) < 1e-4


def test_another_epsilon_is_named_at_the_first_norm(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder, suite = source
    wrong = changed(folder, tmp_path / "eps", lambda config: config.update(rms_norm_eps=0.1))
    report = tml.align(wrong, suite=suite)
    assert not report.passed
    assert report.departs.value == "model.layers.0.input_layernorm"
    assert [node.op for node in report.departs.nodes][-1] == "rms_norm"


def test_another_rope_theta_is_named_at_the_angles(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder, suite = source

    def theta(config: dict[str, Any]) -> None:
        config.get("rope_parameters", config)["rope_theta"] = 500.0

    report = tml.align(changed(folder, tmp_path / "theta", theta), suite=suite)
    assert report.departs.value == "model.rotary_emb"
    departed = {row.value for row in report.values if row.worst > report.tolerance}
    assert "model.layers.0.self_attn.attention" in departed
    assert "model.layers.0.self_attn.q_proj" not in departed


def test_a_wrong_weight_is_named_where_it_is_used(source: tuple[Path, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder, suite = source
    wrong = changed(folder, tmp_path / "weight", lambda config: None)
    weights = load_file(wrong / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0] *= 1.5
    save_file(weights, wrong / "model.safetensors", metadata={"format": "pt"})
    report = tml.align(wrong, suite=suite)
    assert report.departs.value == "model.layers.1.mlp.up_proj"


def test_what_is_taken_as_inputs(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = source
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([IDS[1]])
    out = tmp_path / "a.safetensors"
    for inputs in (IDS[1], ids, np.array(IDS[1]), {"input_ids": ids}, [{"input_ids": ids}]):
        assert tml.torch.carve(model, inputs, out=out, modules=r"mlp$").prompts == 1
    assert tml.align(folder, suite=out).passed
    with pytest.raises(tml.InvalidInput, match="no inputs"):
        tml.torch.carve(model, [], out=out)
    with pytest.raises(tml.InvalidInput, match="expected"):
        tml.torch.carve(model, {"input_ids": torch.tensor([[1, 2], [3, 4]])}, out=out)
    with pytest.raises(tml.Unsupported):
        tml.torch.carve(model, IDS, out=tmp_path / "b.safetensors", modules="nothing like this")
    assert not (tmp_path / "b.safetensors").exists()
