override COLUMN: u32 = 0u; // 1: b is a column for every column of a, 0: b is like a

@group(0) @binding(1) var<storage, read> b: array<act>;

// What meets element e of a.
fn second(e: u32) -> f32 {
    return f32(b[select(e, e / K, COLUMN == 1u)]);
}
