//! Tensors and their types for the wire.

use crate::wire;
use bytes::Bytes;
use tapml_graph::{Tensor, TensorType};

/// A tensor's type, for the wire.
pub(super) fn wire_type(tensor: &Tensor) -> wire::Tensor {
    let shape = tensor.shape().iter().map(|&size| size as u64).collect();
    wire::Tensor { dtype: tensor.dtype().name().into(), shape, ..wire::Tensor::default() }
}

/// A tensor that travels with a call.
pub(super) fn wire_tensor(tensor: &Tensor) -> wire::Tensor {
    wire::Tensor { data: Bytes::copy_from_slice(tensor.bytes()), ..wire_type(tensor) }
}

/// The type of an output.
pub(super) fn output_type(ty: &TensorType) -> wire::Tensor {
    wire::Tensor {
        dtype: ty.dtype.name().into(),
        shape: ty.shape.iter().filter_map(|size| size.as_const()).collect(),
        ..wire::Tensor::default()
    }
}

/// An input or output that a call leaves out.
pub(super) fn absent() -> wire::Tensor {
    wire::Tensor { absent: true, ..wire::Tensor::default() }
}
