
// Products of many rows on matrix units: workgroup (x, y) computes a tile, rows TALL·x on of columns WIDE·y on, or of gated
// products WIDE / 2 · y on. Each of its subgroups has a part of it, in products of 16 by 16 by 16 with sums in f32. Rows and
// weights lie in workgroup memory as f16, DEPTH elements along K at a time, while the next are under way.
override K: u32; // a multiple of DEPTH
override O: u32; // rows of a weight, and row length of y

const PIECES = DEPTH / 8u; // of 16 bytes, in a row of a tile

// Where piece i of a tile lies in workgroup memory, whose rows are STEP quads apart.
fn slot(i: u32) -> u32 {
    return i / PIECES * STEP + i % PIECES * 2u;
}

// Piece i of the rows. Rows behind the last one are not stored: any will do.
fn x_from(first: u32, rows: u32, i: u32) -> u32 {
    return min(first + i / PIECES, rows - 1u) * (K / 8u) + i % PIECES;
}

// Numbers of 16 bytes, which reads of f16 would bring in two.
fn put_piece(at: u32, words: vec4<u32>) {
    tiles[at] = vec4<f16>(vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)));
    tiles[at + 1u] = vec4<f16>(vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}
