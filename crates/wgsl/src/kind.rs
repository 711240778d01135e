//! The scalar types of WGSL kernels.
//!
//! Abstract numbers count as the types that WGSL makes of them by default: `f32` and `i32`.

use naga::{Scalar, ScalarKind};

/// A scalar type of WGSL kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of WGSL")]
pub enum Kind {
    F32,
    F16,
    I32,
    U32,
    Bool,
}

impl Kind {
    /// The kind of a naga scalar; `None` for widths that WGSL kernels do not have.
    pub fn from_scalar(scalar: Scalar) -> Option<Kind> {
        Some(match (scalar.kind, scalar.width) {
            (ScalarKind::Float, 4) | (ScalarKind::AbstractFloat, _) => Kind::F32,
            (ScalarKind::Float, 2) => Kind::F16,
            (ScalarKind::Sint, 4) | (ScalarKind::AbstractInt, _) => Kind::I32,
            (ScalarKind::Uint, 4) => Kind::U32,
            (ScalarKind::Bool, _) => Kind::Bool,
            _ => return None,
        })
    }

    /// Whether it is a floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Kind::F32 | Kind::F16)
    }
}
