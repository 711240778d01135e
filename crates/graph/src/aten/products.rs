//! Products, attention and normalisation.
//!
//! Meanings are those of `torch.matmul` and `torch.nn.functional`. A product of matrices with a sum is one `Gemm`, which rounds
//! its result alone.

use super::arguments::Arguments;
use super::arithmetic::{Defined, select_elements};
use super::builder::{Builder, Operand};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use serde_json::json;

/// Most elements of a causal mask, which is a constant of the definition.
const MOST_MASK: usize = 1 << 24;

/// `alpha · a · b + beta · c`, of matrices; `b` may lie with rows and columns exchanged.
struct AtenGemm<'a> {
    /// `[m, k]`.
    a: &'a Operand,
    /// `[k, n]`, or `[n, k]` if `transposed`.
    b: &'a Operand,
    /// What broadcasts to `[m, n]` and is added.
    c: Option<&'a Operand>,
    /// Whether rows and columns of `b` are exchanged.
    transposed: bool,
    /// Factor of the product.
    alpha: f64,
    /// Factor of `c`.
    beta: f64,
}

impl AtenGemm<'_> {
    /// Adds the step; gives its output `[m, n]`.
    ///
    /// # Errors
    /// If operands are no matrices of one float dtype, inner sizes differ, or `c` does not broadcast.
    fn add(self, builder: &mut Builder) -> Result<Operand> {
        let ([m, k], [rows, columns]) = (self.a.shape.as_slice(), self.b.shape.as_slice()) else {
            return Err(Error::invalid(format!("a product of {} and {}", self.a.ty(), self.b.ty())));
        };
        let (inner, n) = if self.transposed { (columns, rows) } else { (rows, columns) };
        if inner != k || self.a.dtype != self.b.dtype || !self.a.dtype.is_float() {
            return Err(Error::invalid(format!("a product of {} and {}", self.a.ty(), self.b.ty())));
        }
        if let Some(c) = self.c
            && super::builder::broadcast_shape(&c.shape, &[*m, *n])? != [*m, *n]
        {
            return Err(Error::invalid(format!("{} beside a product of {m} × {n}", c.ty())));
        }
        let attributes =
            json!({"alpha": self.alpha, "beta": self.beta, "transB": i32::from(self.transposed)});
        let inputs = [Some(self.a), Some(self.b), self.c];
        let taken = if self.c.is_some() { 3 } else { 2 };
        let ty = (self.a.dtype, vec![*m, *n]);
        Ok(builder.step("onnx.Gemm@13", attributes, &inputs[..taken], &[ty])?.swap_remove(0))
    }
}

/// `x · wᵀ + b`.
pub fn linear(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (x, weight, bias) =
        (arguments.floats("input")?, arguments.tensor("weight")?, arguments.optional("bias"));
    let columns = x.shape.last().copied().ok_or_else(|| Error::invalid("the input is a number"))?;
    let [features, width] = weight.shape[..] else {
        return Err(Error::unsupported(format!("a weight of {}", weight.ty())));
    };
    // Rows are counted by a division by the columns.
    if width != columns || columns == 0 {
        return Err(Error::invalid(format!("a product of {} and {}", x.ty(), weight.ty())));
    }
    // All dimensions but the last are rows, as a `Gemm` takes matrices alone.
    let rows = builder.reshape(&x, &[x.elements() / columns, columns])?;
    let product =
        AtenGemm { a: &rows, b: &weight, c: bias.as_ref(), transposed: true, alpha: 1.0, beta: 1.0 };
    let product = product.add(builder)?;
    let shape = [&x.shape[..x.rank() - 1], &[features]].concat();
    Ok(vec![builder.reshape(&product, &shape)?])
}

/// A product of two matrices.
pub fn mm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (a, b) = (arguments.floats("self")?, arguments.floats("mat2")?);
    if a.rank() != 2 || b.rank() != 2 {
        return Err(Error::invalid(format!("a product of {} and {}", a.ty(), b.ty())));
    }
    Ok(vec![builder.matmul(&a, &b)?])
}

/// A product of two matrices and a sum.
pub fn addmm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (c, a, b) = (arguments.floats("self")?, arguments.floats("mat1")?, arguments.floats("mat2")?);
    let (alpha, beta) = (arguments.float("alpha", 1.0)?, arguments.float("beta", 1.0)?);
    Ok(vec![AtenGemm { a: &a, b: &b, c: Some(&c), transposed: false, alpha, beta }.add(builder)?])
}

/// Products of batches of matrices.
pub fn bmm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (a, b) = (arguments.floats("self")?, arguments.floats("mat2")?);
    if a.rank() != 3 || b.rank() != 3 || a.shape[0] != b.shape[0] {
        return Err(Error::invalid(format!("products of {} and {}", a.ty(), b.ty())));
    }
    Ok(vec![builder.matmul(&a, &b)?])
}

/// Products of batches of matrices and a sum.
pub fn baddbmm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (c, a, b) = (arguments.floats("self")?, arguments.floats("batch1")?, arguments.floats("batch2")?);
    let (alpha, beta) = (arguments.float("alpha", 1.0)?, arguments.float("beta", 1.0)?);
    let factor = |builder: &mut Builder, x: Operand, factor: f64| -> Result<Operand> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = builder.number(factor, x.dtype)?;
        builder.pair("onnx.Mul@14", &x, &factor)
    };
    let product = builder.matmul(&a, &b)?;
    let (product, c) = (factor(builder, product, alpha)?, factor(builder, c, beta)?);
    Ok(vec![builder.pair("onnx.Add@14", &product, &c)?])
}

/// A product as `torch.matmul` has it: vectors are rows or columns, batches stretch.
pub fn matmul(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (a, b) = (arguments.floats("self")?, arguments.floats("other")?);
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::invalid("a product needs dimensions"));
    }
    // A vector on the left is one row, one on the right one column; the result has no such dimension.
    let wide = if a.rank() == 1 { builder.reshape(&a, &[1, a.shape[0]])? } else { a.clone() };
    let tall = if b.rank() == 1 { builder.reshape(&b, &[b.shape[0], 1])? } else { b.clone() };
    let product = builder.matmul(&wide, &tall)?;
    let mut shape = product.shape.clone();
    if b.rank() == 1 {
        shape.pop();
    }
    if a.rank() == 1 {
        shape.remove(shape.len() - usize::from(b.rank() != 1) - 1);
    }
    Ok(vec![builder.reshape(&product, &shape)?])
}

/// `softmax(q · kᵀ · scale + mask) · v`. A row that may see nothing gives zeros.
pub fn attention(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (q, k, v) = (arguments.floats("query")?, arguments.floats("key")?, arguments.floats("value")?);
    let mut mask = arguments.optional("attn_mask");
    if arguments.float("dropout_p", 0.0)? != 0.0 {
        return Err(Error::unsupported("dropout, which draws random numbers"));
    }
    let (causal, grouped) = (arguments.flag("is_causal", false)?, arguments.flag("enable_gqa", false)?);
    let ([.., l, e], [.., s, _]) = (q.shape.as_slice(), k.shape.as_slice()) else {
        return Err(Error::invalid(format!("attention of {} to {}", q.ty(), k.ty())));
    };
    let (l, s) = (*l, *s);
    let scale = match arguments.number("scale")? {
        Some(scale) => scale.value,
        None => (*e as f64).sqrt().recip(),
    };
    // PyTorch refuses both, too.
    if causal && mask.is_some() {
        return Err(Error::invalid("both `attn_mask` and `is_causal`"));
    }
    if causal {
        if l.checked_mul(s).is_none_or(|elements| elements > MOST_MASK) {
            return Err(Error::unsupported(format!("a causal mask of {l} × {s}")));
        }
        // Aligned at the upper left corner, as `torch.ones(L, S).tril()`: query `i` sees the keys up to `i`.
        let seen: Vec<i64> = (0..l * s).map(|at| i64::from(at % s <= at / s)).collect();
        mask = Some(builder.constant(Tensor::from_i64(DType::Bool, vec![l, s], &seen)?));
    }
    // Heads are split below; the result has the queries' shape with the values' size.
    let whole = q.shape.clone();
    let heads = if grouped { Some(HeadGroups::from_operands(&q, &k, &v)?) } else { None };
    let [q, k, v] = match &heads {
        None => [q, k, v],
        Some(heads) => {
            [heads.of_queries(builder, &q)?, heads.of_keys(builder, &k)?, heads.of_keys(builder, &v)?]
        }
    };
    if let (Some(heads), Some(given)) = (&heads, &mask) {
        mask = Some(heads.of_mask(builder, given)?);
    }
    let scale = builder.number(scale, q.dtype)?;
    let (q, k) = (builder.pair("onnx.Mul@14", &q, &scale)?, builder.transpose_matrix(&k)?);
    let mut scores = builder.matmul(&q, &k)?;
    let hidden = mask.as_ref().filter(|mask| mask.dtype == DType::Bool);
    match (&mask, hidden) {
        (Some(_), Some(seen)) => {
            let nothing = builder.number(f64::NEG_INFINITY, scores.dtype)?;
            // A mask of truths says what takes part.
            scores = select_elements(builder, seen, &scores, &nothing)?;
        }
        (Some(added), None) => scores = builder.pair("onnx.Add@14", &scores, added)?,
        (None, _) => {}
    }
    // A row of −∞ alone is NaN here.
    let mut shares = builder.unary("onnx.Softmax@13", json!({"axis": -1}), &scores)?;
    // Where a row sees something, what it does not see has no share anyway.
    if let Some(seen) = hidden.filter(|_| !causal) {
        let nothing = builder.number(0.0, shares.dtype)?;
        shares = select_elements(builder, seen, &shares, &nothing)?;
    }
    let found = builder.matmul(&shares, &v)?;
    let shape = match heads {
        None => found.shape.clone(),
        Some(_) => [&whole[..whole.len() - 1], &v.shape[v.rank() - 1..]].concat(),
    };
    Ok(vec![builder.reshape(&found, &shape)?])
}

/// Heads of queries that share those of keys and values.
struct HeadGroups {
    /// Heads of keys and values.
    groups: usize,
    /// Heads of queries for each of them.
    each: usize,
}

impl HeadGroups {
    /// Heads are the dimension before the last two.
    ///
    /// # Errors
    /// If there is none, or the heads of queries are no multiple of those of keys and values.
    fn from_operands(q: &Operand, k: &Operand, v: &Operand) -> Result<HeadGroups> {
        let wrong = || Error::invalid(format!("heads of {}, {} and {}", q.ty(), k.ty(), v.ty()));
        let heads = |x: &Operand| x.rank().checked_sub(3).map(|at| x.shape[at]).ok_or_else(wrong);
        let (queries, groups) = (heads(q)?, heads(k)?);
        if groups > 0 && queries.is_multiple_of(groups) && heads(v)? == groups {
            Ok(HeadGroups { groups, each: queries / groups })
        } else {
            Err(wrong())
        }
    }

    /// The dimension of heads in two.
    fn split(&self, builder: &mut Builder, x: &Operand, [groups, each]: [usize; 2]) -> Result<Operand> {
        let at = x.rank() - 3;
        let shape = [&x.shape[..at], &[groups, each], &x.shape[at + 1..]].concat();
        builder.reshape(x, &shape)
    }

    /// `[…, groups, each, l, e]`: consecutive heads of queries share one of keys.
    fn of_queries(&self, builder: &mut Builder, q: &Operand) -> Result<Operand> {
        self.split(builder, q, [self.groups, self.each])
    }

    /// `[…, groups, 1, s, e]`, which broadcasts to the queries.
    fn of_keys(&self, builder: &mut Builder, k: &Operand) -> Result<Operand> {
        self.split(builder, k, [self.groups, 1])
    }

    /// A mask with a dimension of heads, split as the scores are. One without broadcasts as it is.
    fn of_mask(&self, builder: &mut Builder, mask: &Operand) -> Result<Operand> {
        match mask.rank().checked_sub(3).map(|at| mask.shape[at]) {
            None => Ok(mask.clone()),
            Some(1) => self.split(builder, mask, [1, 1]),
            Some(_) => self.split(builder, mask, [self.groups, self.each]),
        }
    }
}

/// Weights of a normalisation, or ones and zeros in their place.
///
/// # Errors
/// If one has another shape or dtype than `x`.
fn affine(
    builder: &mut Builder,
    arguments: &Arguments,
    x: &Operand,
    shape: &[usize],
) -> Result<[Operand; 2]> {
    let mut given = |name: &str, default: f64| match arguments.optional(name) {
        Some(given) if given.shape == shape && given.dtype == x.dtype => Ok(given),
        Some(given) => Err(Error::invalid(format!("`{name}` is {}, expected {shape:?}", given.ty()))),
        None => builder.fill_constant(default, x.dtype, shape.to_vec()),
    };
    Ok([given("weight", 1.0)?, given("bias", 0.0)?])
}

/// Normalised along the last dimensions.
pub fn layer_norm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.ignore(&["cudnn_enable"]);
    let x = arguments.floats("input")?;
    let shape: Vec<i64> = arguments.needed_ints("normalized_shape")?;
    // The last dimensions have to be exactly those that are named.
    let from = x.rank().checked_sub(shape.len()).filter(|_| !shape.is_empty());
    let from = from.filter(|&from| x.shape[from..].iter().map(|&size| size as i64).eq(shape.iter().copied()));
    let from =
        from.ok_or_else(|| Error::invalid(format!("`normalized_shape` is {shape:?} for {}", x.ty())))?;
    let epsilon = arguments.float("eps", 1e-5)?;
    let [weight, bias] = affine(builder, arguments, &x, &x.shape[from..])?;
    let ty = (x.dtype, x.shape.clone());
    let attributes = json!({"axis": from, "epsilon": epsilon});
    Ok(vec![builder.add_operator("onnx.LayerNormalization@17", attributes, &[&x, &weight, &bias], ty)?])
}

/// Normalised by statistics that are known.
pub fn batch_norm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    // They concern training and the choice of a kernel.
    arguments.ignore(&["momentum", "cudnn_enabled"]);
    arguments.expect("training", false)?;
    let x = arguments.floats("input")?;
    let channels =
        x.shape.get(1).copied().ok_or_else(|| Error::invalid(format!("{} has no channels", x.ty())))?;
    let epsilon = arguments.float("eps", 1e-5)?;
    let [weight, bias] = affine(builder, arguments, &x, &[channels])?;
    let (mean, variance) = (arguments.floats("running_mean")?, arguments.floats("running_var")?);
    if mean.shape != [channels] || variance.shape != [channels] {
        return Err(Error::invalid(format!("statistics of {} for {}", mean.ty(), x.ty())));
    }
    let ty = (x.dtype, x.shape.clone());
    let inputs = [&x, &weight, &bias, &mean, &variance];
    Ok(vec![builder.add_operator(
        "onnx.BatchNormalization@15",
        json!({ "epsilon": epsilon }),
        &inputs,
        ty,
    )?])
}

/// Normalised in groups of channels.
pub fn group_norm(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.ignore(&["cudnn_enabled"]);
    let x = arguments.floats("input")?;
    let groups = usize::try_from(arguments.needed_int("num_groups")?).ok().filter(|groups| *groups > 0);
    let groups =
        groups.filter(|&groups| x.rank() >= 2 && groups <= x.shape[1] && x.shape[1].is_multiple_of(groups));
    let groups = groups.ok_or_else(|| Error::invalid(format!("`num_groups` does not fit {}", x.ty())))?;
    let epsilon = arguments.float("eps", 1e-5)?;
    let (batch, channels) = (x.shape[0], x.shape[1]);
    // Each group is a channel of an instance: the scale of ONNX's `GroupNormalization` differs between its versions.
    let rows = builder.reshape(&x, &[batch, groups, x.elements() / (batch * groups).max(1)])?;
    let (ones, zeros) = (
        builder.fill_constant(1.0, x.dtype, vec![groups])?,
        builder.fill_constant(0.0, x.dtype, vec![groups])?,
    );
    let ty = (x.dtype, rows.shape.clone());
    let rows = [&rows, &ones, &zeros];
    let normal =
        builder.add_operator("onnx.InstanceNormalization@6", json!({ "epsilon": epsilon }), &rows, ty)?;
    let mut found = builder.reshape(&normal, &x.shape)?;
    // `[channels, 1, …]` broadcasts to `[batch, channels, …]`.
    let along: Vec<usize> = std::iter::once(channels).chain(vec![1; x.rank() - 2]).collect();
    for (name, kind) in [("weight", "onnx.Mul@14"), ("bias", "onnx.Add@14")] {
        if let Some(given) = arguments.optional(name) {
            let given = builder.reshape(&given, &along)?;
            found = builder.pair(kind, &found, &given)?;
        }
    }
    Ok(vec![found])
}

/// `softmax`, or its logarithm, along a dimension.
pub fn softmax(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    // `half_to_float`, which only CUDA has, gives `f32` for `f16`.
    arguments.expect("half_to_float", false)?;
    let x = arguments.floats("self")?;
    if arguments.dtype("dtype")?.is_some_and(|dtype| dtype != x.dtype) {
        return Err(Error::unsupported("another dtype"));
    }
    let axis = x.axis(arguments.needed_int("dim")?)?;
    if x.rank() == 0 {
        return Err(Error::unsupported("a number without dimensions"));
    }
    Ok(vec![builder.unary(kind, json!({ "axis": axis }), &x)?])
}
