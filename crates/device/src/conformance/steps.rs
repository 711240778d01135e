//! Cases about steps: writes, a list and reads in one call.
//!
//! A step is the same as its single calls; devices behind a wire have code of their own for it.

use super::bench::{Bench, Check, expect_refusal, fail};
use crate::{Command, ErrorKind, Extent, Get, ListId, Put};
use tapml_graph::{Dim, Symbol, Symbols};

/// Three buffers of words and a list that copies `4·n` bytes of the first to the third.
fn copier(b: &mut Bench<'_>) -> Check<([crate::BufferId; 3], ListId)> {
    let buffers = [
        b.create_zeroed("source", 16)?,
        b.create_holding("other", &[7, 8, 9])?,
        b.create_zeroed("copied", 16)?,
    ];
    let len = Dim::symbol(Symbol::N).checked_mul(4).unwrap_or_default();
    let [src, _, dst] = buffers;
    let (zero, len) = (Extent::from_dim(0u64), Extent::from_dim(len));
    let list = b.record(&[Command::Copy { src, src_offset: zero.clone(), dst, dst_offset: zero, len }])?;
    Ok((buffers, list))
}

/// Reads of no bytes and of other buffers are among them.
pub(super) fn write_run_read(b: &mut Bench<'_>) -> Check {
    let ([source, other, copied], list) = copier(b)?;
    let mut expected = [0u8; 16];
    // With a count of 0 nothing is copied, and the reads still follow.
    for (count, first) in [(1u64, 10u8), (4, 20), (2, 30), (0, 40)] {
        let (low, high) = ([first; 4], [first + 1; 12]);
        let writes =
            [Put { buffer: source, offset: 0, data: &low }, Put { buffer: source, offset: 4, data: &high }];
        let (mut all, mut none, mut middle) = ([0u8; 16], [0u8; 0], [0u8; 4]);
        let mut reads = [
            Get { buffer: copied, offset: 0, out: &mut all },
            Get { buffer: copied, offset: 4, out: &mut none },
            Get { buffer: other, offset: 4, out: &mut middle },
        ];
        b.device.step(list, &Symbols::np(count, 0), &writes, &mut reads)?;
        // Both writes are done before the list runs.
        let written: Vec<u8> = low.iter().chain(&high).copied().collect();
        expected[..4 * count as usize].copy_from_slice(&written[..4 * count as usize]);
        if all != expected {
            return fail(format!("a step with n = {count}: expected {expected:?}, found {all:?}"));
        }
        if middle != 8u32.to_le_bytes() {
            return fail(format!(
                "the second word of a buffer that no step writes: expected 8, found {middle:?}"
            ));
        }
    }
    // A step may only run; the writes of the step before are still there.
    b.device.step(list, &Symbols::np(4, 0), &[], &mut [])?;
    let words = [40, 41, 41, 41].map(|byte| u32::from_le_bytes([byte; 4]));
    b.holds("what a step without reads has copied", copied, &words)
}

/// Each part of a step can be what is wrong.
pub(super) fn errors(b: &mut Bench<'_>) -> Check {
    let ([source, _, copied], list) = copier(b)?;
    let symbols = Symbols::np(1, 0);
    let invalid = &[ErrorKind::InvalidInput];
    let mut out = [0u8; 20];
    let beyond = Put { buffer: source, offset: 16, data: &[1; 4] };
    let mut word = [0u8; 4];
    let mut one = [Get { buffer: copied, offset: 0, out: &mut word }];
    expect_refusal("a write beyond the buffer", invalid, b.device.step(list, &symbols, &[beyond], &mut one))?;
    expect_refusal("an unbound symbol", invalid, b.device.step(list, &Symbols::new(), &[], &mut one))?;
    let gone = ListId(u64::from(u32::MAX));
    expect_refusal("a list that is not there", invalid, b.device.step(gone, &symbols, &[], &mut one))?;
    let mut all = [Get { buffer: copied, offset: 0, out: &mut out }];
    expect_refusal("a read beyond the buffer", invalid, b.device.step(list, &symbols, &[], &mut all))?;
    let good = Put { buffer: source, offset: 0, data: &[5; 4] };
    b.device.step(list, &symbols, &[good], &mut one)?;
    if word == [5; 4] {
        Ok(())
    } else {
        fail(format!("a step after refused ones: expected {:?}, found {word:?}", [5; 4]))
    }
}
