
// Piece i of the columns from `first` on in a weight.
fn w_from(first: u32, i: u32) -> u32 {
    return min(first + i / PIECES, O - 1u) * (K / 8u) + i % PIECES;
}
