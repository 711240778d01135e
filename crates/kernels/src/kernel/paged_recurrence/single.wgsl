// Rows of a single text, whose state lies at the beginning.
const TEXTS = 1u;
const SLOTS = 1u;

// The first row of a text from row `start` on; `rows` if there is none.
fn next_row(text: u32, start: u32, rows: u32) -> u32 {
    return start;
}

// Where a text's state is read from and where it goes; SLOTS and beyond: nowhere.
fn slot_before(text: u32) -> u32 {
    return 0u;
}

fn slot_after(text: u32) -> u32 {
    return 0u;
}
