//! Products of matrices: `MatMul` of batches, and `Gemm`.
//!
//! All products are of row-major operands given by strides, so that transposed matrices need no copy and no text of
//! their own. See <https://onnx.ai/onnx/operators/onnx__MatMul.html> and
//! <https://onnx.ai/onnx/operators/onnx__Gemm.html>.

use super::epilogue::{Epilogue, with_epilogue};
use super::{OnnxNode, Placed, broadcast_strides, count, plan_with, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Error, Extent, Op, Result};

/// A tile of each operand lies in workgroup memory, as f32.
const KERNEL: KernelSource = KernelSource {
    workgroup_memory: 2048,
    ..KernelSource::flat("onnx/matrix", "onnx/matrix.wgsl", include_str!("matrix.wgsl"))
};

/// The dimension whose places are the channels of an epilogue.
const COLUMNS: i32 = -1;

/// Rows and columns of a workgroup's part of the product.
const TILE: u32 = 16;

/// One product of a batch, or many.
struct Product {
    /// Rows of the product.
    m: u32,
    /// Columns of the product.
    n: u32,
    /// Terms of a sum.
    k: u32,
    /// Elements from one row to the next and from one column to the next.
    a: [u32; 2],
    b: [u32; 2],
    /// Sizes of the batch, and the strides of both along it.
    batch: [Vec<u32>; 3],
    /// The factor of the product.
    alpha: f64,
    /// The factor of `c`.
    beta: f64,
    /// Sizes of the output.
    output: Vec<u32>,
    /// Strides of what is added, along rows and columns, if something is.
    c: Option<[u32; 2]>,
}

impl Product {
    /// Checks dtypes and the declared output, and plans the launch with its epilogue.
    fn plan(&self, node: &OnnxNode, epilogue: Epilogue) -> Result<NodePlan> {
        let dtype = node.float_dtype()?;
        let (a, b, y) = (node.input(0)?, node.input(1)?, node.gives(0, dtype, &self.output)?);
        if b.dtype() != dtype || node.optional(2).is_some_and(|c| c.dtype() != dtype) {
            return Err(node.unserved_error("operands of several dtypes"));
        }
        // A binding needs a buffer: without `c` it is one that `HAS_C` keeps the kernel from reading.
        let operands = [whole(a), whole(b), node.optional(2).map_or(Arg::Constant(0), whole)];
        let kernel = KernelSource { math: epilogue.math, ..KERNEL };
        let chain = self.k.saturating_add(1).saturating_add(epilogue.additions);
        let launch =
            self.launch((&kernel, epilogue), [dtype; 2], operands, |launch| launch.output(y.index))?;
        let constant = words(self.batch.iter().flatten().copied());
        Ok(plan_with(&kernel, vec![launch], vec![constant], chain))
    }

    /// The launch; constant 0 stands for the sizes of the batch.
    fn launch(
        &self,
        (kernel, epilogue): (&KernelSource, Epilogue),
        [dtype, out]: [DType; 2],
        operands: [Arg; 3],
        write: impl Fn(LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Launch> {
        let launch = operands.into_iter().fold(kernel.launch(dtype, out)?, LaunchBuilder::read);
        let launch = write(launch.read(Arg::Constant(0))).set("M", self.m).set("N", self.n).set("K", self.k);
        let launch = launch.set("A_ROW", self.a[0]).set("A_COLUMN", self.a[1]);
        let launch = launch.set("B_ROW", self.b[0]).set("B_COLUMN", self.b[1]);
        let launch = launch.set("BATCH_RANK", self.batch[0].len() as u32);
        let launch = launch.set("ALPHA", self.alpha).set("BETA", self.beta);
        let [row, column] = self.c.unwrap_or_default();
        let launch =
            launch.set("HAS_C", u32::from(self.c.is_some())).set("C_ROW", row).set("C_COLUMN", column);
        let launch = epilogue.join(launch, kernel.text, 5);
        let batch = count(&self.batch[0])?;
        let groups = |size: u32| Extent::from_dim(u64::from(size.div_ceil(TILE)));
        Ok(launch.groups([groups(self.n), groups(self.m), Extent::from_dim(u64::from(batch))]))
    }
}

/// The launch that gives `a · b + c` of `[m, k]` and `[k, n]`, with a row of `c` if it has one. Constant 0 stands for
/// the sizes. The result is of f32.
pub fn launch_projection(
    dtype: DType,
    [m, k, n]: [u32; 3],
    operands: [Arg; 3],
    has_c: bool,
    write: impl Fn(LaunchBuilder) -> LaunchBuilder,
) -> Result<Launch> {
    let one = Product {
        m,
        n,
        k,
        a: [k, 1],
        b: [n, 1],
        batch: [vec![], vec![], vec![]],
        alpha: 1.0,
        beta: 1.0,
        output: vec![m, n],
        c: has_c.then_some([0, 1]),
    };
    one.launch((&KERNEL, Epilogue::empty()), [dtype, DType::F32], operands, write)
}

/// A matrix of the last two dimensions: a vector is one row, or one column.
fn matrix(of: &Placed, is_column: bool) -> Result<Vec<u32>> {
    let sizes = of.sizes()?;
    Ok(match sizes.as_slice() {
        [only] if is_column => vec![*only, 1],
        [only] => vec![1, *only],
        _ => sizes,
    })
}

/// A product, alone or with what becomes of its result.
pub fn plan_with_epilogue(request: &Request) -> Result<NodePlan> {
    // The planners of both operators make the epilogue again.
    let (node, _) = with_epilogue(request, COLUMNS)?;
    if node.op.name() == "Gemm" { plan_gemm(request) } else { plan_matmul(request) }
}

/// `MatMul`, and `FusedMatMul` of ONNX Runtime, which may transpose matrices and has a factor:
/// <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FusedMatMul>.
pub fn plan_matmul(request: &Request) -> Result<NodePlan> {
    let (node, epilogue) = with_epilogue(request, COLUMNS)?;
    let is_fused = node.op.name() == "FusedMatMul";
    node.reads(if is_fused { &["alpha", "transA", "transB", "transBatchA", "transBatchB"] } else { &[] })?;
    if node.int("transBatchA", 0)? != 0 || node.int("transBatchB", 0)? != 0 {
        return Err(node.unserved_error("transposed batches"));
    }
    // The result of a product with a vector has no dimension of columns, which would be the channels.
    if matches!(request.op, Op::Fused(_)) && node.input(1)?.ty.shape.len() < 2 {
        return Err(node.unserved_error("an epilogue of a product with a vector"));
    }
    // Sizes as they are multiplied, and the elements from one row to the next and from one column to the next.
    let side = |place: usize, name: &str| -> Result<(Vec<u32>, [u32; 2])> {
        let (input, is_column) = (node.input(place)?, place == 1);
        let mut sizes = matrix(&input, is_column)?;
        let columns = sizes.last().copied().unwrap_or(1);
        let turns = node.int(name, 0)? != 0 && input.sizes()?.len() > 1;
        if turns {
            let rank = sizes.len();
            sizes.swap(rank - 1, rank - 2);
        }
        Ok((sizes, if turns { [1, columns] } else { [columns, 1] }))
    };
    let ((a, a_strides), (b, b_strides)) = (side(0, "transA")?, side(1, "transB")?);
    let ([batch_a @ .., m, k], [batch_b @ .., rows, n]) = (a.as_slice(), b.as_slice()) else {
        return Err(Error::invalid("a product needs dimensions"));
    };
    if k != rows {
        return Err(Error::invalid(format!("a product of {a:?} and {b:?}")));
    }
    let rank = batch_a.len().max(batch_b.len());
    let at = |sizes: &[u32], d: usize| (d + sizes.len()).checked_sub(rank).map_or(1, |at| sizes[at]);
    // A size of 1 stretches to the other one; `broadcast_strides` refuses what does not fit.
    let size = |d: usize| match at(batch_a, d) {
        1 => at(batch_b, d),
        size => size,
    };
    let batch: Vec<u32> = (0..rank).map(size).collect();
    // The strides along the batch are those of whole matrices.
    let along = |sizes: &[u32], volume: u32| -> Result<Vec<u32>> {
        let of_matrices = broadcast_strides(sizes, &batch)?;
        Ok(of_matrices.into_iter().map(|stride| stride.wrapping_mul(volume)).collect())
    };
    // A vector has no rows, or no columns.
    // The output lacks the dimension that a vector was given.
    let ranks = [node.input(0)?.sizes()?.len(), node.input(1)?.sizes()?.len()];
    let rows_and_columns = [(ranks[0] > 1, *m), (ranks[1] > 1, *n)];
    let own = rows_and_columns.into_iter().filter_map(|(there, size)| there.then_some(size));
    let output = batch.iter().copied().chain(own).collect();
    let product = Product {
        m: *m,
        n: *n,
        k: *k,
        a: a_strides,
        b: b_strides,
        batch: [batch.clone(), along(batch_a, m.wrapping_mul(*k))?, along(batch_b, k.wrapping_mul(*n))?],
        alpha: node.float("alpha", 1.0)?,
        beta: 1.0,
        output,
        c: None,
    };
    product.plan(&node, epilogue)
}

/// `Gemm`: `alpha · a · b + beta · c`, where `c` stretches to the product.
pub fn plan_gemm(request: &Request) -> Result<NodePlan> {
    let (node, epilogue) = with_epilogue(request, COLUMNS)?;
    node.reads(&["alpha", "beta", "transA", "transB", "broadcast"])?;
    let sizes = |place: usize, name: &str| -> Result<([u32; 2], [u32; 2])> {
        let sizes = node.input(place)?.sizes()?;
        let own = strides(&sizes);
        let ([rows, columns], [row, column]) = (sizes.as_slice(), own.as_slice()) else {
            return Err(Error::invalid(format!("{sizes:?} is no matrix")));
        };
        Ok(match node.int(name, 0)? {
            0 => ([*rows, *columns], [*row, *column]),
            _ => ([*columns, *rows], [*column, *row]),
        })
    };
    let (([m, k], a), ([rows, n], b)) = (sizes(0, "transA")?, sizes(1, "transB")?);
    if k != rows {
        return Err(Error::invalid(format!("a product of {m} × {k} and {rows} × {n}")));
    }
    let c = match node.optional(2) {
        Some(c) => match broadcast_strides(&c.sizes()?, &[m, n])?.as_slice() {
            &[row, column] => Some([row, column]),
            _ => None,
        },
        None => None,
    };
    let (alpha, beta) = (node.float("alpha", 1.0)?, node.float("beta", 1.0)?);
    let batch = [vec![], vec![], vec![]];
    Product { m, n, k, a, b, batch, alpha, beta, output: vec![m, n], c }.plan(&node, epilogue)
}
