//! `NonMaxSuppression` (from version 10 on): the boxes of each class that no better one overlaps.
//!
//! The greedy algorithm of the standard: boxes are taken by falling scores, and one that overlaps a box that is kept is dropped.

use crate::array::Array;
use crate::call::{Call, Outputs};
use crate::real::Real;
use tapml_graph::{DType, Error};

/// The least and the greatest coordinate of a box along each of its two axes.
///
/// `b` is `[y1, x1, y2, x2]` with any two opposite corners, or `[x, y, width, height]` around the centre if `centred`. Which axis
/// comes first differs between the two, which changes no overlap.
fn corners<T: Real>(b: &[T], centred: bool) -> [[T; 2]; 2] {
    let half = T::nearest(0.5);
    if centred {
        [[b[0] - b[2] * half, b[0] + b[2] * half], [b[1] - b[3] * half, b[1] + b[3] * half]]
    } else {
        [[b[0].min(b[2]), b[0].max(b[2])], [b[1].min(b[3]), b[1].max(b[3])]]
    }
}

/// Whether the intersection of two boxes is more than `threshold` of their union. Boxes without an area overlap nothing.
fn overlaps<T: Real>(a: [[T; 2]; 2], b: [[T; 2]; 2], threshold: T) -> bool {
    let area = |of: [[T; 2]; 2]| (of[0][1] - of[0][0]) * (of[1][1] - of[1][0]);
    let shared = |axis: usize| [a[axis][0].max(b[axis][0]), a[axis][1].min(b[axis][1])];
    let shared = [shared(0), shared(1)];
    let empty = shared.iter().any(|[least, most]| most <= least);
    if empty || area(a) <= T::zero() || area(b) <= T::zero() {
        return false;
    }
    area(shared) / (area(a) + area(b) - area(shared)) > threshold
}

/// `NonMaxSuppression`: batch, class and box of what is kept, `[kept, 3]`, the best of each class first.
///
/// `boxes` is `[batch, count, 4]` and `scores` `[batch, classes, count]`.
///
/// # Errors
/// If the shapes do not fit each other.
pub fn non_max_suppression<T: Real>(call: &Call<'_>) -> Outputs {
    let (boxes, scores) = (call.array::<T>(0)?, call.array::<T>(1)?);
    let centred = call.flag("center_point_box", false)?;
    // `max_output_boxes_per_class`: without it, or with 0, nothing is kept.
    let most = if call.optional(2).is_some() { call.integer(2)? } else { 0 };
    let most = usize::try_from(most.max(0)).unwrap_or(usize::MAX);
    let overlap = if call.optional(3).is_some() { call.number(3)? } else { T::zero() };
    let least: Option<T> = call.optional(4).map(|_| call.number(4)).transpose()?;
    let fits = boxes.rank() == 3 && scores.rank() == 3 && boxes.shape[2] == 4;
    if !fits || boxes.shape[0] != scores.shape[0] || boxes.shape[1] != scores.shape[2] {
        return Err(Error::invalid(format!("boxes {:?} with scores {:?}", boxes.shape, scores.shape)));
    }
    let (classes, count) = (scores.shape[1], scores.shape[2]);
    let mut kept = Vec::new();
    if count > 0 {
        for (at, scores) in scores.data.chunks(count).enumerate() {
            let (n, class) = (at / classes, at % classes);
            let corner = |i: usize| corners(&boxes.data[(n * count + i) * 4..][..4], centred);
            let mut order: Vec<usize> =
                (0..count).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
            // The sort is stable, so that of equal scores the first box comes first.
            order.sort_by(|&a, &b| scores[b].wide().total_cmp(&scores[a].wide()));
            let mut chosen: Vec<usize> = Vec::new();
            for i in order {
                if chosen.len() >= most {
                    break;
                }
                if !chosen.iter().any(|&other| overlaps(corner(i), corner(other), overlap)) {
                    chosen.push(i);
                    kept.extend([n as i64, class as i64, i as i64]);
                }
            }
        }
    }
    call.single_output(Array { shape: vec![kept.len() / 3, 3], data: kept }, DType::I64)
}
