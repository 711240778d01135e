// Source: the one element of x on diagonal K of a matrix.
override COLUMNS: u32;
override K: i32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    return select(NONE, 0u, i32(e % COLUMNS) - i32(e / COLUMNS) == K);
}
