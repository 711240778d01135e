// Source: element e of y is found by the strides of x along the dimensions of y.
override RANK: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of y; strides of x along them
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        at += rest % sizes[d - 1u] * sizes[RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}
