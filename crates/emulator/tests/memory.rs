//! Memory layouts, address spaces, atomics and subgroups.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bits};

#[test]
fn host_layouts_of_structs_matrices_and_arrays() {
    let text = "
        struct Inner { a: f32, b: vec3<f32>, c: u32 }
        struct Outer { x: u32, inner: array<Inner, 2>, m: mat3x3<f32>, n: mat2x2<f32>, tail: array<vec2<f32>> }
        @group(0) @binding(0) var<storage, read> s: Outer;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i == 0u) {
                y[0] = f32(s.x);
                y[1] = s.inner[1].b.z;
                y[2] = f32(s.inner[0].c);
                y[3] = s.m[2].y;
                y[4] = s.n[1].x;
                y[5] = f32(arrayLength(&s.tail));
                let copy = s.inner[1];
                y[6] = copy.a + f32(copy.c);
            }
            y[8u + i] = s.tail[i % 3u].y + s.inner[i % 2u].b[i % 3u] + s.m[i % 3u][1];
        }";
    // Byte offsets: x 0, inner 16 (stride 32: a 0, b 16, c 28), m 80 (columns of 16), n 128, tail 144 (stride 8).
    let mut words = vec![0_u32; 42];
    words[0] = 9;
    let mut put = |byte: usize, v: f32| words[byte / 4] = v.to_bits();
    for i in 0..2 {
        let base = 16 + 32 * i;
        put(base, 100.0 + i as f32);
        (0..3).for_each(|k| put(base + 16 + 4 * k, (10 * i + k) as f32));
    }
    for c in 0..3 {
        (0..3).for_each(|r| put(80 + 16 * c + 4 * r, (1000 * c + 100 * r) as f32));
    }
    for k in 0..4 {
        put(128 + 4 * k, 0.5 + k as f32);
    }
    for k in 0..6 {
        put(144 + 4 * k, 0.125 * k as f32);
    }
    words[(16 + 28) / 4] = 77;
    words[(48 + 28) / 4] = 78;
    let y = Run::new(text, 4, vec![Arg::Read(words), Arg::ReadWrite(vec![0; 12])]).floats(1);
    assert_eq!(y[..7], [9.0, 12.0, 77.0, 2100.0, 2.5, 3.0, 179.0]);
    let tail = |k: usize| 0.125 * (2 * k + 1) as f32;
    let want: Vec<f32> =
        (0..4).map(|i| tail(i % 3) + (10 * (i % 2) + i % 3) as f32 + (1000 * (i % 3) + 100) as f32).collect();
    assert_eq!(y[8..], want);
}

#[test]
fn uniforms_overrides_and_constants() {
    let text = "
        struct Params { scale: vec4<f32>, count: u32, table: array<vec4<u32>, 2> }
        @group(0) @binding(0) var<uniform> params: Params;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @id(7) override FACTOR: f32 = 2.0;
        override DOUBLE: f32 = FACTOR * 2.0;
        override SIZE: u32;
        const TABLE = array<f32, 3>(0.5, 0.25, 0.125);
        var<workgroup> part: array<f32, SIZE * 2>;
        @compute @workgroup_size(SIZE)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(num_workgroups) n: vec3<u32>) {
            part[i + SIZE] = f32(i);
            let t = TABLE;
            y[i] = params.scale[i % 4u] * DOUBLE + part[i + SIZE] + t[i % 3u] + f32(params.table[1].y + params.count + n.x);
        }";
    let mut words = bits(&[1.0, 2.0, 3.0, 4.0]);
    words.extend([10, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0]);
    let mut run = Run::new(text, 8, vec![Arg::Uniform(words), Arg::ReadWrite(vec![0; 8])]);
    run.constants = vec![("7".into(), 3.0), ("SIZE".into(), 8.0)];
    let by_id = run.floats(1);
    run.constants[0].0 = "FACTOR".into();
    assert_eq!(by_id, run.floats(1));
    for (i, y) in by_id.into_iter().enumerate() {
        let want = (i % 4 + 1) as f32 * 6.0 + i as f32 + [0.5, 0.25, 0.125][i % 3] + 111.0;
        assert_eq!(y, want, "{i}");
    }
}

#[test]
fn atomics_on_storage_and_workgroup_memory() {
    let text = "
        struct Counters { sum: atomic<u32>, low: atomic<i32>, high: atomic<i32>, bits: array<atomic<u32>, 3>, last: atomic<u32> }
        @group(0) @binding(0) var<storage, read_write> c: Counters;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        var<workgroup> local: atomic<u32>;
        var<workgroup> slots: array<atomic<u32>, 4>;
        @compute @workgroup_size(32)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let i = id.x;
            atomicAdd(&c.sum, i);
            atomicMin(&c.low, 5 - i32(i));
            atomicMax(&c.high, i32(i) - 5);
            atomicOr(&c.bits[0], 1u << (i % 32u));
            atomicAnd(&c.bits[1], ~(1u << (i % 32u)));
            atomicXor(&c.bits[i % 3u], 0u);
            atomicSub(&c.last, 1u);
            y[i] = atomicAdd(&local, 2u);
            atomicAdd(&slots[lane % 4u], 1u);
            workgroupBarrier();
            let r = atomicCompareExchangeWeak(&slots[0], 8u, 100u);
            workgroupBarrier();
            if (r.exchanged) { y[64u + id.x / 32u] = r.old_value; }
            y[66u + id.x / 32u] = atomicLoad(&slots[0]) + atomicLoad(&slots[3]);
            if (lane == 0u) { atomicStore(&c.bits[2], 42u); y[68] = atomicExchange(&slots[1], 0u); }
        }";
    let words = vec![0, 0, 0, 0, u32::MAX, 0, 0];
    let (out, _) =
        Run::new(text, 32, vec![Arg::ReadWrite(words), Arg::ReadWrite(vec![0; 69])]).groups(2).run().unwrap();
    let (c, y) = (&out[0], &out[1]);
    assert_eq!(c[0], 64 * 63 / 2);
    assert_eq!((c[1] as i32, c[2] as i32), (5 - 63, 58));
    assert_eq!((c[3], c[4], c[5], c[6] as i32), (u32::MAX, 0, 42, -64));
    for group in 0..2 {
        let mut seen: Vec<u32> = y[32 * group..32 * group + 32].to_vec();
        seen.sort_unstable();
        assert_eq!(seen, (0..32).map(|k| 2 * k).collect::<Vec<_>>());
    }
    assert_eq!(y[64..69], [8, 8, 108, 108, 8]);
}

#[test]
fn half_arrays_in_storage_keep_their_neighbours() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @group(0) @binding(1) var<storage, read_write> v: array<vec4<f16>>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i % 3u == 0u) { y[i] = f16(i); }
            v[i] = v[i].wzyx * 2.0h;
        }";
    let h = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
    let pairs = |f: &dyn Fn(usize) -> f32, n: usize| {
        (0..n).map(|k| h(f(2 * k)) | h(f(2 * k + 1)) << 16).collect::<Vec<_>>()
    };
    let args = vec![Arg::ReadWrite(pairs(&|_| -1.0, 4)), Arg::ReadWrite(pairs(&|k| k as f32, 16))];
    let mut run = Run::new(text, 8, args);
    run.f16 = true;
    let (out, _) = run.run().unwrap();
    assert_eq!(out[0], pairs(&|k| if k % 3 == 0 { k as f32 } else { -1.0 }, 4));
    assert_eq!(out[1], pairs(&|k| (2 * (k / 4 * 4 + 3 - k % 4)) as f32, 16));
}

#[test]
fn workgroup_uniform_load_and_pointers_to_workgroup_memory() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        struct Tile { rows: array<array<u32, 4>, 4>, count: u32 }
        var<workgroup> tile: Tile;
        fn fill(p: ptr<function, u32>, row: u32) -> u32 { *p += row; return *p * 2u; }
        @compute @workgroup_size(4, 4)
        fn main(@builtin(local_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) i: u32) {
            var t = id.x;
            tile.rows[id.y][id.x] = fill(&t, 10u * id.y);
            if (i == 5u) { tile.count = 3u; }
            workgroupBarrier();
            let n = workgroupUniformLoad(&tile.count);
            var sum = 0u;
            for (var k = 0u; k < n; k++) { sum += tile.rows[k][id.x]; }
            let row = &tile.rows[id.y];
            y[i] = sum * 1000u + (*row)[3u - id.x];
        }";
    let mut run = Run::new(text, 4, vec![Arg::ReadWrite(vec![0; 16])]);
    run.workgroup = [4, 4, 1];
    let want: Vec<u32> =
        (0..16).map(|i| (i % 4, i / 4)).map(|(x, y)| (6 * x + 60) * 1000 + 2 * (3 - x + 10 * y)).collect();
    assert_eq!(run.output(0), want);
}

#[test]
fn subgroup_operations() {
    let text = "
        enable subgroups;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32,
                @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_id) group: u32, @builtin(num_subgroups) n: u32) {
            let base = i * 16u;
            y[base] = subgroupAdd(i) * 1000u + size;
            y[base + 1u] = subgroupExclusiveAdd(lane);
            y[base + 2u] = subgroupInclusiveAdd(lane);
            y[base + 3u] = subgroupMax(i) * 1000u + subgroupMin(i);
            y[base + 4u] = subgroupBroadcastFirst(i);
            y[base + 5u] = subgroupBroadcast(i, 3u);
            y[base + 6u] = subgroupShuffle(i, 31u - lane);
            y[base + 7u] = subgroupShuffleXor(i, 5u);
            y[base + 8u] = subgroupShuffleDown(i, 1u);
            y[base + 9u] = subgroupShuffleUp(i, 2u);
            y[base + 10u] = subgroupBallot(lane % 2u == 0u).x;
            y[base + 11u] = select(0u, 1u, subgroupAll(i < 40u)) + select(0u, 2u, subgroupAny(i == 33u));
            y[base + 12u] = group * 10u + n;
            y[base + 13u] = subgroupXor(lane) + subgroupOr(lane) * 100u + subgroupAnd(lane | 64u) * 10000u;
            y[base + 14u] = u32(subgroupMul(select(1.0, 2.0, lane < 3u)));
            if (lane % 2u == 1u) { y[base + 15u] = subgroupAdd(1u) + quadSwapX(i); }
        }";
    let mut run = Run::new(text, 64, vec![Arg::ReadWrite(vec![0; 64 * 16])]);
    run.subgroups = true;
    let y = run.output(0);
    for i in 0..64_u32 {
        let (lane, first) = (i % 32, i / 32 * 32);
        let row = &y[i as usize * 16..];
        let sum: u32 = (first..first + 32).sum();
        let all = first == 0;
        let want = [
            sum * 1000 + 32,
            (0..lane).sum(),
            (0..=lane).sum(),
            (first + 31) * 1000 + first,
            first,
            first + 3,
            first + 31 - lane,
            first + (lane ^ 5),
            if lane < 31 { i + 1 } else { i },
            if lane >= 2 { i - 2 } else { i },
            0x5555_5555,
            if all { 1 } else { 2 },
            first / 32 * 10 + 2,
            3100 + 64 * 10000,
            8,
            if lane % 2 == 1 { 16 + i } else { 0 },
        ];
        assert_eq!(row[..16], want, "invocation {i}");
    }
}

#[test]
fn pointers_private_arrays_and_whole_values() {
    let text = "
        struct Pair { m: mat2x2<f32>, flags: vec2<u32> }
        struct Input {
            @builtin(local_invocation_id) local: vec3<u32>,
            @builtin(workgroup_id) group: vec3<u32>,
            @builtin(local_invocation_index) index: u32,
        }
        @group(0) @binding(0) var<storage, read_write> pairs: array<Pair>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        var<private> history: array<u32, 4>;
        var<workgroup> marks: array<vec2<bool>, 8>;
        fn push(v: u32) { for (var k = 3u; k > 0u; k--) { history[k] = history[k - 1u]; } history[0] = v; }
        fn add(p: ptr<private, array<u32, 4>>, i: u32) -> u32 { return (*p)[i] + (*p)[0]; }
        fn mark(p: ptr<function, vec2<bool>>) { (*p).y = !(*p).y; }
        @compute @workgroup_size(8)
        fn main(input: Input) {
            let i = input.index;
            push(i); push(i * 2u); push(7u);
            var both = vec2<bool>(i > 3u, i % 2u == 0u);
            mark(&both);
            marks[i] = both;
            workgroupBarrier();
            let other = marks[7u - i];
            let p = &pairs[input.local.x];
            var value = *p;
            value.m = transpose(value.m);
            value.m[1] += vec2<f32>(1.0, f32(i));
            (*p) = value;
            (*p).flags[i % 2u] = add(&history, i % 4u);
            y[i] = select(0u, 1u, other.x) + select(0u, 10u, other.y) + 100u * history[(i + 1u) % 4u];
        }";
    let row = |i: u32| [bits(&[1.0, 2.0, 3.0, 4.0 + i as f32]), vec![50, 60]].concat();
    let words: Vec<u32> = (0..8).flat_map(row).collect();
    let args = vec![Arg::ReadWrite(words), Arg::ReadWrite(vec![0; 8])];
    let (out, findings) = Run::new(text, 8, args).options("check=all&threads=1").run().unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
    for i in 0..8_u32 {
        let history = [7, 2 * i, i, 0];
        let pair = &out[0][6 * i as usize..][..6];
        let mut want = bits(&[1.0, 3.0, 2.0 + 1.0, 4.0 + 2.0 * i as f32]);
        want.extend([50, 60]);
        want[4 + i as usize % 2] = history[i as usize % 4] + 7;
        assert_eq!(pair, want, "pair {i}");
        let j = 7 - i;
        let want = u32::from(j > 3) + 10 * (j % 2) + 100 * history[(i as usize + 1) % 4];
        assert_eq!(out[1][i as usize], want, "word {i}");
    }
}
