// Rows of heads where they are kept: row t of head h of element n of the batch is one of the rows that are cached before the
// new ones, one of the LENGTH new rows of x, or zeros behind them. A bias is added to new rows, and their first 2 PAIRS elements are turned
// in pairs (a, b) to (a cos - b sin, a sin + b cos).
override COUNT: u32; // elements of y
override HEADS: u32;
override SIZE: u32; // elements of a row of a head
override LENGTH: u32; // new rows
override ROOM: u32; // rows of y
override KEEPS: u32; // 1: y has the cached rows too
override CACHED: u32; // rows that `past` has room for
override BEFORE: u32; // rows before the new ones, unless HAS_LENGTHS
override HAS_LENGTHS: u32; // 1: lengths[n] + 1 rows are there with the new ones
override X_FROM: u32; // first element of x, and elements from one to the next of the batch, the heads, the rows
override X_BATCH: u32;
override X_HEAD: u32;
override X_ROW: u32;
override Y_FROM: u32; // as those of x
override Y_BATCH: u32;
override Y_HEAD: u32;
override Y_ROW: u32;
override PAST_FROM: u32;
override HAS_ADDED: u32;
override ADDED_FROM: u32; // first element of the bias, of all heads
override PAIRS: u32;
override INTERLEAVED: u32; // 1: pairs are neighbours, 0: PAIRS apart
override ANGLES: u32; // rows of cosines and sines
override POSITIONS: u32; // rows of angles: 0: one for each row of each n, 1: listed, 2: counted from the first listed, 3: from `before`

@group(0) @binding(0) var<storage, read> x: array<given>;
@group(0) @binding(1) var<storage, read> past: array<act>; // [batch, HEADS, CACHED, SIZE]; not read unless KEEPS
@group(0) @binding(2) var<storage, read> cosines: array<act>; // [ANGLES, PAIRS]; not read if PAIRS is 0
@group(0) @binding(3) var<storage, read> sines: array<act>;
@group(0) @binding(4) var<storage, read> positions: array<u32>; // of 64 bits; read if POSITIONS is 1 or 2
@group(0) @binding(5) var<storage, read> lengths: array<u32>; // not read unless HAS_LENGTHS
@group(0) @binding(6) var<storage, read> added: array<act>; // not read unless HAS_ADDED
@group(0) @binding(7) var<storage, read_write> y: array<act_out>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

// Rows before the new ones.
fn before(n: u32) -> u32 {
    if HAS_LENGTHS == 0u {
        return BEFORE;
    }
    let all = clamp(bitcast<i32>(lengths[n]), -1, 0x3fffffff) + 1;
    return u32(clamp(all - i32(LENGTH), 0, i32(CACHED)));
}

// The row of angles of new row s.
fn angle(n: u32, s: u32) -> u32 {
    var row = n * LENGTH + s;
    if POSITIONS == 1u || POSITIONS == 2u {
        let at = 2u * select(0u, row, POSITIONS == 1u);
        row = u32(max(narrowed(positions[at], positions[at + 1u]), 0)) + select(s, 0u, POSITIONS == 1u);
    }
    if POSITIONS == 3u {
        row = before(n) + s;
    }
    return min(row, ANGLES - 1u);
}

fn new_element(n: u32, h: u32, s: u32, d: u32) -> f32 {
    var v = f32(x[X_FROM + n * X_BATCH + h * X_HEAD + s * X_ROW + d]);
    if HAS_ADDED == 1u {
        v += f32(added[ADDED_FROM + h * SIZE + d]);
    }
    return v;
}

fn turned(n: u32, h: u32, s: u32, d: u32) -> f32 {
    if d >= 2u * PAIRS {
        return new_element(n, h, s, d);
    }
    let second = select(u32(d >= PAIRS), d & 1u, INTERLEAVED == 1u);
    let stride = select(PAIRS, 1u, INTERLEAVED == 1u);
    let pair = select(d - second * PAIRS, d >> 1u, INTERLEAVED == 1u);
    let first = d - second * stride;
    let a = new_element(n, h, s, first);
    let b = new_element(n, h, s, first + stride);
    let at = angle(n, s) * PAIRS + pair;
    let cosine = f32(cosines[at]);
    let sine = f32(sines[at]);
    return select(a * cosine - b * sine, a * sine + b * cosine, second == 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= COUNT {
            continue;
        }
        let d = e % SIZE;
        let t = e / SIZE % ROOM;
        let h = e / SIZE / ROOM % HEADS;
        let n = e / SIZE / ROOM / HEADS;
        let kept = select(0u, before(n), KEEPS == 1u);
        let to = Y_FROM + n * Y_BATCH + h * Y_HEAD + t * Y_ROW + d;
        if t < kept {
            y[to] = to_out(f32(past[PAST_FROM + ((n * HEADS + h) * CACHED + t) * SIZE + d]));
        } else if t - kept < LENGTH {
            y[to] = to_out(turned(n, h, t - kept, d));
        } else {
            y[to] = to_out(0.0);
        }
    }
}
