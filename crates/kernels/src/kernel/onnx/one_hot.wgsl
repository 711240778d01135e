// Source: of two values the second where an index names the place along the new axis, else the first. An index counts from the end
// if it is negative.
override DEPTH: u32; // elements along the new axis
override INNER: u32; // elements behind it
override FLOATS: u32; // whether indices are floats, which lose their fraction

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    let at = (e / INNER / DEPTH * INNER + e % INNER) * INT_WORDS;
    var index = 0;
    if FLOATS == 1u {
        index = i32(clamp(bitcast<f32>(indices[at]), -2147483520.0, 2147483520.0));
    } else {
        index = narrowed(indices[at], indices[at + INT_WORDS - 1u]);
    }
    index = select(index, index + i32(DEPTH), index < 0);
    return select(0u, 1u, index == i32(e / INNER % DEPTH));
}
