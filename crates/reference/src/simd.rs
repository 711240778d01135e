//! The vector loops under products, written once for every number type and for the vectors of every processor.
//! The way a sum is split into lanes, and so its last bits, depends on the processor, but not on threads.
//!
//! `pulp` compiles each loop for several sets of instructions and chooses one when the program runs.

use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};

/// The vector operations of a number type, by the names that `pulp` gives them for each type.
pub trait Lanes: Copy {
    /// A vector register.
    type Vector<S: Simd>: Copy;

    /// Whole vectors, and the rest.
    fn split<S: Simd>(values: &[Self]) -> (&[Self::Vector<S>], &[Self]);
    /// Whole vectors to write, and the rest.
    fn split_mut<S: Simd>(values: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);
    /// A vector of the first values, zero behind them.
    fn load<S: Simd>(simd: S, values: &[Self]) -> Self::Vector<S>;
    /// Writes as many lanes as there are places.
    fn store<S: Simd>(simd: S, places: &mut [Self], vector: Self::Vector<S>);
    /// The same value in each lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// `a·b + c`, rounded once if the processor can do so at full speed.
    fn mul_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// `a + b`.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// The sum of the lanes.
    fn sum<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
}

/// [`Lanes`] for a number type, by the names of its operations in `pulp`.
macro_rules! lanes {
    ($ty:ident, $v:ident, $split:ident, $split_mut:ident, $load:ident, $store:ident, $splat:ident, $fma:ident, $add:ident, $sum:ident) => {
        impl Lanes for $ty {
            type Vector<S: Simd> = S::$v;

            #[inline(always)]
            fn split<S: Simd>(values: &[$ty]) -> (&[S::$v], &[$ty]) {
                S::$split(values)
            }
            #[inline(always)]
            fn split_mut<S: Simd>(values: &mut [$ty]) -> (&mut [S::$v], &mut [$ty]) {
                S::$split_mut(values)
            }
            #[inline(always)]
            fn load<S: Simd>(simd: S, values: &[$ty]) -> S::$v {
                simd.$load(values)
            }
            #[inline(always)]
            fn store<S: Simd>(simd: S, places: &mut [$ty], vector: S::$v) {
                simd.$store(places, vector);
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: $ty) -> S::$v {
                simd.$splat(value)
            }
            #[inline(always)]
            fn mul_add<S: Simd>(simd: S, a: S::$v, b: S::$v, c: S::$v) -> S::$v {
                simd.$fma(a, b, c)
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$v, b: S::$v) -> S::$v {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn sum<S: Simd>(simd: S, a: S::$v) -> $ty {
                simd.$sum(a)
            }
        }
    };
}

lanes!(
    f32,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    partial_load_f32s,
    partial_store_f32s,
    splat_f32s,
    mul_add_e_f32s,
    add_f32s,
    reduce_sum_f32s
);
lanes!(
    f64,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    partial_load_f64s,
    partial_store_f64s,
    splat_f64s,
    mul_add_e_f64s,
    add_f64s,
    reduce_sum_f64s
);

/// Runs a job with the widest vectors that this processor has.
#[inline(always)]
pub(crate) fn dispatch<J: WithSimd>(job: J) -> J::Output {
    Arch::new().dispatch(job)
}

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
