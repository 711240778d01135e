//! The sizes that the texts of `product/row` and their launches agree on.

/// Weights that one launch takes at most.
pub const MOST: usize = 3;

/// Invocations of a workgroup.
pub const LANES: u32 = 256;

/// Parts of quads of a workgroup at most.
/// A sum for each of them lies in workgroup memory.
pub const ITEMS: u32 = 64;

/// Sizes of the row in workgroup memory, in units of 16 bytes.
pub const POOLS: [u32; 4] = [256, 512, 1024, 2048];

/// Sizes of the row as integers in workgroup memory, in octets.
pub const ROW_SIZES: [u32; 6] = [128, 256, 512, 1024, 1408, 1792];
