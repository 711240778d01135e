//! Cases about WGSL itself: what kernels rely on must mean the same on every device. Results here are exact by the WGSL
//! specification: integers, and float operations whose results need no rounding or are correctly rounded.
//!
//! Each case writes what it finds into words that the host computes, too, in Rust. Words are compared
//! exactly. Where several results share a word, each has digits of its own.

use super::bench::{Bench, Check, bits, dispatch, equal, fail, skip};
use crate::{BindingKind, Command, Extent};

/// Each invocation writes, where its own place says, whether its built-in values agree with each other.
const BUILTINS: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(4, 3, 2)
fn main(
    @builtin(global_invocation_id) global: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let size = vec3<u32>(4u, 3u, 2u) * groups;
    let at = global.x + size.x * (global.y + size.y * global.z);
    let ok = all(global == group * vec3<u32>(4u, 3u, 2u) + local) && index == local.x + 4u * (local.y + 3u * local.z);
    out[at] = select(0u, 1u, ok) + 16u * (group.x + 10u * group.y + 100u * group.z) + 65536u * index;
}
";

/// All axes of the grid differ, so that a mix-up shows.
pub(super) fn builtin_values(b: &mut Bench<'_>) -> Check {
    let desc = b.desc(&[BindingKind::ReadWrite], [4, 3, 2], BUILTINS);
    let kernel = b.kernel(&desc)?;
    // 24 invocations in each of 30 workgroups.
    let groups = [3u32, 2, 5];
    let out = b.create_zeroed("out", 24 * 30 * 4)?;
    let Command::Dispatch { label, kernel, bindings, .. } = dispatch("builtins", kernel, &[out], 1) else {
        return fail("a dispatch is a dispatch");
    };
    let grid = groups.map(|g| Extent::from_dim(u64::from(g)));
    b.run(&[Command::Dispatch { label, kernel, bindings, groups: grid }])?;
    let size = [4 * groups[0], 3 * groups[1], 2 * groups[2]];
    let mut expected = Vec::new();
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                let group = x / 4 + 10 * (y / 3) + 100 * (z / 2);
                expected.push(1 + 16 * group + 65536 * (x % 4 + 4 * (y % 3 + 3 * (z % 2))));
            }
        }
    }
    b.holds("built-in values", out, &expected)
}

/// A mirror and a sum over a workgroup. Each step reads what other invocations wrote before the barrier.
const WORKGROUP: &str = "
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
var<workgroup> tile: array<u32, 64>;
var<workgroup> untouched: u32;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32, @builtin(workgroup_id) group: vec3<u32>) {
    tile[at] = words[group.x * 64u + at];
    workgroupBarrier();
    let mirrored = tile[63u - at];
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if at < half { tile[at] += tile[at + half]; }
        workgroupBarrier();
    }
    out[group.x * 64u + at] = mirrored + 1000u * tile[0] + untouched;
}
";

/// Workgroup memory must start as zeros, which `untouched` shows.
pub(super) fn workgroup_memory(b: &mut Bench<'_>) -> Check {
    let words: Vec<u32> = (0..256).map(|i| i * 7 % 101).collect();
    let source = b.create_holding("words", &words)?;
    let out = b.create_zeroed("out", 1024)?;
    let mut desc = b.desc(&[BindingKind::Read, BindingKind::ReadWrite], [64, 1, 1], WORKGROUP);
    // 64 words of `tile`, and one more.
    desc.workgroup_memory = 260;
    let found = b.compute_with(&desc, 4, &[source, out], 256)?;
    let rows = words.chunks(64).flat_map(|row| {
        let sum: u32 = row.iter().sum();
        row.iter().rev().map(move |w| w + 1000 * sum)
    });
    equal("mirrored words and sums of workgroups", &found, &rows.collect::<Vec<_>>())
}

/// Sums, bounds, bits and exchanges, on the buffer and on workgroup memory.
const ATOMICS: &str = "
struct Totals { count: atomic<u32>, least: atomic<i32>, most: atomic<i32>, bits: atomic<u32>, swapped: atomic<u32>, locals: atomic<u32> }
@group(0) @binding(0) var<storage, read_write> totals: Totals;
var<workgroup> local_count: atomic<u32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    atomicAdd(&totals.count, id.x);
    atomicMin(&totals.least, 5 - i32(id.x));
    atomicMax(&totals.most, i32(id.x) - 5);
    atomicOr(&totals.bits, 1u << (id.x % 32u));
    loop {
        let old = atomicLoad(&totals.swapped);
        if atomicCompareExchangeWeak(&totals.swapped, old, old + 3u).exchanged { break; }
    }
    atomicAdd(&local_count, 1u);
    workgroupBarrier();
    if at == 0u { atomicAdd(&totals.locals, atomicLoad(&local_count) * 10u); }
}
";

/// Sums of many workgroups in any order.
pub(super) fn atomics(b: &mut Bench<'_>) -> Check {
    let totals = b.create_zeroed("totals", 24)?;
    let mut desc = b.desc(&[BindingKind::ReadWrite], [32, 1, 1], ATOMICS);
    desc.workgroup_memory = 4;
    let found = b.compute_with(&desc, 8, &[totals], 6)?;
    // Ids are 0 to 255, of eight workgroups.
    let least = (5i32 - 255) as u32;
    equal("atomics of 256 invocations", &found, &[255 * 128, least, 250, u32::MAX, 768, 2560])
}

/// Operands come from a buffer, so that no compiler computes the results.
const INTEGERS: &str = "
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() {
    let a = words[0];
    let b = words[1];
    let s = bitcast<i32>(a);
    let t = bitcast<i32>(b);
    out[0] = a * b;
    out[1] = bitcast<u32>(s / t);
    out[2] = bitcast<u32>(s % t);
    out[3] = bitcast<u32>(s >> 3u);
    out[4] = a >> 3u;
    out[5] = a << 29u;
    out[6] = countOneBits(a) + 100u * countLeadingZeros(b) + 10000u * countTrailingZeros(a);
    out[7] = reverseBits(b);
    out[8] = firstLeadingBit(a) + 100u * firstTrailingBit(a);
    out[9] = bitcast<u32>(clamp(s, -100, 100)) + u32(abs(t));
    out[10] = extractBits(a, 4u, 9u);
    out[11] = insertBits(a, b, 8u, 12u);
    out[12] = bitcast<u32>(dot(vec3<i32>(s, t, 3), vec3<i32>(2, -1, 7)));
    out[13] = select(a, b, s < t) ^ (~a & b);
    out[14] = bitcast<u32>(extractBits(s, 28u, 4u));
    out[15] = bitcast<u32>(-s) + u32(i32(-2.75)) + u32(3.99);
}
";

/// Wrapping, truncation and bit operations as Rust's have them.
pub(super) fn integers(b: &mut Bench<'_>) -> Check {
    let (s, t) = (-123_456_789i32, 1_007i32);
    let (a, w) = (s as u32, t as u32);
    let words = b.create_holding("words", &[a, w])?;
    let out = b.create_zeroed("out", 64)?;
    let found = b.compute(INTEGERS, 1, 1, &[words, out], 16)?;
    let expected = [
        a.wrapping_mul(w),
        (s / t) as u32,
        (s % t) as u32,
        (s >> 3) as u32,
        a >> 3,
        a << 29,
        a.count_ones() + 100 * w.leading_zeros() + 10_000 * a.trailing_zeros(),
        w.reverse_bits(),
        31 - a.leading_zeros() + 100 * a.trailing_zeros(),
        (-100i32 as u32).wrapping_add(1007),
        (a >> 4) & 0x1ff,
        (a & !(0xfff << 8)) | ((w & 0xfff) << 8),
        s.wrapping_mul(2).wrapping_sub(t).wrapping_add(21) as u32,
        w ^ (!a & w),
        (s >> 28) as u32,
        (s.wrapping_neg() as u32).wrapping_add(-2i32 as u32).wrapping_add(3),
    ];
    equal("integer operations", &found, &expected)
}

/// Operands come from a buffer, so that no compiler computes the results.
const FLOATS: &str = "
@group(0) @binding(0) var<storage, read> floats: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1)
fn main() {
    let a = floats[0];
    let b = floats[1];
    out[0] = a + b;
    out[1] = a - b;
    out[2] = a * b;
    out[3] = floor(a) + 10.0 * ceil(a) + 100.0 * trunc(a);
    out[4] = round(floats[2]) + 10.0 * round(floats[3]);
    out[5] = abs(a) + sign(b);
    out[6] = min(a, b) + max(a, b) * 2.0;
    out[7] = clamp(a, -1.0, 1.0) + saturate(b);
    out[8] = f32(u32(floats[4])) + f32(i32(a));
    out[9] = bitcast<f32>(bitcast<u32>(a) & 0x7fffffffu);
    out[10] = f32(4294967295u);
    out[11] = select(a, b, a < b);
    out[12] = dot(vec4<f32>(a, b, 1.0, 2.0), vec4<f32>(2.0, 4.0, 0.5, 0.25));
    let unpacked = unpack2x16float(pack2x16float(vec2<f32>(a, 0.5)));
    out[13] = unpacked.x + unpacked.y;
    out[14] = f32(pack4x8snorm(vec4<f32>(floats[4], a, 0.0, 0.0)));
    out[15] = ldexp(a, 4) + step(b, a);
}
";

/// Only operations whose result the specification fixes.
pub(super) fn floats(b: &mut Bench<'_>) -> Check {
    // Numbers of few bits: sums and products of them need no rounding.
    let (x, y) = (-2.75f32, 0.375f32);
    let words = b.create_holding("floats", &bits(&[x, y, 2.5, -3.5, 1e6]))?;
    let out = b.create_zeroed("out", 64)?;
    let found = b.compute(FLOATS, 1, 1, &[words, out], 16)?;
    let expected = [
        x + y,
        x - y,
        x * y,
        -3.0 + 10.0 * -2.0 + 100.0 * -2.0,
        2.0 + 10.0 * -4.0,
        2.75 + 1.0,
        x + y * 2.0,
        -1.0 + y,
        1e6 - 2.0,
        2.75,
        4_294_967_296.0,
        y,
        2.0 * x + 4.0 * y + 0.5 + 0.5,
        x + 0.5,
        f32::from(0x817fu16),
        x * 16.0,
    ];
    equal("float operations", &found, &bits(&expected))
}

/// Neighbours take other branches and leave loops at other steps: devices run them together.
const CONTROL: &str = "
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

fn collatz(start: u32) -> u32 {
    var n = start;
    var steps = 0u;
    while n > 1u {
        if n % 2u == 0u { n /= 2u; } else { n = 3u * n + 1u; }
        steps++;
        if steps > 200u { return 999u; }
    }
    return steps;
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = words[id.x];
    var total = collatz(word);
    switch word % 5u {
        case 0u: { total += 1000u; }
        case 1u, 2u: {
            if word > 20u { break; }
            total += 2000u;
        }
        default: { total += 3000u; }
    }
    for (var i = 0u; i < word; i++) {
        if i % 3u == 1u { continue; }
        if i > 10u { break; }
        total += 10000u * i;
    }
    var j = 0u;
    loop {
        if j * j > word || (j > 3u && word > 30u) { break; }
        continuing { j++; break if j == 7u; }
    }
    out[id.x] = total + 10000000u * j;
}
";

/// What [`CONTROL`] computes.
fn control(word: u32) -> u32 {
    let (mut n, mut total) = (word, 0);
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        total += 1;
    }
    total += match word % 5 {
        0 => 1000,
        1 | 2 if word > 20 => 0,
        1 | 2 => 2000,
        _ => 3000,
    };
    total += (0..word)
        .take_while(|i| i % 3 == 1 || *i <= 10)
        .filter(|i| i % 3 != 1)
        .map(|i| 10_000 * i)
        .sum::<u32>();
    let stops = |j: &u32| j * j > word || (*j > 3 && word > 30);
    total + 10_000_000 * (0..7).find(stops).unwrap_or(7)
}

/// `while`, `for`, `loop` and `switch`, with `break` and `continue`.
pub(super) fn control_flow(b: &mut Bench<'_>) -> Check {
    let words: Vec<u32> = (0..96).collect();
    let source = b.create_holding("words", &words)?;
    let out = b.create_zeroed("out", 96 * 4)?;
    let found = b.compute(CONTROL, 32, 3, &[source, out], 96)?;
    let expected: Vec<u32> = words.into_iter().map(control).collect();
    equal("branches and loops that differ between invocations", &found, &expected)
}

/// A struct whose fields need padding, in an array.
const LAYOUT: &str = "
struct Inner { a: u32, b: vec3<u32>, c: u32 }
struct Item { head: vec2<u32>, inner: Inner, rows: mat2x3<f32>, tail: array<u32, 3> }
@group(0) @binding(0) var<storage, read> items: array<Item>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let item = items[group.x];
    let at = group.x * 8u;
    out[at] = item.head.y;
    out[at + 1u] = item.inner.a;
    out[at + 2u] = item.inner.b.z;
    out[at + 3u] = item.inner.c;
    out[at + 4u] = bitcast<u32>(item.rows[1][2]);
    out[at + 5u] = item.tail[group.x];
    out[at + 6u] = arrayLength(&items);
    out[at + 7u] = bitcast<u32>(items[group.x].rows[group.x % 2u].y);
}
";

/// Word `i` of the buffer is `i`, so that a field tells where it was read.
pub(super) fn layout_of_structs(b: &mut Bench<'_>) -> Check {
    // Bytes by the WGSL specification: head 0, inner 16 (a 0, b 16, c 28, size 32), rows 48 (columns of 16), tail 80;
    // 92 rounded up to 96 for one item, that is 24 words.
    let words: Vec<u32> = (0..72).collect();
    let items = b.create_holding("items", &words)?;
    let out = b.create_zeroed("out", 96)?;
    let found = b.compute(LAYOUT, 1, 3, &[items, out], 24)?;
    let row = |i: u32| {
        let at = 24 * i;
        [at + 1, at + 4, at + 10, at + 11, at + 18, at + 20 + i, 3, at + 12 + 4 * (i % 2) + 1]
    };
    equal("fields of structs", &found, &[row(0), row(1), row(2)].concat())
}

/// Arrays that are indexed by a value, pointers to locals, and a variable that lives for one invocation.
const LOCALS: &str = "
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
var<private> calls: u32 = 5u;
const FIRST = array<u32, 4>(11u, 13u, 17u, 19u);

fn bump(slot: ptr<function, u32>, by: u32) -> u32 {
    *slot += by;
    calls++;
    return *slot;
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var table = array<u32, 4>();
    var v = vec4<u32>(1u, 2u, 3u, 4u);
    let word = words[id.x];
    for (var i = 0u; i < 4u; i++) { table[(i + word) % 4u] = FIRST[i] + i; }
    v[word % 4u] = 100u;
    let swizzled = v.wzyx;
    var none = 0u;
    var sum = bump(&none, 0u);
    var slot = table[word % 4u];
    sum += bump(&slot, word);
    out[id.x] = sum + 1000u * table[(word + 1u) % 4u] + 100000u * swizzled[0] + 100000000u * (calls - 5u);
}
";

pub(super) fn local_arrays(b: &mut Bench<'_>) -> Check {
    let words: Vec<u32> = (0..8).map(|i| i * 3).collect();
    let source = b.create_holding("words", &words)?;
    let out = b.create_zeroed("out", 32)?;
    let found = b.compute(LOCALS, 8, 1, &[source, out], 8)?;
    let one = |w: &u32| {
        // The first element of the swizzled vector is the last one of `v`.
        let last = if w % 4 == 3 { 100 } else { 4 };
        11 + w + 1000 * 14 + 100_000 * last + 100_000_000 * 2
    };
    equal("local arrays, pointers and private variables", &found, &words.iter().map(one).collect::<Vec<_>>())
}

/// Results are exact in f16, but for 1/3, which is rounded to the nearest.
const HALF: &str = "
@group(0) @binding(0) var<storage, read> halves: array<vec2<f16>>;
@group(0) @binding(1) var<storage, read_write> out: array<f16>;
@compute @workgroup_size(1)
fn main() {
    let a = halves[0];
    out[0] = a.x + a.y;
    out[1] = a.x * a.y;
    out[2] = f16(1.0 / 3.0);
    out[3] = f16(f32(a.x) * 1024.0);
    out[4] = max(a.x, a.y) - 1.0h;
    out[5] = dot(a, vec2<f16>(2.0h, 4.0h));
    out[6] = f16(unpack2x16float(0x3c004000u).x);
    out[7] = abs(min(a.x, 0.0h) - 0.5h);
}
";

/// Two f16 lie in each word, as the storage layout says.
pub(super) fn half_floats(b: &mut Bench<'_>) -> Check {
    if !b.device.info().features.f16 {
        return skip("the device has no f16");
    }
    // 1.5 and -0.25, low half first.
    let halves = b.create_holding("halves", &[0xb400_3e00])?;
    let out = b.create_zeroed("out", 16)?;
    let mut desc = b.desc(&[BindingKind::Read, BindingKind::ReadWrite], [1, 1, 1], HALF);
    desc.needs_f16 = true;
    let found = b.compute_with(&desc, 1, &[halves, out], 4)?;
    // 1.25 and -0.375, 1/3 and 1536, 0.5 and 2, 2 and 0.5.
    equal("f16 operations", &found, &[0xb600_3d00, 0x6600_3555, 0x4000_3800, 0x3800_4000])
}

/// Each operation of subgroups, for sizes that only the device knows.
const SUBGROUPS: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) at: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sum = subgroupAdd(lane + 1u);
    let before = subgroupExclusiveAdd(1u);
    let most = subgroupMax(lane);
    let first = subgroupBroadcastFirst(lane);
    let next = subgroupShuffleXor(lane, 1u);
    let some = subgroupAny(lane == 0u);
    let every = subgroupAll(lane < size);
    var ok = 0u;
    ok |= select(0u, 1u, sum == size * (size + 1u) / 2u);
    ok |= select(0u, 2u, before == lane);
    ok |= select(0u, 4u, most == size - 1u);
    ok |= select(0u, 8u, first == 0u);
    ok |= select(0u, 16u, next == (lane ^ 1u));
    ok |= select(0u, 32u, some && every);
    ok |= select(0u, 64u, subgroupBroadcast(lane * 3u, 2u) == 6u);
    out[at] = ok + 256u * size;
}
";

/// One bit for each operation, so that a failure names it.
pub(super) fn subgroups(b: &mut Bench<'_>) -> Check {
    let Some((least, most)) = b.device.info().features.subgroups else {
        return skip("the device has no subgroup operations");
    };
    let out = b.create_zeroed("out", 256)?;
    let mut desc = b.desc(&[BindingKind::ReadWrite], [64, 1, 1], SUBGROUPS);
    desc.needs_subgroups = true;
    let found = b.compute_with(&desc, 1, &[out], 64)?;
    let size = found[0] / 256;
    if !(least..=most).contains(&size) {
        return fail(format!(
            "subgroups of {size}, outside the range {least} to {most} that the device tells"
        ));
    }
    if size > 64 {
        return skip(format!("subgroups of {size} are larger than the case's workgroup"));
    }
    equal("subgroup operations (one bit each) and size", &found, &[127 + 256 * size; 64])
}
