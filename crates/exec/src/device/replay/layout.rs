//! Where the values of a batch lie: ranges of a few large buffers.

use std::collections::HashMap;

/// The role of a buffer of a batch. A dispatch never binds one buffer for reading and for writing, because values that a
/// kernel may bind differently lie in buffers of different roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Role {
    /// Uniform blocks with the values of symbols.
    Symbols,
    /// Inputs that are no weights.
    Input,
    /// An input so large that it has a buffer of its own.
    Large,
    /// Outputs of this index.
    Output(usize),
    /// Scratch of this index.
    Scratch(usize),
    /// Scratch of this index that is zero at first.
    Zeroed(usize),
}

/// A range: which buffer of its role, first byte, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferRange {
    pub role: Role,
    pub number: usize,
    pub offset: u64,
    pub len: u64,
}

/// Sizes of the buffers of each role, in the order in which they fill.
#[derive(Debug)]
pub(super) struct ReplayLayout {
    /// Bytes in use of each buffer of a role.
    sizes: HashMap<Role, Vec<u64>>,
    /// Of every range, bytes.
    alignment: u64,
    /// Largest buffer, bytes.
    limit: u64,
}

/// A buffer of a batch.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplayBuffer {
    pub role: Role,
    /// Within the role.
    pub number: usize,
    /// Bytes.
    pub size: u64,
}

impl ReplayLayout {
    pub fn new(alignment: u64, limit: u64) -> ReplayLayout {
        ReplayLayout { sizes: HashMap::new(), alignment, limit }
    }

    /// Takes `len` bytes, at least 4 and rounded up to a multiple of 4, in a buffer of this role. A range larger than a
    /// buffer may be gets one of its own, which the device then refuses with its limit.
    pub fn place(&mut self, role: Role, len: u64) -> BufferRange {
        let len = len.max(4).next_multiple_of(4);
        let sizes = self.sizes.entry(role).or_default();
        // `u64::MAX` stands for no buffer yet: the sum then exceeds every limit.
        let offset = sizes.last().map_or(u64::MAX, |last| last.next_multiple_of(self.alignment));
        let end = offset.saturating_add(len);
        if end > self.limit || role == Role::Large {
            sizes.push(len);
            return BufferRange { role, number: sizes.len() - 1, offset: 0, len };
        }
        let number = sizes.len() - 1;
        sizes[number] = end;
        BufferRange { role, number, offset, len }
    }

    /// All buffers.
    pub fn buffers(&self) -> impl Iterator<Item = ReplayBuffer> + '_ {
        let each = |(&role, sizes): (&Role, &Vec<u64>)| {
            sizes
                .iter()
                .enumerate()
                .map(move |(number, &size)| ReplayBuffer { role, number, size })
                .collect::<Vec<_>>()
        };
        self.sizes.iter().flat_map(each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_aligned_disjoint_and_within_the_limit() {
        let mut layout = ReplayLayout::new(256, 1000);
        let places: Vec<BufferRange> =
            [0, 3, 300, 200, 500, 4].map(|len| layout.place(Role::Input, len)).to_vec();
        let flat: Vec<_> = places.iter().map(|p| (p.number, p.offset, p.len)).collect();
        assert_eq!(flat, [(0, 0, 4), (0, 256, 4), (0, 512, 300), (1, 0, 200), (1, 256, 500), (1, 768, 4)]);
        assert_eq!(layout.place(Role::Output(0), 2000).len, 2000);
        let mut buffers: Vec<_> = layout.buffers().collect();
        buffers.sort();
        let buffer = |role, number, size| ReplayBuffer { role, number, size };
        let input = |number, size| buffer(Role::Input, number, size);
        assert_eq!(buffers, [input(0, 812), input(1, 772), buffer(Role::Output(0), 0, 2000)]);
    }
}
