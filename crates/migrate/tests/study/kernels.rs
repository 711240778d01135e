//! Kernels of the study, in f32 unless the fault says otherwise.

use half::{bf16, f16};
use tapml_graph::Op;

/// What a call gives: the operator and its inputs as f32.
type Args<'a> = (&'a Op, Vec<Vec<f32>>);

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    Correct,
    /// Sums are rounded to f16 after each addition.
    F16Sums,
    /// Sums are rounded to bf16 after each addition.
    Bf16Sums,
    /// The last term of a sum is missing.
    LastDropped,
    /// Outputs 4 and 5 of each row are exchanged.
    Swapped,
    /// Every output is 0.05 % too large.
    Scaled,
}

impl Fault {
    pub fn correct(self) -> bool {
        self == Fault::Correct
    }

    fn add(self, sum: f32, term: f32) -> f32 {
        match self {
            Fault::F16Sums => f16::from_f32(sum + term).to_f32(),
            Fault::Bf16Sums => bf16::from_f32(sum + term).to_f32(),
            _ => sum + term,
        }
    }

    fn finish(self, row: &mut [f32]) {
        match self {
            Fault::Swapped => row.swap(4, 5),
            Fault::Scaled => row.iter_mut().for_each(|v| *v *= 1.0005),
            _ => {}
        }
    }
}

/// The order of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One by one.
    OneByOne,
    /// One by one from the end, with fused multiply-add.
    ReversedFused,
    /// This many interleaved partial sums, then a tree.
    Lanes(usize),
    /// Tiles of this many neighbours, then one by one.
    Tiles(usize),
    /// Halves of halves.
    Pairwise,
}

impl Order {
    /// The longest serial chain of additions among `n` terms.
    pub fn chain(self, n: usize) -> usize {
        match self {
            Order::OneByOne | Order::ReversedFused => n,
            Order::Lanes(lanes) => n.div_ceil(lanes),
            Order::Tiles(tile) => tile.max(n.div_ceil(tile)),
            Order::Pairwise => 1,
        }
    }

    fn dot(self, a: &[f32], b: &[f32], fault: Fault) -> f32 {
        let n = if fault == Fault::LastDropped { a.len() - 1 } else { a.len() };
        let serial =
            |range: &mut dyn Iterator<Item = usize>| range.fold(0.0, |s, i| fault.add(s, a[i] * b[i]));
        match self {
            Order::OneByOne => serial(&mut (0..n)),
            Order::ReversedFused => (0..n).rev().fold(0.0f32, |s, i| a[i].mul_add(b[i], s)),
            Order::Lanes(lanes) => {
                let parts: Vec<f32> = (0..lanes).map(|l| serial(&mut (l..n).step_by(lanes))).collect();
                tree(&parts, fault)
            }
            Order::Tiles(tile) => {
                let tiles = (0..n).step_by(tile).map(|t| serial(&mut (t..n.min(t + tile))));
                tiles.fold(0.0, |s, t| fault.add(s, t))
            }
            Order::Pairwise => tree(&a[..n].iter().zip(b).map(|(a, b)| a * b).collect::<Vec<_>>(), fault),
        }
    }
}

fn tree(parts: &[f32], fault: Fault) -> f32 {
    match parts.len() {
        0 => 0.0,
        1 => parts[0],
        n => {
            let (left, right) = parts.split_at(n / 2);
            fault.add(tree(left, fault), tree(right, fault))
        }
    }
}

const ORDERS: [Order; 5] =
    [Order::OneByOne, Order::ReversedFused, Order::Lanes(32), Order::Tiles(64), Order::Pairwise];

/// All linear kernels.
pub fn linears() -> Vec<(Order, Fault)> {
    let wrong = [Fault::F16Sums, Fault::Bf16Sums, Fault::LastDropped, Fault::Swapped, Fault::Scaled];
    let right = ORDERS.into_iter().map(|o| (o, Fault::Correct));
    right.chain(wrong.map(|f| (Order::Lanes(32), f))).collect()
}

pub fn linear((_, inputs): Args<'_>, order: Order, fault: Fault) -> Vec<f32> {
    let [x, w] = inputs.as_slice() else { panic!("x and w") };
    let rows = super::IDS.len();
    let k = x.len() / rows;
    let mut y = Vec::new();
    for x in x.chunks(k) {
        let mut row: Vec<f32> = w.chunks(k).map(|w| order.dot(x, w, fault)).collect();
        fault.finish(&mut row);
        y.extend(row);
    }
    y
}

/// A kernel of `rms_norm`.
#[derive(Clone, Copy)]
pub struct Rms {
    order: Order,
    fault: Fault,
    /// Factor on eps.
    eps: f32,
    /// Added to the length that the mean divides by.
    mean: f32,
    /// Whether the weight is applied before the scale.
    weight_first: bool,
}

impl Rms {
    pub fn all() -> Vec<(&'static str, Rms)> {
        let base =
            Rms { order: Order::Lanes(32), fault: Fault::Correct, eps: 1.0, mean: 0.0, weight_first: false };
        vec![
            ("serial", Rms { order: Order::OneByOne, ..base }),
            ("lanes", base),
            ("pairwise", Rms { order: Order::Pairwise, ..base }),
            ("weight first", Rms { weight_first: true, ..base }),
            ("f16 sums", Rms { fault: Fault::F16Sums, ..base }),
            ("bf16 sums", Rms { fault: Fault::Bf16Sums, ..base }),
            ("eps 1e-6", Rms { eps: 0.1, ..base }),
            ("eps 0", Rms { eps: 0.0, ..base }),
            ("mean over k-1", Rms { mean: -1.0, ..base }),
            ("last dropped", Rms { fault: Fault::LastDropped, ..base }),
            ("swapped outputs", Rms { fault: Fault::Swapped, ..base }),
            ("scaled by 1.0005", Rms { fault: Fault::Scaled, ..base }),
        ]
    }

    pub fn correct(&self) -> bool {
        self.fault.correct() && self.eps == 1.0 && self.mean == 0.0
    }

    pub fn chain(&self) -> usize {
        self.order.chain(320)
    }
}

pub fn rms_norm((op, inputs): Args<'_>, kernel: &Rms) -> Vec<f32> {
    let (Op::RmsNorm(op), [x, w]) = (op, inputs.as_slice()) else { panic!("rms_norm of x and w") };
    let mut y = Vec::new();
    for x in x.chunks(w.len()) {
        let mean = kernel.order.dot(x, x, kernel.fault) / (x.len() as f32 + kernel.mean);
        let scale = 1.0 / (mean + op.eps * kernel.eps).sqrt();
        let element =
            |(x, w): (&f32, &f32)| if kernel.weight_first { (x * w) * scale } else { (x * scale) * w };
        let mut row: Vec<f32> = x.iter().zip(w).map(element).collect();
        kernel.fault.finish(&mut row);
        y.extend(row);
    }
    y
}

/// A kernel of `attention`.
#[derive(Clone, Copy)]
pub struct Attend {
    /// Whether the softmax is computed in one pass with a running maximum.
    online: bool,
    /// Whether the scale is applied to the query.
    scale_first: bool,
    /// Factor on the scale.
    scale: f32,
    /// Keys beyond (or before) the query's own that are seen.
    mask: isize,
    /// Whether the last key row is that of the position before.
    stale: bool,
    /// Whether heads 0 and 1 are exchanged.
    heads: bool,
    /// Whether probabilities are rounded to f16.
    f16_probabilities: bool,
    fault: Fault,
}

impl Attend {
    pub fn all() -> Vec<(&'static str, Attend)> {
        let base = Attend {
            online: false,
            scale_first: false,
            scale: 1.0,
            mask: 0,
            stale: false,
            heads: false,
            f16_probabilities: false,
            fault: Fault::Correct,
        };
        vec![
            ("two passes", base),
            ("online softmax", Attend { online: true, ..base }),
            ("scale on the query", Attend { scale_first: true, ..base }),
            ("f16 sums", Attend { fault: Fault::F16Sums, ..base }),
            ("bf16 sums", Attend { fault: Fault::Bf16Sums, ..base }),
            ("softmax scale 1/sqrt(d+1)", Attend { scale: (40f32 / 41.0).sqrt(), ..base }),
            ("mask +1", Attend { mask: 1, ..base }),
            ("mask -1", Attend { mask: -1, ..base }),
            ("stale row", Attend { stale: true, ..base }),
            ("swapped heads", Attend { heads: true, ..base }),
            ("f16 probabilities", Attend { f16_probabilities: true, ..base }),
            ("scaled by 1.0005", Attend { fault: Fault::Scaled, ..base }),
        ]
    }

    pub fn correct(&self) -> bool {
        let values = !self.stale && !self.heads && !self.f16_probabilities;
        self.fault.correct() && self.scale == 1.0 && self.mask == 0 && values
    }
}

pub fn attention((op, inputs): Args<'_>, kernel: &Attend) -> Vec<f32> {
    let (Op::Attention(op), [q, k, v]) = (op, inputs.as_slice()) else { panic!("attention of q, k and v") };
    let (rows, d) = (super::IDS.len(), op.head_dim as usize);
    let (heads, groups) = (op.heads as usize, (op.heads / op.kv_heads) as usize);
    let width = op.kv_heads as usize * d;
    let mut y = Vec::new();
    for i in 0..rows {
        let last = (i as isize + kernel.mask).clamp(0, rows as isize - 1) as usize;
        let mut row = vec![0.0; heads * d];
        for h in 0..heads {
            let q = &q[i * heads * d + h * d..][..d];
            let at = |m: &'_ [f32], j: usize| m[j * width + h / groups * d..][..d].to_vec();
            let key = |j: usize| at(k, if kernel.stale && j == last { j.saturating_sub(1) } else { j });
            let scores: Vec<f32> =
                (0..=last).map(|j| score(q, &key(j), op.scale * kernel.scale, kernel)).collect();
            let out = mix(&scores, &|j| at(v, j), d, kernel);
            row[h * d..(h + 1) * d].copy_from_slice(&out);
        }
        if kernel.heads {
            let (a, b) = row.split_at_mut(d);
            a.swap_with_slice(&mut b[..d]);
        }
        kernel.fault.finish(&mut row);
        y.extend(row);
    }
    y
}

fn score(q: &[f32], k: &[f32], scale: f32, kernel: &Attend) -> f32 {
    if kernel.scale_first {
        let q: Vec<f32> = q.iter().map(|q| q * scale).collect();
        Order::OneByOne.dot(&q, k, kernel.fault)
    } else {
        Order::Lanes(8).dot(q, k, kernel.fault) * scale
    }
}

fn mix(scores: &[f32], value: &dyn Fn(usize) -> Vec<f32>, d: usize, kernel: &Attend) -> Vec<f32> {
    let mut out = vec![0.0f32; d];
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0f32);
    if !kernel.online {
        max = scores.iter().copied().fold(max, f32::max);
    }
    for (j, &s) in scores.iter().enumerate() {
        if s > max {
            let shrink = (max - s).exp();
            out.iter_mut().for_each(|o| *o *= shrink);
            (max, sum) = (s, sum * shrink);
        }
        let mut p = (s - max).exp();
        if kernel.f16_probabilities {
            p = f16::from_f32(p).to_f32();
        }
        sum = kernel.fault.add(sum, p);
        out.iter_mut().zip(value(j)).for_each(|(o, v)| *o = kernel.fault.add(*o, p * v));
    }
    out.iter_mut().for_each(|o| *o /= sum);
    out
}
