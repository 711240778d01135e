// y = the largest element in each window of x, or the mean, in three dimensions; missing ones have a size of 1. What lies
// outside x counts for a mean if it is padding that COUNT_PADS counts: its number is then that of the window within the pads.
override COUNT: u32; // elements of y
override MEAN: u32;
override COUNT_PADS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

// How many elements of a window from `first` on are not behind `size` and the pads.
fn reached(first: i32, kernel: u32, dilation: i32, end: i32) -> u32 {
    var n = 0u;
    for (var k = 0u; k < kernel; k++) {
        n += u32(first + i32(k) * dilation < end);
    }
    return n;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= COUNT {
            return;
        }
        let o0 = i32(e / (Y1 * Y2) % Y0) * S0 - P0;
        let o1 = i32(e / Y2 % Y1) * S1 - P1;
        let o2 = i32(e % Y2) * S2 - P2;
        let plane = e / (Y0 * Y1 * Y2) * X0;
        var most = 0.0;
        var sum = 0.0;
        var found = 0u;
        for (var k0 = 0u; k0 < K0; k0++) {
            let i0 = u32(o0 + i32(k0) * D0);
            for (var k1 = 0u; k1 < K1; k1++) {
                let i1 = u32(o1 + i32(k1) * D1);
                for (var k2 = 0u; k2 < K2; k2++) {
                    let i2 = u32(o2 + i32(k2) * D2);
                    if i0 < X0 && i1 < X1 && i2 < X2 {
                        let v = f32(x[((plane + i0) * X1 + i1) * X2 + i2]);
                        sum += v;
                        most = select(larger_number(most, v), v, found == 0u);
                        found += 1u;
                    }
                }
            }
        }
        if COUNT_PADS == 1u {
            let n0 = reached(o0, K0, D0, i32(X0) + E0);
            let n1 = reached(o1, K1, D1, i32(X1) + E1);
            found = n0 * n1 * reached(o2, K2, D2, i32(X2) + E2);
        }
        y[e] = to_act(select(most, sum / f32(max(found, 1u)), MEAN == 1u));
    }
}
