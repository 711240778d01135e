//! Cases about buffers: contents, handles, bounds, limits, accounting.
//!
//! Refused calls must change nothing; each case ends by looking at the contents.

use super::bench::{Bench, Check, bytes_of, equal, expect_refusal, fail, skip, words_of};
use crate::{BufferId, ErrorKind};

/// Memory that was used before must be cleared too.
pub(super) fn start_zeroed(b: &mut Bench<'_>) -> Check {
    for round in 0..3 {
        let id = b.create_zeroed("zeroed", 40_000)?;
        b.holds(&format!("new buffer of round {round}"), id, &[0; 10_000])?;
        // Dirty memory that the next round's buffer may get.
        b.device.write(id, 0, &[0xff; 40_000])?;
        b.device.wait()?;
        b.destroy_buffer(id)?;
    }
    let partly = b.create_zeroed("partly written", 64)?;
    b.device.write(partly, 16, &bytes_of(&[7]))?;
    let mut expected = [0; 16];
    expected[4] = 7;
    b.holds("the rest of a partly written buffer", partly, &expected)
}

/// A destroyed handle and one that never was.
pub(super) fn bad_handles(b: &mut Bench<'_>) -> Check {
    let id = b.create_zeroed("gone", 16)?;
    b.destroy_buffer(id)?;
    let kinds = &[ErrorKind::InvalidInput];
    for bad in [id, BufferId(u64::MAX)] {
        expect_refusal("destroying an unknown buffer", kinds, b.device.destroy_buffer(bad))?;
        expect_refusal("writing an unknown buffer", kinds, b.device.write(bad, 0, &[0; 4]))?;
        expect_refusal("reading an unknown buffer", kinds, b.device.read(bad, 0, &mut [0; 4]))?;
    }
    let other = b.create_zeroed("another", 16)?;
    // A stale handle could otherwise reach somebody else's buffer.
    if other == id { fail("the handle of a destroyed buffer was used again") } else { Ok(()) }
}

/// Writes are of whole words; reads may begin and end anywhere.
pub(super) fn write_and_read_at_offsets(b: &mut Bench<'_>) -> Check {
    let words: Vec<u32> = (0..1000u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let id = b.create_holding("pattern", &words)?;
    let mut expected = words.clone();
    // The first and the last word, overlapping writes, and writes of nothing.
    for (offset, len) in [(0, 1), (999, 1), (100, 50), (120, 10), (0, 0), (1000, 0)] {
        let patch: Vec<u32> = (0..len).map(|i| 0xabcd_0000 + offset * 16 + i).collect();
        b.device.write(id, u64::from(offset) * 4, &bytes_of(&patch))?;
        expected[offset as usize..(offset + len) as usize].copy_from_slice(&patch);
    }
    b.holds("the buffer after all writes", id, &expected)?;
    let expected = bytes_of(&expected);
    for (offset, len) in
        [(0, 4000), (4, 8), (3996, 4), (0, 0), (4000, 0), (1, 1), (3, 6), (397, 1203), (3999, 1)]
    {
        let mut out = vec![0x5a; len];
        b.device.read(id, offset as u64, &mut out)?;
        if out != expected[offset..offset + len] {
            return fail(format!("a read of {len} bytes at offset {offset} is wrong"));
        }
    }
    Ok(())
}

/// The one exception: a write may end where its buffer ends.
pub(super) fn write_alignment(b: &mut Bench<'_>) -> Check {
    let id = b.create_zeroed("ten bytes", 10)?;
    b.device.write(id, 0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])?;
    b.device.write(id, 8, &[11, 12])?;
    let mut out = [0; 10];
    b.device.read(id, 0, &mut out)?;
    if out != [1, 2, 3, 4, 5, 6, 7, 8, 11, 12] {
        return fail(format!("writes that end at a buffer's end gave {out:?}"));
    }
    let kinds = &[ErrorKind::InvalidInput];
    expect_refusal("a write at offset 2", kinds, b.device.write(id, 2, &[0; 4]))?;
    expect_refusal("a write of 3 bytes before the end", kinds, b.device.write(id, 0, &[0; 3]))?;
    Ok(())
}

/// Sums of offset and length that overflow are among them.
pub(super) fn bounds(b: &mut Bench<'_>) -> Check {
    let id = b.create_holding("sixteen bytes", &[1, 2, 3, 4])?;
    let kinds = &[ErrorKind::InvalidInput];
    for (offset, len) in [(0, 20), (16, 4), (12, 8), (u64::MAX - 3, 8), (1 << 40, 4)] {
        let what = format!("{len} bytes at offset {offset} of 16");
        expect_refusal(&format!("a write of {what}"), kinds, b.device.write(id, offset, &vec![9; len]))?;
        expect_refusal(&format!("a read of {what}"), kinds, b.device.read(id, offset, &mut vec![9; len]))?;
    }
    b.holds("a buffer after refused writes", id, &[1, 2, 3, 4])
}

/// Refused by size, without an attempt to allocate.
pub(super) fn above_the_limit(b: &mut Bench<'_>) -> Check {
    let max = b.device.info().limits.max_buffer_size;
    for size in [max.saturating_add(4), u64::MAX] {
        let what = format!("a buffer of {size} bytes where {max} are allowed");
        expect_refusal(&what, &[ErrorKind::Unsupported], b.device.create_buffer("too large", size))?;
    }
    let id = b.create_holding("small", &[5])?;
    b.holds("a buffer made after a refused one", id, &[5])
}

/// Empty tensors exist.
pub(super) fn of_no_bytes(b: &mut Bench<'_>) -> Check {
    let id = b.create_zeroed("empty", 0)?;
    b.device.write(id, 0, &[])?;
    b.device.read(id, 0, &mut [])?;
    expect_refusal(
        "a read of an empty buffer",
        &[ErrorKind::InvalidInput],
        b.device.read(id, 0, &mut [0; 4]),
    )?;
    Ok(())
}

/// Sizes count rounded up to whole words.
pub(super) fn memory_accounting(b: &mut Bench<'_>) -> Check {
    let (before, _) = b.device.memory();
    let first = b.create_zeroed("first", 1000)?;
    let second = b.create_zeroed("second", 2001)?;
    // What the device itself holds is not known, so that only differences count.
    let used = b.device.memory().0 - before;
    if used != 1000 + 2004 {
        return fail(format!("buffers of 1000 and 2001 bytes count {used}, expected 3004"));
    }
    b.destroy_buffer(first)?;
    b.destroy_buffer(second)?;
    let (after, peak) = b.device.memory();
    if after == before && peak >= before + 3004 {
        Ok(())
    } else {
        fail(format!("after freeing all, {after} bytes in use and a peak of {peak}; before, {before} in use"))
    }
}

/// The size of a weight of a model, not of a test.
pub(super) fn large_round_trip(b: &mut Bench<'_>) -> Check {
    const BYTES: usize = 64 << 20;
    let max = b.device.info().limits.max_buffer_size;
    if max < BYTES as u64 {
        return skip(format!("the largest buffer is {max} bytes"));
    }
    let words: Vec<u32> = (0..BYTES as u32 / 4).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let id = b.create_holding("large", &words)?;
    let mut out = vec![0; BYTES];
    b.device.read(id, 0, &mut out)?;
    equal("64 MiB written and read", &words_of(&out), &words)
}
