// Row (m·down + r)·across + s of y holds the SIDE by SIDE cells in row r and column s of squares of image m, side by side.
override COLUMNS: u32; // row length of x
override DOWN: u32; // rows of cells of an image
override ACROSS: u32; // columns of cells
override SIDE: u32;
override LEAD: u32; // rows of x before the cells of each image

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let width = SIDE * SIDE * COLUMNS;
    let count = row_count(symbols) * width;
    let across = ACROSS / SIDE;
    let down = DOWN / SIDE;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let square = e / width;
            let cell = e % width / COLUMNS;
            let row = square / across % down * SIDE + cell / SIDE;
            let column = square % across * SIDE + cell % SIDE;
            let image = square / (across * down);
            let from_row = image * (LEAD + DOWN * ACROSS) + LEAD + row * ACROSS + column;
            y[e] = x[from_row * COLUMNS + e % COLUMNS];
        }
    }
}
