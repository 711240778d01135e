//! The vector loops under products, written once for every number type and for the vectors of every processor.
//! The way a sum is split into lanes, and so its last bits, depends on the processor, but not on threads.

use crate::lanes::{Lanes, dispatch};
use crate::real::Real;
use pulp::{Simd, WithSimd};

/// Dot products of each row of `a` with each of `b`, all of one length.
///
/// Plain loops, here and below: a closure would be compiled apart, without the vectors of `S`.
#[inline(always)]
pub(crate) fn dots<T: Real, S: Simd, const R: usize, const C: usize>(
    simd: S,
    a: [&[T]; R],
    b: [&[T]; C],
) -> [[T; C]; R] {
    let mut sums = [[T::splat(simd, T::ZERO); C]; R];
    let (a, a_rest) = split_all::<T, S, R>(a);
    let (b, b_rest) = split_all::<T, S, C>(b);
    // `R · C` sums are independent of each other, which hides the latency of an addition.
    for i in 0..shortest(&a).min(shortest(&b)) {
        for r in 0..R {
            for c in 0..C {
                sums[r][c] = T::mul_add(simd, a[r][i], b[c][i], sums[r][c]);
            }
        }
    }
    // The rest is one more vector, filled up with zeros, which add nothing.
    if !a_rest[0].is_empty() {
        for r in 0..R {
            for c in 0..C {
                let (a, b) = (T::load(simd, a_rest[r]), T::load(simd, b_rest[c]));
                sums[r][c] = T::mul_add(simd, a, b, sums[r][c]);
            }
        }
    }
    // Lanes are added at the end, once for each sum.
    let mut totals = [[T::ZERO; C]; R];
    for r in 0..R {
        for c in 0..C {
            totals[r][c] = T::sum(simd, sums[r][c]);
        }
    }
    totals
}

/// `y += Σ_c factors[c]·rows[c]`.
#[inline(always)]
pub(crate) fn add_scaled<T: Real, S: Simd, const C: usize>(
    simd: S,
    y: &mut [T],
    factors: [T; C],
    rows: [&[T]; C],
) {
    let (y, y_rest) = T::split_mut::<S>(y);
    let (rows, rest) = split_all::<T, S, C>(rows);
    for i in 0..y.len().min(shortest(&rows)) {
        let mut sum = y[i];
        for c in 0..C {
            sum = T::mul_add(simd, T::splat(simd, factors[c]), rows[c][i], sum);
        }
        y[i] = sum;
    }
    if !y_rest.is_empty() {
        let mut sum = T::load(simd, y_rest);
        for c in 0..C {
            sum = T::mul_add(simd, T::splat(simd, factors[c]), T::load(simd, rest[c]), sum);
        }
        T::store(simd, y_rest, sum);
    }
}

/// Whole vectors of some rows, and their rests.
type Split<'a, T, S, const C: usize> = ([&'a [<T as Lanes>::Vector<S>]; C], [&'a [T]; C]);

/// Each of these rows as whole vectors and a rest.
#[inline(always)]
fn split_all<T: Real, S: Simd, const C: usize>(rows: [&[T]; C]) -> Split<'_, T, S, C> {
    let (mut vectors, mut rests): Split<'_, T, S, C> = ([&[]; C], [&[]; C]);
    for c in 0..C {
        (vectors[c], rests[c]) = T::split::<S>(rows[c]);
    }
    (vectors, rests)
}

/// The shortest length, so that one comparison bounds the index into every row.
#[inline(always)]
fn shortest<V, const C: usize>(rows: &[&[V]; C]) -> usize {
    let mut len = rows[0].len();
    for row in rows {
        len = len.min(row.len());
    }
    len
}

/// `Σ_i a[i]·b[i]`.
///
/// The order of additions is that of [`dots`].
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    dispatch(Dot { a, b })
}

/// The job of [`dot`].
struct Dot<'a, T> {
    a: &'a [T],
    b: &'a [T],
}

impl<T: Real> WithSimd for Dot<'_, T> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> T {
        let [[sum]] = dots(simd, [self.a], [self.b]);
        sum
    }
}
