
// The workgroup that is done last with its part of a block's keys brings the parts together. What the others leave is atomic,
// and stands before the count by a barrier of the whole device's memory, which `storageBarrier` is where this text is used.
// How many parts of each block are done, 0 between runs; behind them, for each head and part, HEAD_DIM sums, the largest
// score, and the sum of the exponentials.
@group(0) @binding(6) var<storage, read_write> parts: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

const BLOCKS = 256u; // counts

var<workgroup> last: u32;

fn leave(at: u32, v: f32) {
    atomicStore(&parts[at], bitcast<u32>(v));
}

fn left(at: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&parts[at]));
}

// Stores elements 4i to 4i + 3 of the block's heads.
fn keep(block: u32, i: u32, v: vec4<f32>) {
    let at = block * BLOCK * HEAD_DIM + 4u * i;
    y[at] = to_act(v.x);
    y[at + 1u] = to_act(v.y);
    y[at + 2u] = to_act(v.z);
    y[at + 3u] = to_act(v.w);
}

fn start_of(block: u32, h: u32, part: u32) -> u32 {
    return BLOCKS + ((block * BLOCK + h) * PARTS + part) * (HEAD_DIM + 2u);
}

fn give(block: u32, part: u32, count: u32, lane: u32, subgroups: u32) {
    for (var i = lane; i < BLOCK * HEAD_DIM / 4u; i += LANES) {
        let all = all_of(i, subgroups);
        if count == 1u {
            keep(block, i, all.sums / all.total);
        } else {
            let start = start_of(block, i / (HEAD_DIM / 4u), part);
            let d = i % (HEAD_DIM / 4u) * 4u;
            leave(start + d, all.sums.x);
            leave(start + d + 1u, all.sums.y);
            leave(start + d + 2u, all.sums.z);
            leave(start + d + 3u, all.sums.w);
            if d == 0u {
                leave(start + HEAD_DIM, all.peak);
                leave(start + HEAD_DIM + 1u, all.total);
            }
        }
    }
    if count == 1u {
        return;
    }
    storageBarrier();
    if lane == 0u {
        last = select(0u, 1u, atomicAdd(&parts[block], 1u) + 1u == count);
    }
    if workgroupUniformLoad(&last) == 0u {
        return;
    }
    storageBarrier();
    together(block, count, lane);
    if lane == 0u {
        atomicStore(&parts[block], 0u);
    }
}

// Adds up the parts.
fn together(block: u32, count: u32, lane: u32) {
    let h = lane / PARTS;
    if h < BLOCK && lane % PARTS < count {
        let at = start_of(block, h, lane % PARTS) + HEAD_DIM;
        tops[lane] = left(at);
        totals[lane] = left(at + 1u);
    }
    workgroupBarrier();
    for (var i = lane; i < BLOCK * HEAD_DIM / 4u; i += LANES) {
        let head = i / (HEAD_DIM / 4u);
        let d = i % (HEAD_DIM / 4u) * 4u;
        var peak = LOWEST;
        for (var part = 0u; part < count; part++) {
            peak = max(peak, tops[head * PARTS + part]);
        }
        var sum = vec4<f32>();
        var total = 0.0;
        for (var part = 0u; part < count; part++) {
            let weight = exp_accurate(tops[head * PARTS + part] - peak);
            let at = start_of(block, head, part) + d;
            sum = fma(vec4<f32>(weight), vec4<f32>(left(at), left(at + 1u), left(at + 2u), left(at + 3u)), sum);
            total = fma(weight, totals[head * PARTS + part], total);
        }
        keep(block, i, sum / total);
    }
}

fn nothing(block: u32, part: u32, lane: u32) {
}
