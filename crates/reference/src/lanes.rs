//! The vector operations of the number types.
//!
//! `pulp` compiles each loop for several sets of instructions and chooses one when the program runs.

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
