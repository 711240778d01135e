// Source: x with so many elements in front of it along each dimension, fewer than none to cut some off.
override MODE: u32; // 0: a number, 1: reflected at the first and last element, 2: the edge, 3: x again
override HAS_VALUE: u32; // 0: the word LOW
override LOW: u32; // what fills, if it is no input

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> pads: array<u32>; // in front of each axis, then behind each
@group(0) @binding(2) var<storage, read> value: array<u32>; // not read unless HAS_VALUE
@group(0) @binding(3) var<storage, read> axes: array<u32>; // not read unless HAS_AXES
@group(0) @binding(4) var<storage, read> sizes: array<u32>; // of y; of x; strides of x
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    if HAS_VALUE == 0u {
        return LOW;
    }
    return value[half] & (0xffffffffu >> (32u - min(8u * BYTES, 32u)));
}

// What stands in front of x along dimension d.
fn front(d: u32) -> i32 {
    let slot = slot_of(d);
    if slot == AXES {
        return 0;
    }
    return narrowed(pads[slot * INT_WORDS], pads[slot * INT_WORDS + INT_WORDS - 1u]);
}

fn source(e: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        let size = i32(sizes[RANK + d - 1u]);
        var i = i32(rest % sizes[d - 1u]) - front(d - 1u);
        if i < 0 || i >= size {
            if MODE == 0u || size == 0 {
                return NONE;
            }
            if MODE == 1u {
                let turn = max(2 * (size - 1), 1);
                i = ((i % turn) + turn) % turn;
                i = select(i, turn - i, i >= size);
            } else if MODE == 2u {
                i = clamp(i, 0, size - 1);
            } else {
                i = ((i % size) + size) % size;
            }
        }
        at += u32(i) * sizes[2u * RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}
