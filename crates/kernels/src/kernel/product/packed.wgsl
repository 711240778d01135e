// Weights that are stored as words of eight numbers of 4 bits, or four of 8: 16 bytes hold 32 or 16 numbers, all of one
// group.
override TEAMS: u32 = 1u; // 2: half of the lanes treats half of the columns, for short rows

override PIECE: u32 = 8u; // elements of a word
override LOAD: u32 = 32u; // elements of 16 bytes
override X_LOAD: u32 = 8u; // quads of x that go with them

// A word's numbers lie at different bits of the f32 whose lowest bit is 1: q is found as q * 16^j. Numbers beyond the
// mantissa are shifted first. These factors take that away again; they are powers of two, so nothing is rounded.
const LOW_4 = vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625);
const HIGH_4 = vec4<f32>(0.0000152587890625, 0.00390625, 0.000244140625, 0.0000152587890625);
const ALL_8 = vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625);
const MAGIC = vec4<u32>(0x4b000000u); // 2^23

// What is taken from numbers as they are found: 2^23, and the middle of the range unless there are zero points.
fn middle(factors: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(8388608.0) + select(0.0, f32(1u << (BITS - 1u)), ZEROS == 0u) / factors;
}

fn low_factors() -> vec4<f32> {
    if CODE == 2u {
        return vec4<f32>(1.0);
    }
    return select(LOW_4, ALL_8, BITS == 8u);
}

// The numbers of a word as they are found, less the middle.
fn found(word: u32) -> Octet {
    if CODE == 2u {
        return Octet(float8_word(word), vec4<f32>());
    }
    if BITS == 8u {
        let at = vec4<u32>(word, word, word >> 16u, word >> 16u) & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u);
        return Octet(bitcast<vec4<f32>>(at | MAGIC) - middle(ALL_8), vec4<f32>());
    }
    let low = vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u);
    let later = word >> 12u;
    let high = vec4<u32>(word, later, later, later) & vec4<u32>(0xf0000u, 0xf00u, 0xf000u, 0xf0000u);
    return Octet(bitcast<vec4<f32>>(low | MAGIC) - middle(LOW_4), bitcast<vec4<f32>>(high | MAGIC) - middle(HIGH_4));
}

// The half i of a word.
fn half_of(word: u32, i: u32) -> f32 {
    return unpack2x16float(select(word, word >> 16u, (i & 1u) == 1u)).x;
}

// Elements k to k + PIECE - 1 of a column.
fn w_piece(octet: u32, column: u32, k: u32) -> Octet {
    let values = found(w_read(octet, column, k / LOAD)[k / PIECE % 4u]);
    let scale = w_scale(octet, column, k / GROUP);
    let zero = w_zero(octet, column, k / GROUP);
    return Octet(scale * fma(values.low, low_factors(), vec4<f32>(-zero)), scale * fma(values.high, HIGH_4, vec4<f32>(-zero)));
}

// Where quad i of the x that goes with the 16 bytes `at` of a piece lies; turned so that lanes hit all banks.
fn staged(i: u32, at: u32) -> u32 {
    return i * LANES + (at ^ i);
}

// Brings quads of x to workgroup memory, with the factors of the numbers that they meet.
fn stage(from_x: u32, count: u32, lane: u32) {
    workgroupBarrier();
    for (var i = lane; i < count; i += LANES) {
        let within = i % X_LOAD;
        let factors = select(low_factors(), HIGH_4, BITS == 4u && (within & 1u) == 1u);
        pool[staged(within, i / X_LOAD)] = vec4<f32>(x[from_x + i]) * factors;
    }
    workgroupBarrier();
}

// The sum of the x that goes with the 16 bytes `at`, without factors.
fn sum_staged(at: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < X_LOAD; i++) {
        let factors = select(low_factors(), HIGH_4, BITS == 4u && (i & 1u) == 1u);
        sum += dot(pool[staged(i, at)], 1.0 / factors);
    }
    return sum;
}

// Four columns' 16 bytes, scales and zero points.
struct Four { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>, scale: vec4<f32>, zero: vec4<f32> }

fn read_four(octet: u32, column: u32, at: u32) -> Four {
    var four = Four();
    four.a = w_read(octet, column, at);
    four.b = w_read(octet, column + 1u, at);
    four.c = w_read(octet, column + 2u, at);
    four.d = w_read(octet, column + 3u, at);
    let group = at * LOAD / GROUP;
    four.scale.x = w_scale(octet, column, group);
    four.scale.y = w_scale(octet, column + 1u, group);
    four.scale.z = w_scale(octet, column + 2u, group);
    four.scale.w = w_scale(octet, column + 3u, group);
    if ZEROS == 1u {
        four.zero.x = w_zero(octet, column, group);
        four.zero.y = w_zero(octet, column + 1u, group);
        four.zero.z = w_zero(octet, column + 2u, group);
        four.zero.w = w_zero(octet, column + 3u, group);
    }
    return four;
}

fn firsts(f: Four) -> vec4<u32> {
    return vec4<u32>(f.a.x, f.b.x, f.c.x, f.d.x);
}

fn seconds(f: Four) -> vec4<u32> {
    return vec4<u32>(f.a.y, f.b.y, f.c.y, f.d.y);
}

fn thirds(f: Four) -> vec4<u32> {
    return vec4<u32>(f.a.z, f.b.z, f.c.z, f.d.z);
}

fn fourths(f: Four) -> vec4<u32> {
    return vec4<u32>(f.a.w, f.b.w, f.c.w, f.d.w);
}

// A sum with the products of a word and x as it was staged.
fn add_word(to: f32, word: u32, low: vec4<f32>, high: vec4<f32>) -> f32 {
    let values = found(word);
    var sum = to;
    sum = fma(values.low.x, low.x, sum);
    sum = fma(values.low.y, low.y, sum);
    sum = fma(values.low.z, low.z, sum);
    sum = fma(values.low.w, low.w, sum);
    if BITS == 4u {
        sum = fma(values.high.x, high.x, sum);
        sum = fma(values.high.y, high.y, sum);
        sum = fma(values.high.z, high.z, sum);
        sum = fma(values.high.w, high.w, sum);
    }
    return sum;
}

// Sums of four columns with the products of a word of each.
fn add_words(to: vec4<f32>, words: vec4<u32>, low: vec4<f32>, high: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        add_word(to.x, words.x, low, high),
        add_word(to.y, words.y, low, high),
        add_word(to.z, words.z, low, high),
        add_word(to.w, words.w, low, high),
    );
}

// Adds the products of word i of four columns of an octet with x; `words` are those of columns 0 to 3 or, for a team, of
// its columns, `more` of columns 4 to 7.
fn add_staged(to: Octet, words: vec4<u32>, more: vec4<u32>, i: u32, at: u32) -> Octet {
    let low = pool[staged(i * X_LOAD / 4u, at)];
    var high = vec4<f32>();
    if BITS == 4u {
        high = pool[staged(2u * i + 1u, at)];
    }
    var sums = to;
    sums.low = add_words(to.low, words, low, high);
    if TEAMS == 1u {
        sums.high = add_words(to.high, more, low, high);
    }
    return sums;
}

// Sums of products as weights stand for them: `sum_x` is that of x alone.
fn scaled(four: Four, sums: vec4<f32>, sum_x: f32) -> vec4<f32> {
    if ZEROS == 1u {
        return four.scale * fma(-four.zero, vec4<f32>(sum_x), sums);
    }
    return four.scale * sums;
}

// The lane's share of a row's products with an octet. x goes through workgroup memory, a piece at a time in which every
// lane has 16 bytes of each of its columns.
fn partial(row: u32, octet: u32, lane: u32) -> Octet {
    let lanes = LANES / TEAMS;
    let column = lane / lanes * 4u;
    let at = lane % lanes;
    var sums = Octet();
    for (var first = 0u; first < K / LOAD; first += lanes) {
        // Weights are under way while x is staged.
        let chunk = min(first + at, K / LOAD - 1u);
        let one = read_four(octet, column, chunk);
        var two = Four();
        if TEAMS == 1u {
            two = read_four(octet, 4u, chunk);
        }
        let count = min(lanes, K / LOAD - first);
        stage((row * K + first * LOAD) / 4u, count * X_LOAD, lane);
        if at < count {
            var own = Octet();
            // One after the other by name: an index that the compiler does not see through costs much.
            own = add_staged(own, firsts(one), firsts(two), 0u, at);
            own = add_staged(own, seconds(one), seconds(two), 1u, at);
            own = add_staged(own, thirds(one), thirds(two), 2u, at);
            own = add_staged(own, fourths(one), fourths(two), 3u, at);
            var sum_x = 0.0;
            if ZEROS == 1u {
                sum_x = sum_staged(at);
            }
            sums.low += scaled(one, own.low, sum_x);
            if TEAMS == 1u {
                sums.high += scaled(two, own.high, sum_x);
            }
        }
    }
    if column > 0u {
        return Octet(vec4<f32>(), sums.low);
    }
    return sums;
}
