// states[slot of each text] = the last TAPS - 1 rows of its state with its rows below it. Each invocation moves its column
// upwards row by row, so that no row is overwritten before it has been read.
override K: u32; // row length
override TAPS: u32;
override TEXTS: u32;
override SLOTS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> texts: array<u32>;
@group(0) @binding(2) var<storage, read> slots: array<u32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

fn keep(text: u32, column: u32) {
    let rows = row_count(symbols);
    let held = TAPS - 1u;
    // The last rows of the text, as many as the state has, and the first of them.
    var seen = 0u;
    var row = rows;
    for (var r = rows; r > 0u && seen < held; r--) {
        if texts[r - 1u] == text {
            row = r - 1u;
            seen++;
        }
    }
    if seen == 0u {
        return;
    }
    let old = slots[2u * text];
    for (var to = 0u; to < held; to++) {
        var z = 0.0;
        if to + seen >= held {
            z = f32(x[row * K + column]);
            row++;
            while row < rows && texts[row] != text {
                row++;
            }
        } else if old < SLOTS {
            z = states[(old * held + to + seen) * K + column];
        }
        states[(slots[2u * text + 1u] * held + to) * K + column] = z;
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        let text = e / K;
        if text < TEXTS && slots[2u * text + 1u] < SLOTS {
            keep(text, e % K);
        }
    }
}
