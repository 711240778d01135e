// Rotated queries; rotated keys, and values, in the rows of the pages that `slots` names.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override SLOTS: u32; // rows of the pages

@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read> angles: array<f32>; // per row: cosines, then sines
@group(0) @binding(4) var<storage, read> slots: array<u32>;
@group(0) @binding(5) var<storage, read_write> rotated: array<act>;
@group(0) @binding(6) var<storage, read_write> keys: array<act>;
@group(0) @binding(7) var<storage, read_write> values: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

// An invocation turns or copies four pairs of elements, which are half a head apart.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let half = HEAD_DIM / 2u;
    let pairs = (HEADS + 2u * KV_HEADS) * half;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= row_count(symbols) * pairs {
            continue;
        }
        let row = e / pairs;
        let head = e % pairs / half;
        let pair = e % half;
        let cosine = angles[row * HEAD_DIM + pair];
        let sine = angles[row * HEAD_DIM + pair + half];
        if head < HEADS {
            let at = (row * HEADS + head) * HEAD_DIM + pair;
            let a = f32(q[at]);
            let b = f32(q[at + half]);
            rotated[at] = to_act(a * cosine - b * sine);
            rotated[at + half] = to_act(b * cosine + a * sine);
            continue;
        }
        let slot = slots[row];
        if slot >= SLOTS {
            continue;
        }
        let kv_head = (head - HEADS) % KV_HEADS;
        let new_row = (row * KV_HEADS + kv_head) * HEAD_DIM + pair;
        let place = (slot * KV_HEADS + kv_head) * HEAD_DIM + pair;
        if head < HEADS + KV_HEADS {
            let a = f32(k[new_row]);
            let b = f32(k[new_row + half]);
            keys[place] = to_act(a * cosine - b * sine);
            keys[place + half] = to_act(b * cosine + a * sine);
        } else {
            values[place] = v[new_row];
            values[place + half] = v[new_row + half];
        }
    }
}
