// y = for each row of x the row of the same text before it; for the first one of a text its state, or zeros.
override K: u32; // row length
override TEXTS: u32;
override SLOTS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read> texts: array<u32>;
@group(0) @binding(3) var<storage, read> slots: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

// What stands in column `column` before the first row of a text.
fn before(text: u32, column: u32) -> f32 {
    if text >= TEXTS || slots[2u * text] >= SLOTS {
        return 0.0;
    }
    return states[slots[2u * text] * K + column];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= count {
            continue;
        }
        let text = texts[e / K];
        var row = e / K;
        while row > 0u && texts[row - 1u] != text {
            row--;
        }
        if row == 0u || text >= TEXTS {
            y[e] = to_act(before(text, e % K));
        } else {
            y[e] = x[(row - 1u) * K + e % K];
        }
    }
}
