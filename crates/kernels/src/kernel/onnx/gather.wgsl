// Source: along one axis of x the elements that indices name, from the end if they are negative. One outside x gives 0.
override AXIS_SIZE: u32;
override INNER: u32; // elements of x behind the axis
override INDICES: u32; // how many there are

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    let at = e / INNER % INDICES * INT_WORDS;
    var index = narrowed(indices[at], indices[at + INT_WORDS - 1u]);
    index = select(index, index + i32(AXIS_SIZE), index < 0);
    if index < 0 || index >= i32(AXIS_SIZE) {
        return NONE;
    }
    return (e / INNER / INDICES * AXIS_SIZE + u32(index)) * INNER + e % INNER;
}
