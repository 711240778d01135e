// Source: slices of x that rows of indices name. One outside x gives 0.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of the dimensions that are indexed; their strides
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    let first = slice_of(e / SLICE);
    return select(first + e % SLICE, NONE, first == NO_SLICE);
}
