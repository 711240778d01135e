"""Modules of every sort, compiled and called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tapml as tml


def function(device: tml.Device, module: tml.Module, **options: object) -> tml.Function:
    return tml.upload(tml.compile(module, device, **options), device).get_function(module.name)


def test_an_operator_takes_arrays_and_gives_tensors(emulator: tml.Device) -> None:
    x = np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32)
    weight = np.linspace(0.5, 1.5, 64, dtype=np.float32)
    norm = function(emulator, tml.op("rms_norm", "f32[n,64]", weight, eps=1e-5, name="norm"))
    assert [a.output for a in norm.arguments] == [False, False, True]
    expected = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(norm(x, weight).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert emulator.findings() == []


def test_wrong_calls_are_refused(emulator: tml.Device) -> None:
    add = function(emulator, tml.op("add", "f32[n,4]", "f32[n,4]"))
    a = tml.tensor(np.ones((2, 4), np.float32), emulator)
    with pytest.raises(tml.InvalidInput, match="1 arguments, expected 3"):
        add(a)
    with pytest.raises(tml.InvalidInput, match="is an output"):
        add(a, a, np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match="must be"):
        add(a, np.ones((3, 4), np.float32))
    elsewhere = tml.tensor(np.ones((2, 4), np.float32), "emulator")
    with pytest.raises(tml.InvalidInput, match="is on"):
        add(a, elsewhere)


def test_what_does_not_exist_is_answered_with_what_does(emulator: tml.Device) -> None:
    with pytest.raises(tml.Unsupported) as caught:
        tml.op("rmsnorm", "f32[n,4]")
    assert "rms_norm" in caught.value.hint
    with pytest.raises(tml.InvalidInput, match="eps"):
        tml.op("rms_norm", "f32[n,4]", "f32[4]", epsilon=1e-5)
    library = tml.upload(tml.compile(tml.op("silu", "f32[4,4]"), emulator), emulator)
    with pytest.raises(tml.InvalidInput) as missing:
        library["gelu"]
    assert "silu" in missing.value.hint


def test_a_graph_with_weights_remembers(emulator: tml.Device) -> None:
    text = """graph scan
input x: f32[n,4]
weight w: f32[2,4]
y: f32[n,2] = linear(x, w)
state s: f32[p,2] -> all
all: f32[n+p,2] = append(s, y)
output all = all
"""
    w = np.arange(8, dtype=np.float32).reshape(2, 4)
    module = tml.graph(text, {"w": w})
    assert module.ops == {"linear": 1, "append": 1}
    scan = function(emulator, module)
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    scan(x[:2])
    np.testing.assert_allclose(scan(x[2:]).numpy(), x @ w.T, rtol=1e-5)
    assert scan.position == 3
    scan.reset()
    assert scan(x[:1]).shape == (1, 2)
    with pytest.raises(tml.InvalidInput, match="missing"):
        tml.graph(text)


SAXPY = """@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
override alpha: f32 = 1.0;
@compute @workgroup_size(64) fn saxpy(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&x) { y[id.x] = alpha * x[id.x] + y[id.x]; }
}
"""


def test_a_kernel_of_ones_own(emulator: tml.Device, tmp_path: Path) -> None:
    file = tmp_path / "saxpy.wgsl"
    file.write_text(SAXPY)
    for source in (SAXPY, file, str(file)):
        saxpy = function(emulator, tml.kernel(source, ["f32[n]", "f32[n]"], constants={"alpha": 3}))
        x, y = np.arange(100, dtype=np.float32), tml.tensor(np.ones(100, np.float32), emulator)
        saxpy(x, y)
        np.testing.assert_array_equal(y.numpy(), 3 * x + 1)
    with pytest.raises(tml.CompileError) as caught:
        tml.kernel(SAXPY.replace("alpha *", "beta *"), ["f32[n]", "f32[n]"])
    assert caught.value.details["line"] == "5"
    assert "beta" in str(caught.value)


def test_allocated_zeros_may_be_read(emulator: tml.Device) -> None:
    saxpy = function(emulator, tml.kernel(SAXPY, ["f32[n]", "f32[n]"], constants={"alpha": 3}))
    y = tml.allocate(100, "float32", emulator)
    saxpy(np.ones(100, np.float32), y)
    assert (y.numpy() == 3).all() and emulator.findings() == []


def test_a_kernel_that_reads_beyond_is_found(emulator: tml.Device) -> None:
    wrong = SAXPY.replace("if id.x < arrayLength(&x) ", "")
    saxpy = function(emulator, tml.kernel(wrong, ["f32[n]", "f32[n]"]))
    saxpy(np.zeros(100, np.float32), tml.allocate(100, "f32", emulator))
    emulator.wait()
    assert any("out of bounds" in finding for finding in emulator.findings())


def test_a_language_model_decodes_what_it_prefilled(llama: Path) -> None:
    model = tml.load(llama)
    assert (model.architecture, model.vocab) == ("llama", 4096)
    ids = model.encode("Once upon a time there was a little")
    device = tml.emulator()
    library = tml.compile(model, device, context=32, step=8)
    assert library.functions == ["prefill", "decode", "forward"]
    assert library.memory["weights"] > 1 << 20
    remote = tml.upload(library, device)
    prefill, decode = remote["prefill"], remote["decode"]
    whole = prefill(ids).numpy()
    assert whole.shape == (len(ids), model.vocab)
    prefill([int(i) for i in ids[:-1]])
    np.testing.assert_allclose(decode(ids[-1:]).numpy()[0], whole[-1], atol=1e-3)
    assert decode.position == len(ids)
    token = int(whole[-1].argmax())
    assert isinstance(model.decode([token]), str)
    with pytest.raises(tml.InvalidInput, match="context"):
        prefill(np.ones(33, np.uint32))
