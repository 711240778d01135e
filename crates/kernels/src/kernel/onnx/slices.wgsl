// Slices of a tensor, each named by a row of indices, behind the dimensions of a batch that both have.
override DEPTH: u32; // indices of a row
override SLICE: u32; // elements of a slice
override ROWS: u32; // rows of indices for each of the batch
override BATCH_SIZE: u32; // elements of the tensor for each of the batch

const NO_SLICE = 0xffffffffu;

// The first element of the slice that a row names, from the end of a dimension if an index is negative; NO_SLICE if one is outside.
fn slice_of(row: u32) -> u32 {
    var at = row / ROWS * BATCH_SIZE;
    for (var k = 0u; k < DEPTH; k++) {
        let word = (row * DEPTH + k) * INT_WORDS;
        var index = narrowed(indices[word], indices[word + INT_WORDS - 1u]);
        index = select(index, index + i32(sizes[k]), index < 0);
        if index < 0 || index >= i32(sizes[k]) {
            return NO_SLICE;
        }
        at += u32(index) * sizes[DEPTH + k];
    }
    return at;
}

