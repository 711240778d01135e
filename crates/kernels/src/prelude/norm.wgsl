// What normalisations share: sums over the lanes that treat the same columns, and the factor that follows from them.
override TEAM: u32 = 256u; // lanes of a team, which adds up together: a power of two up to 256

var<workgroup> sums: array<f32, 256>;

// The sum over all lanes of a team. The last barrier lets the next call write again.
fn sum_of(lane: u32, value: f32) -> f32 {
    sums[lane] = value;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if lane % TEAM < step {
            sums[lane] += sums[lane + step];
        }
        workgroupBarrier();
    }
    let total = sums[lane / TEAM * TEAM];
    workgroupBarrier();
    return total;
}

// 1 / sqrt(v), with one step of Newton's method after the built-in function.
fn inverse_root(v: f32) -> f32 {
    let r = inverseSqrt(v);
    return r * fma(-0.5 * v * r, r, 1.5);
}

