// Each image becomes LEAD rows of zeros, then row r·across + s holds the square of PATCH by PATCH pixels in row r and
// column s of squares, channel by channel.
override LINES: u32; // rows of pixels of all images
override HEIGHT: u32; // rows of pixels of one image
override WIDTH: u32;
override PATCH: u32;
override LEAD: u32 = 0u;
override COLUMNS: u32; // row length of y

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act_out>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * COLUMNS;
    let across = WIDTH / PATCH;
    let rows = LEAD + HEIGHT / PATCH * across;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let image = e / COLUMNS / rows;
            let of_image = e / COLUMNS % rows;
            if of_image < LEAD {
                y[e] = to_out(0.0);
            } else {
                let square = of_image - LEAD;
                let within = e % COLUMNS;
                let line = within / PATCH; // counts the lines of all channels of the square
                let row = image * HEIGHT + square / across * PATCH + line % PATCH;
                let column = square % across * PATCH + within % PATCH;
                y[e] = to_out(x[(line / PATCH * LINES + row) * WIDTH + column]);
            }
        }
    }
}
