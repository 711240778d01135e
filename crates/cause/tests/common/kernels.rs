//! Kernels written out by hand in f32, right and wrong ones. They share nothing with the hypotheses.
#![allow(dead_code, clippy::unwrap_used)]

use half::f16;
use tapml_graph::op::{Attention, Rope};

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    F16Sum,
    LastDropped,
    FirstSkipped,
    Transposed,
    NoBias,
    NoWeight,
    Negative,
    NextRow,
    RowZero,
    Eps(f32),
    Factor(f32),
    MeanOf(usize),
    MaskShift(isize),
    NoMask,
    NoWindow,
    NoCap,
    NoSinks,
    HeadModulo,
    FirstHead,
    NoScale,
    StaleKey,
    OtherPairs,
    SineSign,
    NoStep,
}

fn add(bug: Bug, sum: f32, term: f32) -> f32 {
    if bug == Bug::F16Sum { f16::from_f32(sum + term).to_f32() } else { sum + term }
}

fn dot(bug: Bug, n: usize, a: impl Fn(usize) -> f32, b: impl Fn(usize) -> f32) -> f32 {
    let first = usize::from(bug == Bug::FirstSkipped);
    let last = if bug == Bug::LastDropped { n - 1 } else { n };
    // Four partial sums, as a kernel with lanes would have.
    let mut parts = [0.0; 4];
    for i in first..last {
        parts[i % 4] = add(bug, parts[i % 4], a(i) * b(i));
    }
    add(bug, add(bug, parts[0], parts[1]), add(bug, parts[2], parts[3]))
}

pub fn linear(x: &[f32], w: &[f32], b: Option<&[f32]>, k: usize, bug: Bug) -> Vec<f32> {
    let outputs = w.len() / k;
    let mut y = Vec::new();
    for row in x.chunks(k) {
        for o in 0..outputs {
            let from = if bug == Bug::NextRow { (o + 1).min(outputs - 1) } else { o };
            let weight =
                |i: usize| if bug == Bug::Transposed { w[i * outputs + from] } else { w[from * k + i] };
            let sum = dot(bug, k, |i| row[i], weight);
            let bias = b.filter(|_| bug != Bug::NoBias).map_or(0.0, |b| b[o]);
            y.push(sum + if bug == Bug::Negative { -bias } else { bias });
        }
    }
    y
}

pub fn rms_norm(x: &[f32], w: &[f32], eps: f32, bug: Bug) -> Vec<f32> {
    let mut y = Vec::new();
    for row in x.chunks(w.len()) {
        let of = if let Bug::MeanOf(n) = bug { n } else { row.len() };
        let mean = dot(bug, row.len(), |i| row[i], |i| row[i]) / of as f32;
        let eps = if let Bug::Eps(other) = bug { other } else { eps };
        let factor = 1.0 / (mean + eps).sqrt();
        y.extend(
            row.iter().zip(w).map(|(x, w)| if bug == Bug::NoWeight { x * factor } else { x * factor * w }),
        );
    }
    y
}

pub fn attention(op: &Attention, inputs: &[Vec<f32>], rows: usize, bug: Bug) -> Vec<f32> {
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let (heads, kv, d, e) =
        (op.heads as usize, op.kv_heads as usize, op.head_dim as usize, op.value_size() as usize);
    let keys = k.len() / (kv * d);
    let mut y = vec![0.0; rows * heads * e];
    for i in 0..rows {
        let t = keys - rows + i;
        let mut end = if op.causal && bug != Bug::NoMask { t + 1 } else { keys };
        if let Bug::MaskShift(by) = bug {
            end = (end as isize + by).clamp(0, keys as isize) as usize;
        }
        let window = op.window.filter(|_| bug != Bug::NoWindow && bug != Bug::NoMask);
        let first = window.map_or(0, |w| (t + 1).saturating_sub(w as usize));
        for h in 0..heads {
            let g = match bug {
                Bug::HeadModulo => h % kv,
                Bug::FirstHead => 0,
                _ => h / (heads / kv),
            };
            let query = |c: usize| q[(i * heads + h) * d + c];
            let mut scores = Vec::new();
            for j in first..end {
                let row = if bug == Bug::StaleKey && j + 1 == end { j.saturating_sub(1) } else { j };
                let scale = match bug {
                    Bug::NoScale => 1.0,
                    Bug::Factor(f) => op.scale * f,
                    _ => op.scale,
                };
                let mut s = scale * dot(bug, d, query, |c| k[(row * kv + g) * d + c]);
                if let Some(cap) = op.softcap.filter(|_| bug != Bug::NoCap) {
                    s = cap * (s / cap).tanh();
                }
                scores.push(s);
            }
            let sink = inputs.get(3).filter(|_| bug != Bug::NoSinks).map(|s| s[h]);
            let top = scores.iter().copied().fold(sink.unwrap_or(f32::NEG_INFINITY), f32::max);
            let chances: Vec<f32> = scores.iter().map(|s| (s - top).exp()).collect();
            let total = chances.iter().sum::<f32>() + sink.map_or(0.0, |s| (s - top).exp());
            for c in 0..e {
                let sum: f32 =
                    chances.iter().enumerate().map(|(j, p)| p * v[((first + j) * kv + g) * e + c]).sum();
                y[(i * heads + h) * e + c] = if chances.is_empty() { 0.0 } else { sum / total };
            }
        }
    }
    y
}

pub fn rope(op: &Rope, x: &[f32], angles: &[f32], width: usize, bug: Bug) -> Vec<f32> {
    let (d, r) = (op.head_dim as usize, op.rotary_dim as usize);
    let mut y = x.to_vec();
    for (row, out) in y.chunks_mut(width).enumerate() {
        let from = match bug {
            Bug::NextRow => (row + 1).min(x.len() / width - 1),
            Bug::RowZero => 0,
            _ => row,
        };
        let angles = &angles[from * r..(from + 1) * r];
        for head in out.chunks_mut(d) {
            for j in 0..r / 2 {
                let interleaved = op.interleaved != (bug == Bug::OtherPairs);
                let (a, b) = if interleaved { (2 * j, 2 * j + 1) } else { (j, j + r / 2) };
                let (cos, sin) =
                    (angles[j], if bug == Bug::SineSign { -angles[r / 2 + j] } else { angles[r / 2 + j] });
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
            }
        }
    }
    y
}
