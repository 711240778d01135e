
fn bias0(output: u32) -> f32 {
    return 0.0;
}
