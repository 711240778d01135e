
const SHARES = DEPTH / 16u; // of 16 elements, in a row of a tile

// Share i of the columns belongs to this row of a weight.
fn w_row(first: u32, i: u32) -> u32 {
    return min(first + i / SHARES, O - 1u);
}

// The element of the row with which it begins.
fn share_from(i: u32) -> u32 {
    return i % SHARES * 16u;
}

// Where it lies in the first plane.
fn share(i: u32) -> u32 {
    return i / SHARES * STEP + i % SHARES * 4u;
}

// The f16 at i, as it is stored.
fn half_at(word: u32, i: u32) -> u32 {
    return (word >> (i % 2u * 16u)) & 0xffffu;
}
