//! How weights are stored that `gemv.cu` reads.

use tapml_graph::packing::Code;
use tapml_graph::{DType, Packing, TensorType};

/// Elements that share a scale where nothing else is said.
pub const GROUP: u32 = 32;

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f16, in one array.
    F16,
    /// bf16, in one array.
    BF16,
    /// 4 bits in groups of so many elements, with zero points of their own or, where groups are shorter than 64, without.
    Four {
        /// Elements that share a scale: 32, 64 or 128.
        group: u32,
        /// Whether groups have zero points of their own.
        zeros: bool,
    },
    /// Integers of 8 bits in groups of [`GROUP`].
    Eight,
    /// Numbers of 8 bits.
    /// They are E4M3 in groups of [`GROUP`].
    Float,
}

impl Format {
    /// The format of a weight of this type; `None` if the kernel does not read it.
    pub fn from_type(weight: &TensorType) -> Option<Format> {
        let Packing { code, group, zeros } = match weight.dtype {
            DType::F16 => return Some(Format::F16),
            DType::BF16 => return Some(Format::BF16),
            other => other.packing()?,
        };
        match (code, group, zeros) {
            (Code::E4m3, GROUP, false) => Some(Format::Float),
            (Code::Int4, GROUP, false) | (Code::Int4, 64 | 128, _) => Some(Format::Four { group, zeros }),
            (Code::Int8, GROUP, false) => Some(Format::Eight),
            _ => None,
        }
    }

    /// The kernel's `FORMAT`.
    pub fn code(self) -> u32 {
        match self {
            Format::F16 => 1,
            Format::BF16 => 2,
            Format::Four { .. } => 4,
            Format::Eight => 8,
            Format::Float => 9,
        }
    }

    /// Elements that share a scale, and whether they share a zero point of their own.
    pub fn groups(self) -> (u32, bool) {
        match self {
            Format::Four { group, zeros } => (group, zeros),
            _ => (GROUP, false),
        }
    }

    /// Arrays that a weight is stored in.
    pub fn arrays(self) -> usize {
        match self {
            Format::F16 | Format::BF16 => 1,
            Format::Four { zeros, .. } => 2 + usize::from(zeros),
            Format::Eight | Format::Float => 2,
        }
    }

    /// Elements of a row that a warp takes at a time, and bytes of 16 rows of them.
    ///
    /// A stage is 128 bytes of each of 16 rows, with the scales and zero points of these elements.
    pub fn stage(self) -> (u32, u32) {
        match self {
            Format::F16 | Format::BF16 => (64, 2048),
            Format::Four { group, zeros } => (256, 2048 + 16 * 2 * (256 / group) * (1 + u32::from(zeros))),
            Format::Eight | Format::Float => (128, 2048 + 128),
        }
    }

    /// Whether rows of so many elements can be read: whole stages, or, where scales allow, half a stage at the end.
    pub fn fits(self, k: u32) -> bool {
        match self {
            Format::Four { group: GROUP, zeros: false } => k.is_multiple_of(128),
            _ => k.is_multiple_of(self.stage().0),
        }
    }

    /// Stages of a row.
    pub fn stages(self, k: u32) -> u32 {
        k.div_ceil(self.stage().0)
    }
}
