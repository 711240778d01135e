"""Arrays in and out."""

from __future__ import annotations

import numpy as np
import pytest

import tapml as tml


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32", "uint8"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4), (0, 4)])
def test_arrays_come_back_as_they_were(emulator: tml.Device, dtype: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(np.prod(shape, dtype=int)) * 7 % 251).astype(dtype).reshape(shape)
    found = tml.tensor(values, emulator)
    assert (found.shape, found.dtype, found.nbytes) == (shape, dtype, values.nbytes)
    np.testing.assert_array_equal(found.numpy(), values)
    np.testing.assert_array_equal(np.from_dlpack(found), values)
    assert found.numpy().flags.writeable


def test_any_layout_is_taken(emulator: tml.Device) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = values.copy()
    read_only.flags.writeable = False
    for array in (values.T, values[::2, 1::3], np.asfortranarray(values), values.astype(">f4"), read_only):
        np.testing.assert_array_equal(tml.tensor(array, emulator).numpy(), array)


def test_numbers_of_python_get_dtypes_of_kernels(emulator: tml.Device) -> None:
    assert tml.tensor([[1.5, 2.0]], emulator).dtype == "float32"
    assert tml.tensor([1, 2], emulator).dtype == "int32"
    assert tml.tensor([1, 2], emulator, dtype="uint32").dtype == "uint32"
    assert tml.tensor(np.array([1.0, 2.0]), emulator, dtype="f16").dtype == "float16"
    for wrong in (np.array([1.0]), np.array([1]), np.array([True]), np.array([1j])):
        with pytest.raises(tml.InvalidInput, match="kernels have no"):
            tml.tensor(wrong, emulator)
    with pytest.raises(tml.InvalidInput, match="do not fit"):
        tml.tensor([1 << 40], emulator)
    with pytest.raises(tml.InvalidInput, match="do not fit"):
        tml.tensor(np.array([-1]), emulator, dtype="uint32")


def test_allocated_memory_is_zero_and_can_be_written(emulator: tml.Device) -> None:
    found = tml.allocate((2, 3), np.float32, emulator)
    assert not found.numpy().any() and len(found) == 2 and found.size == 6
    found.write(np.full((2, 3), 2.5, np.float32))
    assert (np.asarray(found) == 2.5).all()
    with pytest.raises(tml.InvalidInput, match="the tensor is"):
        found.write(np.zeros((3, 2), np.float32))
    with pytest.raises(tml.InvalidInput, match="negative"):
        tml.allocate(-1, "float32", emulator)
    with pytest.raises(tml.InvalidInput, match="unknown dtype"):
        tml.allocate(1, "float8", emulator)
    assert found.to("emulator").device != emulator
    assert (found.to("emulator").numpy() == 2.5).all()


def test_memory_is_freed_with_the_tensor(emulator: tml.Device) -> None:
    before = emulator.memory[0]
    for _ in range(20):
        tml.allocate(1000, "float32", emulator)
    assert emulator.memory[0] == before


def test_the_array_is_read_where_it_is(emulator: tml.Device) -> None:
    """No copy of a large array is made on the way in: Python's memory does not grow by it."""
    import tracemalloc

    values = np.zeros(1 << 20, np.float32)
    tracemalloc.start()
    tensor = tml.tensor(values, emulator)
    assert tracemalloc.get_traced_memory()[1] < values.nbytes // 8
    tracemalloc.reset_peak()
    tensor.numpy()
    assert tracemalloc.get_traced_memory()[1] < values.nbytes * 1.2, "one array, the result"
    tracemalloc.stop()


def test_tensors_of_pytorch(emulator: tml.Device) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for given in (values, values.T, values.clone().requires_grad_(), values.to(torch.float16)):
        found = tml.tensor(given, emulator).torch()
        assert found.dtype == given.dtype and torch.equal(found, given.detach())
    half = values.to(torch.bfloat16)
    found = tml.tensor(half, emulator)
    assert found.dtype == "bfloat16" and torch.equal(found.torch(), half)
    np.testing.assert_array_equal(found.numpy().astype(np.float32), values.numpy())
    with pytest.raises(tml.InvalidInput, match="kernels have no int64"):
        tml.tensor(torch.arange(3), emulator)
    assert tml.tensor(torch.arange(3), emulator, dtype="int32").dtype == "int32"
