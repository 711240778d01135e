// Brings the parts of few rows together. Workgroup x stands for head x.
override HEADS: u32;
override VALUE_DIM: u32;
override PARTS: u32 = 32u; // of the keys, at most 64

@group(0) @binding(0) var<storage, read> parts: array<f32>; // VALUE_DIM sums, the largest score, the sum
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

const LANES = 128u;
const FEW = 8u;

var<workgroup> tops: array<f32, 64>;
var<workgroup> totals: array<f32, 64>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    if rows > FEW {
        return;
    }
    for (var row = 0u; row < rows; row++) {
        let start = (row * HEADS + group.x) * PARTS * (VALUE_DIM + 2u);
        workgroupBarrier();
        if lane < PARTS {
            let at = start + lane * (VALUE_DIM + 2u) + VALUE_DIM;
            tops[lane] = parts[at];
            totals[lane] = parts[at + 1u];
        }
        workgroupBarrier();
        var peak = tops[0];
        for (var i = 1u; i < PARTS; i++) {
            peak = max(peak, tops[i]);
        }
        workgroupBarrier();
        if lane < PARTS {
            // Parts without keys have no sums.
            let weight = select(0.0, exp_accurate(tops[lane] - peak), totals[lane] > 0.0);
            tops[lane] = weight;
            totals[lane] *= weight;
        }
        workgroupBarrier();
        var total = 0.0;
        for (var i = 0u; i < PARTS; i++) {
            total += totals[i];
        }
        for (var d = lane; d < VALUE_DIM; d += LANES) {
            var sum = 0.0;
            for (var i = 0u; i < PARTS; i++) {
                if tops[i] > 0.0 {
                    sum = fma(tops[i], parts[start + i * (VALUE_DIM + 2u) + d], sum);
                }
            }
            // Where no key is seen, the sum is 0.
            y[(row * HEADS + group.x) * VALUE_DIM + d] = to_act(select(0.0, sum / total, total > 0.0));
        }
    }
}
