// states[slot of each text] = the last row of the text.
override K: u32; // row length
override TEXTS: u32;
override SLOTS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> texts: array<u32>;
@group(0) @binding(2) var<storage, read> slots: array<u32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        let text = e / K;
        if text >= TEXTS || slots[2u * text + 1u] >= SLOTS {
            continue;
        }
        var row = row_count(symbols);
        while row > 0u && texts[row - 1u] != text {
            row--;
        }
        if row > 0u {
            states[slots[2u * text + 1u] * K + e % K] = f32(x[(row - 1u) * K + e % K]);
        }
    }
}
