// Rows of several texts: `index` holds for each text the slot that its state is read from and the one that it goes to, then
// the text of each row, then the elements of one input as f32.
override TEXTS: u32;
override SLOTS: u32;

// The first row of a text from row `start` on; `rows` if there is none. Rows of no text are those of text TEXTS.
fn next_row(text: u32, start: u32, rows: u32) -> u32 {
    var row = start;
    while row < rows && min(index[2u * TEXTS + row], TEXTS) != text {
        row++;
    }
    return row;
}

// Where a text's state is read from and where it goes; SLOTS and beyond: nowhere.
fn slot_before(text: u32) -> u32 {
    return index[2u * text];
}

fn slot_after(text: u32) -> u32 {
    return index[2u * text + 1u];
}

// Element e of the input that lies behind the texts of `rows` rows.
fn behind_texts(e: u32, rows: u32) -> f32 {
    return bitcast<f32>(index[2u * TEXTS + rows + e]);
}
