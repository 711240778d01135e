// Source: the element of x that has the index of e, but the one that is given along an axis. One outside x gives 0.
override RANK: u32;
override AXIS: u32;
override AXIS_SIZE: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of y; strides of x
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    var index = narrowed(indices[e * INT_WORDS], indices[e * INT_WORDS + INT_WORDS - 1u]);
    index = select(index, index + i32(AXIS_SIZE), index < 0);
    if index < 0 || index >= i32(AXIS_SIZE) {
        return NONE;
    }
    var at = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        at += select(rest % sizes[d - 1u], u32(index), d - 1u == AXIS) * sizes[RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}
