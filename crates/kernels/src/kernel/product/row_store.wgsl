
// Stores a column of quad `quad` of a weight, which is quad `i` of the workgroup.
fn store0(quad: u32, i: u32, column: u32) {
    let output = 4u * quad + column;
    if output < O0 {
        y0[output] = to_out(total(i, column) + bias0(output));
    }
}
