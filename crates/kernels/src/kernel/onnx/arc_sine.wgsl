// The inverse of the sine for v up to 1/2 either way: odd polynomial (minimax fit, error 8e-10). Beyond, with
// r = sqrt((1 - |v|) / 2), it is pi / 2 - 2 arc_sine(r), which is not a number where |v| > 1.
fn arc_sine(v: f32) -> f32 {
    let z = v * v;
    let high = fma(z, fma(z, fma(z, 0.037565216, 0.014402597), 0.031817615), 0.044515721);
    return fma(v * z, fma(z, fma(z, high, 0.075005107), 0.1666666), v);
}

fn root_of_rest(a: f32) -> f32 {
    return sqrt((1.0 - a) * 0.5);
}

