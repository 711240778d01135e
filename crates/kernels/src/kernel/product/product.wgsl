// Matrix products with weights read 16 bytes at a time. Columns of the product go by octets, eight that a workgroup or a
// lane treats together; what they mean, where their weights lie and where results go is up to the operator's own text.
// The same grid serves any number of rows: workgroup (x, y) first stands for EACH octets.
//
// Few rows: each workgroup computes its octets for every row; all its lanes take part in each column, and their sums meet
// in subgroups and then in workgroup memory.
// Many rows: workgroups with x < OCTETS / (COLUMNS / 8) compute tiles of ROWS rows by COLUMNS columns, 4 rows by an octet
// in each lane; the others end.
// Batches, where a row's result must not depend on how many others there are: each workgroup computes an octet for BATCH rows,
// or for a single one in the same order. Lanes take part as with few rows, and each weight is read for all rows of a batch.
override K: u32; // row length of x and of the weights; a multiple of what 16 bytes of weights hold
override O: u32; // rows of the weights in this launch
override FIRST: u32 = 0u; // column of y where they begin
override WIDTH: u32; // row length of y
override FEW: u32 = 8u; // rows up to which the first way is taken
override RUN: u32 = 32u; // products added up one by one before the sum joins the others; a multiple of DEPTH
override EACH: u32 = 1u; // octets of a workgroup when there are few rows, at most COLUMNS / 8
override BATCH: u32 = 0u; // 8: the rows of a batch; 0: there are none
override ROWS: u32 = 64u; // rows of a tile; a multiple of 4
override COLUMNS: u32 = 64u; // columns of a tile: 4096 / ROWS
override DEPTH: u32 = 32u; // elements along K at a time: DEPTH * (ROWS + COLUMNS) is at most 4096
override ROW_QUADS: u32 = ROWS / 4u; // a power of two, at least DEPTH / 4
override QUADS: u32 = COLUMNS / 4u; // as ROW_QUADS
override X_QUADS: u32 = DEPTH / 4u;

const LANES = 128u;

// Few rows: a piece of x, or the sums of subgroups. Many: element k of 4 rows lies at [place(k, quad, ROW_QUADS)], and behind
// them element k of 4 columns at [place(k, quad, QUADS)].
var<workgroup> pool: array<vec4<f32>, 1024>;

// Values of the columns of an octet: 0 to 3 and 4 to 7.
struct Octet { low: vec4<f32>, high: vec4<f32> }

// The place of element k of four of `quads` rows or columns; turned so that lanes that write and lanes that read hit all
// banks.
fn place(k: u32, quad: u32, quads: u32) -> u32 {
    return k * quads + (quad ^ (k / 4u));
}

// Adds up over all lanes, and stores.
fn join(row: u32, octet: u32, own: Octet, lane: u32, subgroup: u32, first: bool, subgroups: u32) {
    let low = subgroupAdd(own.low);
    let high = subgroupAdd(own.high);
    workgroupBarrier();
    if first {
        pool[2u * subgroup] = low;
        pool[2u * subgroup + 1u] = high;
    }
    workgroupBarrier();
    if lane < 4u {
        var a = 0.0;
        var b = 0.0;
        for (var i = 0u; i < subgroups; i++) {
            a += pool[2u * i][lane];
            b += pool[2u * i + 1u][lane];
        }
        store(row, octet, lane, a, b);
    }
    workgroupBarrier();
}

// Elements 4·quad to 4·quad + 3 from k on of a row of x; zeros from K on.
fn x_quad(row: u32, k: u32, quad: u32) -> vec4<f32> {
    if k + 4u * quad >= K {
        return vec4<f32>();
    }
    return vec4<f32>(x[row * (K / 4u) + k / 4u + quad]);
}

// Four elements of each of four rows or columns, turned, as elements k to k + 3.
fn put(base: u32, k: u32, quad: u32, quads: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
    pool[base + place(k, quad, quads)] = vec4<f32>(a.x, b.x, c.x, d.x);
    pool[base + place(k + 1u, quad, quads)] = vec4<f32>(a.y, b.y, c.y, d.y);
    pool[base + place(k + 2u, quad, quads)] = vec4<f32>(a.z, b.z, c.z, d.z);
    pool[base + place(k + 3u, quad, quads)] = vec4<f32>(a.w, b.w, c.w, d.w);
}

// Loads elements k to k + DEPTH - 1 of the tile's rows and columns.
fn load(first_row: u32, rows: u32, first: u32, k: u32, lane: u32) {
    for (var i = lane; i < ROW_QUADS * X_QUADS; i += LANES) {
        let row = min(vec4<u32>(first_row + i / X_QUADS * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(rows - 1u));
        let quad = i % X_QUADS;
        let a = x_quad(row.x, k, quad);
        let b = x_quad(row.y, k, quad);
        let c = x_quad(row.z, k, quad);
        put(0u, 4u * quad, i / X_QUADS, ROW_QUADS, a, b, c, x_quad(row.w, k, quad));
    }
    let pieces = DEPTH / PIECE;
    for (var i = lane; i < QUADS * pieces; i += LANES) {
        let quad = i / pieces;
        let within = i % pieces * PIECE;
        let octet = first + quad / 2u;
        let column = quad % 2u * 4u;
        var a = Octet();
        var b = Octet();
        var c = Octet();
        var d = Octet();
        if k + within < K {
            a = w_piece(octet, column, k + within);
            b = w_piece(octet, column + 1u, k + within);
            c = w_piece(octet, column + 2u, k + within);
            d = w_piece(octet, column + 3u, k + within);
        }
        put(DEPTH * ROW_QUADS, within, quad, QUADS, a.low, b.low, c.low, d.low);
        if PIECE == 8u {
            put(DEPTH * ROW_QUADS, within + 4u, quad, QUADS, a.high, b.high, c.high, d.high);
        }
    }
}

fn store_row(row: u32, rows: u32, octet: u32, values: Octet) {
    if row < rows {
        for (var i = 0u; i < 4u; i++) {
            store(row, octet, i, values.low[i], values.high[i]);
        }
    }
}

fn sum(a: Octet, b: Octet) -> Octet {
    return Octet(a.low + b.low, a.high + b.high);
}

// Adds the products of one element of a row with those of an octet.
fn outer(to: Octet, x_value: f32, low: vec4<f32>, high: vec4<f32>) -> Octet {
    return Octet(fma(vec4<f32>(x_value), low, to.low), fma(vec4<f32>(x_value), high, to.high));
}

// The tile whose first row and octet these are.
fn tile(first_row: u32, rows: u32, first: u32, lane: u32) {
    let quad = lane / (COLUMNS / 8u);
    let column = lane % (COLUMNS / 8u) * 2u;
    var sums0 = Octet();
    var sums1 = Octet();
    var sums2 = Octet();
    var sums3 = Octet();
    // Sums of their own keep the chains of additions short.
    var part0 = Octet();
    var part1 = Octet();
    var part2 = Octet();
    var part3 = Octet();
    for (var k = 0u; k < K; k += DEPTH) {
        load(first_row, rows, first, k, lane);
        workgroupBarrier();
        for (var i = 0u; i < DEPTH; i++) {
            let a = pool[place(i, quad, ROW_QUADS)];
            let low = pool[DEPTH * ROW_QUADS + place(i, column, QUADS)];
            let high = pool[DEPTH * ROW_QUADS + place(i, column + 1u, QUADS)];
            part0 = outer(part0, a.x, low, high);
            part1 = outer(part1, a.y, low, high);
            part2 = outer(part2, a.z, low, high);
            part3 = outer(part3, a.w, low, high);
        }
        if (k + DEPTH) % RUN == 0u || k + DEPTH >= K {
            sums0 = sum(sums0, part0);
            sums1 = sum(sums1, part1);
            sums2 = sum(sums2, part2);
            sums3 = sum(sums3, part3);
            part0 = Octet();
            part1 = Octet();
            part2 = Octet();
            part3 = Octet();
        }
        workgroupBarrier();
    }
    let row = first_row + quad * 4u;
    let octet = first + column / 2u;
    store_row(row, rows, octet, sums0);
    store_row(row + 1u, rows, octet, sums1);
    store_row(row + 2u, rows, octet, sums2);
    store_row(row + 3u, rows, octet, sums3);
}

// A number for each row of a batch.
struct Batch { low: vec4<f32>, high: vec4<f32> }

// Elements of each row of a batch.
struct BatchInput { a: Octet, b: Octet, c: Octet, d: Octet, e: Octet, f: Octet, g: Octet, h: Octet }

// The elements of a row that meet piece `at` of the weights.
fn x_piece(row: u32, at: u32) -> Octet {
    let place = row * (K / 4u) + at * (PIECE / 4u);
    var values = Octet();
    values.low = vec4<f32>(x[place]);
    if PIECE == 8u {
        values.high = vec4<f32>(x[place + 1u]);
    }
    return values;
}

// A sum with the products of a piece, one after the other.
fn add_piece(to: f32, w: Octet, values: Octet) -> f32 {
    var sum = to;
    sum = fma(w.low.x, values.low.x, sum);
    sum = fma(w.low.y, values.low.y, sum);
    sum = fma(w.low.z, values.low.z, sum);
    sum = fma(w.low.w, values.low.w, sum);
    if PIECE == 8u {
        sum = fma(w.high.x, values.high.x, sum);
        sum = fma(w.high.y, values.high.y, sum);
        sum = fma(w.high.z, values.high.z, sum);
        sum = fma(w.high.w, values.high.w, sum);
    }
    return sum;
}

fn add_to_batch(to: Batch, w: Octet, values: BatchInput) -> Batch {
    let low = vec4<f32>(
        add_piece(to.low.x, w, values.a),
        add_piece(to.low.y, w, values.b),
        add_piece(to.low.z, w, values.c),
        add_piece(to.low.w, w, values.d),
    );
    let high = vec4<f32>(
        add_piece(to.high.x, w, values.e),
        add_piece(to.high.y, w, values.f),
        add_piece(to.high.z, w, values.g),
        add_piece(to.high.w, w, values.h),
    );
    return Batch(low, high);
}

// The lane's share of a row's products with an octet, in the order of a batch.
fn single(row: u32, octet: u32, lane: u32) -> Octet {
    var low = vec4<f32>();
    var high = vec4<f32>();
    for (var at = lane; at < K / PIECE; at += LANES) {
        let values = x_piece(row, at);
        let k = at * PIECE;
        low.x = add_piece(low.x, w_piece(octet, 0u, k), values);
        low.y = add_piece(low.y, w_piece(octet, 1u, k), values);
        low.z = add_piece(low.z, w_piece(octet, 2u, k), values);
        low.w = add_piece(low.w, w_piece(octet, 3u, k), values);
        high.x = add_piece(high.x, w_piece(octet, 4u, k), values);
        high.y = add_piece(high.y, w_piece(octet, 5u, k), values);
        high.z = add_piece(high.z, w_piece(octet, 6u, k), values);
        high.w = add_piece(high.w, w_piece(octet, 7u, k), values);
    }
    return Octet(low, high);
}

// Leaves the sums of a column over the lanes of a subgroup.
fn leave(column: u32, own: Batch, subgroup: u32, first: bool) {
    let low = subgroupAdd(own.low);
    let high = subgroupAdd(own.high);
    if first {
        pool[16u * subgroup + 2u * column] = low;
        pool[16u * subgroup + 2u * column + 1u] = high;
    }
}

// An octet for the rows of a batch from `first_row` on. Rows beyond the last are the last one again, and are not stored.
fn batch(first_row: u32, rows: u32, octet: u32, lane: u32, subgroup: u32, first: bool, subgroups: u32) {
    var sums0 = Batch();
    var sums1 = Batch();
    var sums2 = Batch();
    var sums3 = Batch();
    var sums4 = Batch();
    var sums5 = Batch();
    var sums6 = Batch();
    var sums7 = Batch();
    for (var at = lane; at < K / PIECE; at += LANES) {
        let values = BatchInput(
            x_piece(first_row, at),
            x_piece(min(first_row + 1u, rows - 1u), at),
            x_piece(min(first_row + 2u, rows - 1u), at),
            x_piece(min(first_row + 3u, rows - 1u), at),
            x_piece(min(first_row + 4u, rows - 1u), at),
            x_piece(min(first_row + 5u, rows - 1u), at),
            x_piece(min(first_row + 6u, rows - 1u), at),
            x_piece(min(first_row + 7u, rows - 1u), at),
        );
        let k = at * PIECE;
        sums0 = add_to_batch(sums0, w_piece(octet, 0u, k), values);
        sums1 = add_to_batch(sums1, w_piece(octet, 1u, k), values);
        sums2 = add_to_batch(sums2, w_piece(octet, 2u, k), values);
        sums3 = add_to_batch(sums3, w_piece(octet, 3u, k), values);
        sums4 = add_to_batch(sums4, w_piece(octet, 4u, k), values);
        sums5 = add_to_batch(sums5, w_piece(octet, 5u, k), values);
        sums6 = add_to_batch(sums6, w_piece(octet, 6u, k), values);
        sums7 = add_to_batch(sums7, w_piece(octet, 7u, k), values);
    }
    leave(0u, sums0, subgroup, first);
    leave(1u, sums1, subgroup, first);
    leave(2u, sums2, subgroup, first);
    leave(3u, sums3, subgroup, first);
    leave(4u, sums4, subgroup, first);
    leave(5u, sums5, subgroup, first);
    leave(6u, sums6, subgroup, first);
    leave(7u, sums7, subgroup, first);
    workgroupBarrier();
    // Columns i and i + 4 of a row.
    for (var task = lane; task < 32u; task += LANES) {
        let row = task / 4u;
        let i = task % 4u;
        let place = 2u * i + row / 4u;
        var a = 0.0;
        var b = 0.0;
        for (var s = 0u; s < subgroups; s++) {
            a += pool[16u * s + place][row % 4u];
            b += pool[16u * s + place + 8u][row % 4u];
        }
        if first_row + row < rows {
            store(first_row + row, octet, i, a, b);
        }
    }
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) within: u32,
) {
    let rows = row_count(symbols);
    if BATCH > 0u {
        // Workgroups that read the same weights follow each other.
        let blocks = (rows + 7u) / 8u;
        let at = group.y * OCTETS + group.x;
        let first_row = at % blocks * 8u;
        if first_row + 1u == rows {
            join(first_row, at / blocks, single(first_row, at / blocks, lane), lane, subgroup, within == 0u, subgroups);
        } else {
            batch(first_row, rows, at / blocks, lane, subgroup, within == 0u, subgroups);
        }
    } else if rows <= FEW {
        for (var row = 0u; row < rows; row++) {
            for (var i = 0u; i < EACH; i++) {
                let own = partial(row, group.x * EACH + i, lane);
                join(row, group.x * EACH + i, own, lane, subgroup, within == 0u, subgroups);
            }
        }
    } else if group.x * (COLUMNS / 8u) < OCTETS {
        tile(group.y * ROWS, rows, group.x * (COLUMNS / 8u), lane);
    }
}
