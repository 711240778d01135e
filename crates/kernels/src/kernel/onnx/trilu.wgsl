// Source: element e of y is that of x if it lies on the wanted side of diagonal k of its matrix.
override ROWS: u32;
override COLUMNS: u32;
override UPPER: u32;
override HAS_K: u32; // 0: the diagonal from the first element on

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> k: array<u32>; // not read unless HAS_K
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

fn source(e: u32) -> u32 {
    let over = i32(e % COLUMNS) - i32(e / COLUMNS % ROWS);
    var diagonal = 0;
    if HAS_K == 1u {
        diagonal = narrowed(k[0], k[INT_WORDS - 1u]);
    }
    return select(NONE, e, select(over <= diagonal, over >= diagonal, UPPER == 1u));
}
