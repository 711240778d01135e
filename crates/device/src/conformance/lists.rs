//! Cases about command lists: sizes from symbols, order, bindings, and what must be refused.
//!
//! Order is what most of them check: a backend that forgets a barrier fails here.

use super::bench::{Bench, Check, bound, dispatch, expect_refusal, fail};
use crate::{Binding, BindingKind, BufferId, Command, ErrorKind, Extent, KernelId, ListId};
use tapml_graph::{Dim, Symbol, Symbols};

/// Adds 1 to every word it has an invocation for.
const ADD_ONE: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&words) { words[id.x] += 1u; }
}
";

/// Writes a mixture of two neighbours of the source, so that each workgroup needs what another one wrote.
const MIX: &str = "
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> mixed: array<u32>;
@compute @workgroup_size(16)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = arrayLength(&source);
    if id.x < n { mixed[id.x] = source[(id.x + 17u) % n] * 1664525u + source[id.x] + 1013904223u; }
}
";

/// What [`MIX`] computes.
fn mix(words: &[u32]) -> Vec<u32> {
    let n = words.len();
    let one = |i: usize| {
        words[(i + 17) % n].wrapping_mul(1_664_525).wrapping_add(words[i]).wrapping_add(1_013_904_223)
    };
    (0..n).map(one).collect()
}

/// [`ADD_ONE`] as a kernel.
fn add_one(b: &mut Bench<'_>) -> Check<KernelId> {
    let desc = b.desc(&[BindingKind::ReadWrite], [4, 1, 1], ADD_ONE);
    b.kernel(&desc)
}

/// [`MIX`] as a kernel.
fn mixer(b: &mut Bench<'_>) -> Check<KernelId> {
    let desc = b.desc(&[BindingKind::Read, BindingKind::ReadWrite], [16, 1, 1], MIX);
    b.kernel(&desc)
}

/// The symbol of rows.
fn n() -> Dim {
    Dim::symbol(Symbol::N)
}

/// A multiple of a symbol.
fn times(factor: u64, symbol: Symbol) -> Dim {
    Dim::symbol(symbol).checked_mul(factor).unwrap_or_default()
}

/// One list, several values: nothing of an earlier replay may stay.
pub(super) fn symbolic_grid(b: &mut Bench<'_>) -> Check {
    let kernel = add_one(b)?;
    let words = b.create_zeroed("words", 64 * 4)?;
    let list = b.record(&[bound("add", kernel, vec![Binding::whole(words)], Extent::ceil_div(n(), 4))])?;
    let mut expected = [0; 64];
    // Up and down, so that a grid of an earlier replay would show.
    for count in [1u64, 64, 5, 8, 1, 33] {
        b.device.replay(list, &Symbols::np(count, 0))?;
        let reached = count.next_multiple_of(4) as usize;
        expected[..reached].iter_mut().for_each(|w| *w += 1);
    }
    b.holds("words after replays with n = 1, 64, 5, 8, 1, 33", words, &expected)
}

/// A grid with a size of 0 runs nothing, and is no error.
pub(super) fn empty_grid(b: &mut Bench<'_>) -> Check {
    let kernel = add_one(b)?;
    let words = b.create_zeroed("words", 16)?;
    let none = bound("none", kernel, vec![Binding::whole(words)], Extent::from_dim(n()));
    let mut flat = none.clone();
    if let Command::Dispatch { groups, .. } = &mut flat {
        *groups = [Extent::from_dim(1u64), Extent::from_dim(n()), Extent::from_dim(1u64)];
    }
    let list = b.record(&[none, flat])?;
    b.device.replay(list, &Symbols::np(0, 0))?;
    b.holds("words after empty grids", words, &[0; 4])?;
    b.device.replay(list, &Symbols::np(1, 0))?;
    b.holds("words after two dispatches", words, &[2; 4])
}

/// A refused replay leaves the list usable.
pub(super) fn grid_errors(b: &mut Bench<'_>) -> Check {
    let kernel = add_one(b)?;
    let words = b.create_zeroed("words", 16)?;
    let list = b.record(&[bound("add", kernel, vec![Binding::whole(words)], Extent::from_dim(n()))])?;
    let max = u64::from(b.device.info().limits.max_groups_per_dim);
    expect_refusal("an unbound symbol", &[ErrorKind::InvalidInput], b.device.replay(list, &Symbols::new()))?;
    let over = b.device.replay(list, &Symbols::np(max + 1, 0));
    let error = expect_refusal("a grid above the limit", &[ErrorKind::Unsupported], over)?;
    if !error.to_string().contains("add") {
        return fail(format!("the error does not name the dispatch `add`: {error}"));
    }
    b.device.replay(list, &Symbols::np(1, 0))?;
    b.holds("words after refused replays and a good one", words, &[1; 4])
}

/// Copies `4·n` bytes from `4·p` on to offset 8.
fn symbolic_copy(src: BufferId, dst: BufferId) -> Command {
    Command::Copy {
        src,
        src_offset: Extent::from_dim(times(4, Symbol::P)),
        dst,
        dst_offset: Extent::from_dim(8u64),
        len: Extent::from_dim(times(4, Symbol::N)),
    }
}

/// Lengths and offsets change from replay to replay; a length of 0 is allowed.
pub(super) fn symbolic_copies(b: &mut Bench<'_>) -> Check {
    let src = b.create_holding("source", &(100..120).collect::<Vec<_>>())?;
    let dst = b.create_zeroed("destination", 80)?;
    let list = b.record(&[symbolic_copy(src, dst)])?;
    let mut expected = [0; 20];
    for (count, from) in [(3, 0), (0, 20), (18, 2), (1, 19), (2, 7)] {
        b.device.replay(list, &Symbols::np(count, from))?;
        for i in 0..count {
            expected[2 + i as usize] = 100 + (from + i) as u32;
        }
    }
    b.holds("the destination of symbolic copies", dst, &expected)
}

/// Sizes that symbols give are checked at each replay; constant ones there or when the list is recorded.
pub(super) fn copy_errors(b: &mut Bench<'_>) -> Check {
    let src = b.create_holding("source", &[1, 2, 3, 4])?;
    let dst = b.create_zeroed("destination", 16)?;
    let list = b.record(&[symbolic_copy(src, dst)])?;
    let kinds = &[ErrorKind::InvalidInput];
    for (count, from, what) in
        [(3, 0, "past the destination"), (2, 3, "past the source"), (1, 1 << 40, "far outside")]
    {
        expect_refusal(&format!("a copy {what}"), kinds, b.device.replay(list, &Symbols::np(count, from)))?;
    }
    let odd = |src_offset, len| Command::Copy {
        src,
        src_offset: Extent::from_dim(src_offset),
        dst,
        dst_offset: Extent::from_dim(0u64),
        len: Extent::from_dim(len),
    };
    for command in [odd(2u64, 4u64), odd(0, 6)] {
        // A device may refuse it at either time.
        let result = b.device.record(&[command]).and_then(|list| {
            let replayed = b.device.replay(list, &Symbols::new());
            b.device.destroy_list(list).and(replayed)
        });
        expect_refusal("a copy of no whole words", kinds, result)?;
    }
    let within = Command::Copy {
        src,
        src_offset: Extent::from_dim(0u64),
        dst: src,
        dst_offset: Extent::from_dim(8u64),
        len: Extent::from_dim(4u64),
    };
    expect_refusal("a copy within one buffer", kinds, b.device.record(&[within]))?;
    b.holds("the destination of refused copies", dst, &[0; 4])
}

/// Fills of a few words, and of more than a grid may have groups in one dimension (65,535 in WebGPU).
pub(super) fn fills(b: &mut Bench<'_>) -> Check {
    let small = b.create_holding("small", &[1, 2, 3])?;
    let large = b.create_zeroed("large", 300_000 * 4)?;
    // A NaN with a payload among them: words must not pass through float registers.
    let words = [0x7fc0_0001, 0, 0xdead_beef];
    for word in words {
        b.run(&[Command::Fill { buffer: small, word }, Command::Fill { buffer: large, word }])?;
        b.holds("a small filled buffer", small, &[word; 3])?;
        b.holds("a large filled buffer", large, &vec![word; 300_000])?;
    }
    b.run(&[Command::Fill { buffer: large, word: 1 }, Command::Fill { buffer: large, word: 2 }])?;
    b.holds("a buffer filled twice", large, &vec![2; 300_000])
}

/// Each reads what all workgroups of the one before wrote.
pub(super) fn dependent_dispatches(b: &mut Bench<'_>) -> Check {
    let kernel = mixer(b)?;
    let mut expected: Vec<u32> = (0..100).collect();
    let first = b.create_holding("first", &expected)?;
    let second = b.create_zeroed("second", 400)?;
    let mut commands = Vec::new();
    // Back and forth between two buffers.
    for i in 0..200 {
        let pair = if i % 2 == 0 { [first, second] } else { [second, first] };
        commands.push(dispatch(&format!("mix {i}"), kernel, &pair, 7));
        expected = mix(&expected);
    }
    b.run(&commands)?;
    b.holds("words after 200 dispatches, each reading what the last one wrote", first, &expected)
}

/// Writes of the host, kernels, copies and fills in one order.
pub(super) fn mixed_order(b: &mut Bench<'_>) -> Check {
    let (adder, mixer) = (add_one(b)?, mixer(b)?);
    let first = b.create_zeroed("first", 80)?;
    let second = b.create_zeroed("second", 80)?;
    let copy = Command::Copy {
        src: second,
        src_offset: Extent::from_dim(0u64),
        dst: first,
        dst_offset: Extent::from_dim(40u64),
        len: Extent::from_dim(40u64),
    };
    let list = b.record(&[
        dispatch("add", adder, &[first], 5),
        dispatch("mix", mixer, &[first, second], 2),
        copy,
        dispatch("add again", adder, &[first], 5),
        Command::Fill { buffer: second, word: 9 },
        dispatch("add to the filled", adder, &[second], 1),
    ])?;
    let mut expected = vec![0u32; 20];
    for round in 0..3u32 {
        let patch = round.wrapping_mul(77);
        // A write of the host takes its place behind all replays before it.
        b.device.write(first, 12, &patch.to_le_bytes())?;
        b.device.replay(list, &Symbols::new())?;
        expected[3] = patch;
        expected.iter_mut().for_each(|w| *w = w.wrapping_add(1));
        let mixed = mix(&expected);
        expected[10..].copy_from_slice(&mixed[..10]);
        expected.iter_mut().for_each(|w| *w = w.wrapping_add(1));
    }
    b.holds("words after writes, dispatches and copies", first, &expected)?;
    let mut filled = [9; 20];
    filled[..4].fill(10);
    b.holds("words after fill and dispatch", second, &filled)
}

/// Lists that are replayed in turn wait for each other.
pub(super) fn two_interleaved(b: &mut Bench<'_>) -> Check {
    let kernel = mixer(b)?;
    let mut expected: Vec<u32> = (5..55).collect();
    let (first, second) = (b.create_holding("first", &expected)?, b.create_zeroed("second", 200)?);
    let forth = b.record(&[dispatch("forth", kernel, &[first, second], 4)])?;
    let back = b.record(&[dispatch("back", kernel, &[second, first], 4)])?;
    for _ in 0..20 {
        b.device.replay(forth, &Symbols::new())?;
        b.device.replay(back, &Symbols::new())?;
        expected = mix(&mix(&expected));
    }
    b.device.wait()?;
    b.holds("words after 20 rounds of two lists", first, &expected)
}

/// The error names the dispatch, because a list has many.
pub(super) fn binding_count(b: &mut Bench<'_>) -> Check {
    let kernel = mixer(b)?;
    let buffers =
        [b.create_zeroed("first", 64)?, b.create_zeroed("second", 64)?, b.create_zeroed("third", 64)?];
    for count in [0, 1, 3] {
        let commands = [dispatch("miscounted", kernel, &buffers[..count], 1)];
        let what = format!("{count} buffers for 2 bindings");
        let error = expect_refusal(&what, &[ErrorKind::InvalidInput], b.device.record(&commands))?;
        if !error.to_string().contains("miscounted") {
            return fail(format!("the error does not name the dispatch `miscounted`: {error}"));
        }
    }
    Ok(())
}

/// A range and its length tell themselves apart: the kernel writes its array's length everywhere.
const LENGTH: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&words) { words[id.x] = arrayLength(&words); }
}
";

/// A size of 0 stands for the rest of the buffer; ranges begin at multiples of the device's alignment.
pub(super) fn binding_ranges(b: &mut Bench<'_>) -> Check {
    let align = u64::from(b.device.info().limits.min_offset_alignment);
    let desc = b.desc(&[BindingKind::ReadWrite], [64, 1, 1], LENGTH);
    let kernel = b.kernel(&desc)?;
    let buffer = b.create_zeroed("ranges", 3 * align + 20)?;
    let part =
        |offset, size| bound("part", kernel, vec![Binding { buffer, offset, size }], Extent::from_dim(16u64));
    b.run(&[part(0, 0), part(align, 8), part(3 * align, 0), part(2 * align, align)])?;
    let row = (align / 4) as usize;
    let mut expected = vec![3 * row as u32 + 5; 3 * row + 5];
    expected[row..row + 2].fill(2);
    expected[3 * row..].fill(5);
    expected[2 * row..3 * row].fill(row as u32);
    b.holds("lengths of bound ranges", buffer, &expected)
}

/// Checked when a list is recorded; no replay is needed to find them.
pub(super) fn binding_errors(b: &mut Bench<'_>) -> Check {
    let kernel = add_one(b)?;
    let align = u64::from(b.device.info().limits.min_offset_alignment);
    let buffer = b.create_zeroed("words", 4 * align)?;
    let gone = b.create_zeroed("gone", 16)?;
    b.destroy_buffer(gone)?;
    let mut bad = vec![
        ("past the end", Binding { buffer, offset: 2 * align, size: 2 * align + 4 }),
        ("from beyond the end", Binding { buffer, offset: 8 * align, size: 4 }),
        ("with an offset that overflows", Binding { buffer, offset: u64::MAX - align + 1, size: align + 4 }),
        ("of a destroyed buffer", Binding::whole(gone)),
    ];
    // No offset of whole words is misaligned otherwise.
    if align > 4 {
        bad.push(("at a misaligned offset", Binding { buffer, offset: 4, size: 4 }));
    }
    for (what, binding) in bad {
        let command = bound("bad", kernel, vec![binding], Extent::from_dim(1u64));
        expect_refusal(
            &format!("a binding {what}"),
            &[ErrorKind::InvalidInput],
            b.device.record(&[command]),
        )?;
    }
    let unknown = dispatch("bad", KernelId(u64::MAX), &[buffer], 1);
    expect_refusal(
        "a dispatch of an unknown kernel",
        &[ErrorKind::InvalidInput],
        b.device.record(&[unknown]),
    )?;
    let fill = Command::Fill { buffer: gone, word: 1 };
    expect_refusal("a fill of a destroyed buffer", &[ErrorKind::InvalidInput], b.device.record(&[fill]))?;
    Ok(())
}

/// Writes the sum of two sources.
const SUM: &str = "
@group(0) @binding(0) var<storage, read> first: array<u32>;
@group(0) @binding(1) var<storage, read> second: array<u32>;
@group(0) @binding(2) var<storage, read_write> sum: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) at: u32) { sum[at] = first[at] + second[at]; }
";

/// WebGPU's rule; other backends must refuse it as well, or kernels would not be portable.
pub(super) fn aliased_writes(b: &mut Bench<'_>) -> Check {
    let align = u64::from(b.device.info().limits.min_offset_alignment);
    let desc = b.desc(&[BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite], [4, 1, 1], SUM);
    let kernel = b.kernel(&desc)?;
    let first = b.create_zeroed("first", 4 * align)?;
    let second = b.create_zeroed("second", 64)?;
    b.device.write(first, 0, &[1; 16])?;
    let kinds = &[ErrorKind::InvalidInput];
    let whole = dispatch("aliased", kernel, &[first, second, first], 1);
    expect_refusal("a buffer read and written in one dispatch", kinds, b.device.record(&[whole]))?;
    // Ranges that do not overlap are refused as well.
    let part = |n| Binding { buffer: first, offset: n * align, size: 16 };
    let apart =
        bound("aliased", kernel, vec![part(0), Binding::whole(second), part(2)], Extent::from_dim(1u64));
    expect_refusal("two ranges of a buffer, one written", kinds, b.device.record(&[apart]))?;
    b.run(&[dispatch("read twice", kernel, &[first, first, second], 1)])?;
    b.holds("a sum of a buffer with itself", second, &[0x0202_0202; 4])
}

/// A struct with the padding that uniform memory asks for.
const UNIFORM: &str = "
struct Params { factor: u32, offset: vec3<u32>, table: array<vec4<u32>, 2>, last: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() {
    out[0] = params.factor;
    out[1] = params.offset.z;
    out[2] = params.table[params.factor % 2u].w;
    out[3] = params.last;
}
";

/// One buffer holds the parameters of several dispatches.
pub(super) fn uniforms_at_offsets(b: &mut Bench<'_>) -> Check {
    let align = u64::from(b.device.info().limits.min_offset_alignment).max(80);
    let align = align.next_multiple_of(u64::from(b.device.info().limits.min_offset_alignment));
    let desc = b.desc(&[BindingKind::Uniform, BindingKind::ReadWrite], [1, 1, 1], UNIFORM);
    let kernel = b.kernel(&desc)?;
    let params = b.create_zeroed("params", 3 * align + 80)?;
    let out = b.create_zeroed("out", 4 * 4 * align)?;
    let mut commands = Vec::new();
    for row in 0..4u32 {
        // factor at 0, offset at 16, table at 32 and 48, last at 64: the layout of the WGSL specification.
        let words: Vec<u32> = (0..20).map(|i| row * 100 + i).collect();
        b.device.write(params, u64::from(row) * align, &super::bench::bytes_of(&words))?;
        let place = |buffer, size| Binding { buffer, offset: u64::from(row) * align, size };
        commands.push(bound("row", kernel, vec![place(params, 80), place(out, 16)], Extent::from_dim(1u64)));
    }
    b.run(&commands)?;
    let step = (align / 4) as usize;
    let found = b.words(out, 4 * step)?;
    for row in 0..4u32 {
        let base = row * 100;
        let at = row as usize * step;
        let expected = [base, base + 6, base + 11 + 4 * (base % 2), base + 16];
        super::bench::equal(&format!("uniforms of row {row}"), &found[at..at + 4], &expected)?;
    }
    Ok(())
}

/// A list outlives its parts but can no longer run.
pub(super) fn destroyed_parts(b: &mut Bench<'_>) -> Check {
    let (adder, doomed) = (add_one(b)?, add_one(b)?);
    let words = b.create_zeroed("words", 16)?;
    let other = b.create_zeroed("other", 16)?;
    let without_kernel =
        b.record(&[dispatch("add", adder, &[words], 1), dispatch("add", doomed, &[words], 1)])?;
    let copy = Command::Copy {
        src: other,
        src_offset: Extent::from_dim(0u64),
        dst: words,
        dst_offset: Extent::from_dim(0u64),
        len: Extent::from_dim(4u64),
    };
    let without_buffer = b.record(&[dispatch("add", adder, &[words], 1), copy])?;
    let whole = b.record(&[dispatch("add", adder, &[words], 1)])?;
    for list in [without_kernel, without_buffer, whole] {
        b.device.replay(list, &Symbols::new())?;
    }
    b.destroy_kernel(doomed)?;
    b.destroy_buffer(other)?;
    for (list, what) in [(without_kernel, "kernel"), (without_buffer, "buffer")] {
        for _ in 0..2 {
            let replayed = b.device.replay(list, &Symbols::new());
            expect_refusal(&format!("a list with a destroyed {what}"), &[ErrorKind::InvalidInput], replayed)?;
        }
    }
    b.device.replay(whole, &Symbols::new())?;
    b.device.wait()?;
    b.holds("words after refused replays", words, &[2, 5, 5, 5])
}

/// A destroyed list and one that never was. An empty list may be replayed.
pub(super) fn bad_handles(b: &mut Bench<'_>) -> Check {
    let list = b.record(&[])?;
    b.device.replay(list, &Symbols::new())?;
    b.destroy_list(list)?;
    for bad in [list, ListId(u64::MAX)] {
        expect_refusal(
            "replaying an unknown list",
            &[ErrorKind::InvalidInput],
            b.device.replay(bad, &Symbols::new()),
        )?;
        expect_refusal("destroying an unknown list", &[ErrorKind::InvalidInput], b.device.destroy_list(bad))?;
    }
    Ok(())
}
