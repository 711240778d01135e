// index = the slots of all texts, then the text of each row, then the elements of w as f32.
override TEXTS: u32;
override EACH: u32; // elements of w for each row
override ALL: u32; // elements of w beside these

@group(0) @binding(0) var<storage, read> slots: array<u32>;
@group(0) @binding(1) var<storage, read> texts: array<u32>;
@group(0) @binding(2) var<storage, read> w: array<u32>;
@group(0) @binding(3) var<storage, read_write> index: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    let first = 2u * TEXTS + rows; // of the elements of w
    let count = first + EACH * rows + ALL;
    for (var i = 0u; i < 4u; i++) {
        let at = group.x * 1024u + i * 256u + lane;
        if at >= count {
            continue;
        }
        if at < 2u * TEXTS {
            index[at] = slots[at];
        } else if at < first {
            index[at] = texts[at - 2u * TEXTS];
        } else {
            let e = at - first;
            index[at] = bitcast<u32>(weight_value(w[weight_word(e)], e));
        }
    }
}
