//! The texts of `product/row`.
//!
//! A text is a choice of fragments: how the row lies in workgroup memory, how subgroups take their work, what is done
//! to the row on the way, and what each weight is. Bindings and the functions that pick a weight by its quad are
//! written here.

use super::sizes::{ITEMS, LANES, MOST, POOLS, ROW_SIZES};
use crate::kernel::compose::{Composition, Fragment, fragment};

/// What all texts have in common.
const ROW: Fragment = fragment!("product/row.wgsl", [] => []);
/// How the row lies in workgroup memory.
const POOL: Fragment = fragment!("product/row_pool.wgsl", ["POOL"] => ["x_eight", "put_eight"]);
/// The row as integers of 24 bits, digit by digit, with a factor for every 32 elements.
const INTEGERS: Fragment =
    fragment!("product/row_planes.wgsl", ["POOL", "Load"] => ["put_eight", "products"]);
/// How subgroups go through their quads.
const ITEM_BY_ITEM: Fragment =
    fragment!("product/row_items.wgsl", ["quad_sum", "stage", "store"] => ["main"]);
/// All parts of a subgroup as one stream, in which the next load is always issued before the one at hand is used.
const STREAM: Fragment = fragment!(
    "product/row_stream.wgsl",
    ["LOAD", "Load", "load_of", "products", "scales_of", "stage", "store"] => ["main"]
);
/// How the row gets into workgroup memory.
const AS_IT_IS: Fragment = fragment!("product/row_as_it_is.wgsl", ["put_eight", "x"] => ["stage"]);
/// Normalised by its root mean square, with the weights of a norm.
const NORMALISED: Fragment = fragment!("product/row_normalised.wgsl", ["input_eight", "keep_eight", "norm_w", "put_eight"] => ["stage"]);
/// What is normalised.
const ONE: Fragment = fragment!("product/row_one.wgsl", ["x"] => ["input_eight", "keep_eight"]);
/// The sum of two rows, which is stored too.
const TWO: Fragment =
    fragment!("product/row_two.wgsl", ["x", "more", "sum_out"] => ["input_eight", "keep_eight"]);
/// Weights, and what is done for each of them.
const PLAIN: Fragment = fragment!("product/row_plain.wgsl", ["x_eight"] => ["Load", "Sums", "add_load"]);
/// For each plain weight.
const PLAIN_PART: Fragment = fragment!("product/row_plain_part.wgsl", ["Load", "O0", "Sums", "add_load", "w0"] => ["load0", "partial0"]);
/// What packed weights have in common.
const PACKED: Fragment = fragment!("product/row_packed.wgsl", [] => ["LOAD", "Load", "scales_of"]);
/// For each packed weight.
const PACKED_PART: Fragment =
    fragment!("product/row_packed_part.wgsl", ["LOAD", "Load", "scale0", "w0"] => ["load0"]);
/// Products of unpacked elements with the row as it is.
const FLOATS: Fragment = fragment!("product/row_floats.wgsl", ["Load", "x_eight"] => ["products"]);
/// Which weight a quad is of, and what becomes of its sums.
const GATED_LOAD: Fragment =
    fragment!("product/row_gated_load.wgsl", ["Load", "O0", "O1", "load0", "load1"] => ["load_of"]);
/// The sums of a quad of plain weights, gate and up by turns.
const GATED_SUM: Fragment = fragment!("product/row_gated_sum.wgsl", ["partial0", "partial1"] => ["quad_sum"]);
/// The gate is applied as results are stored.
const GATED: Fragment = fragment!("product/row_gated.wgsl", ["O0", "y0"] => ["store"]);
/// Adds a bias to results.
const BIAS: Fragment = fragment!("product/row_bias.wgsl", ["B_DTYPE", "b0"] => ["bias0"]);
/// Nothing is added.
const UNBIASED: Fragment = fragment!("product/row_unbiased.wgsl", [] => ["bias0"]);
/// Stores the columns of a quad of one weight.
const STORE: Fragment = fragment!("product/row_store.wgsl", ["O0", "bias0", "y0"] => ["store0"]);

/// What the text depends on.
#[derive(Clone, Copy)]
pub struct RowShape {
    /// Whether weights are packed.
    pub packed: bool,
    /// Whether the row lies in workgroup memory as integers.
    pub integer_row: bool,
    /// Whether the input is normalised, and whether it is a sum then.
    pub norm: Option<bool>,
    /// How many weights there are, up to [`MOST`].
    pub weights: usize,
    /// Whether there are two weights, of which the first makes the gate.
    pub gated: bool,
    /// Whether each output has a bias.
    pub bias: bool,
    /// Size of the row in workgroup memory: one of [`POOLS`] or [`ROW_SIZES`].
    pub pool: u32,
}

/// What a binding holds, and whether it is written.
struct BoundBinding {
    /// Name of the variable.
    name: String,
    /// WGSL type of an element.
    element: &'static str,
    /// Whether the kernel writes it.
    written: bool,
}

impl RowShape {
    /// The bindings but the symbols.
    ///
    /// Names end in the number of the weight that they belong to. Their order is the one that [`super::Product`]
    /// documents.
    fn bound(&self) -> Vec<BoundBinding> {
        let mut all = Vec::new();
        let mut add =
            |name: &str, element, written| all.push(BoundBinding { name: name.into(), element, written });
        add("x", "vec4<act>", false);
        if self.norm == Some(true) {
            add("more", "vec4<act>", false);
        }
        if self.norm.is_some() {
            add("norm_w", "vec4<u32>", false);
        }
        for at in 0..self.weights {
            add(&format!("w{at}"), "vec4<u32>", false);
            if self.packed {
                add(&format!("scale{at}"), "u32", false);
            }
        }
        // Gate and up make one output.
        let outputs = if self.gated { 1 } else { self.weights };
        for at in (0..outputs).filter(|_| self.bias) {
            add(&format!("b{at}"), "u32", false);
        }
        if self.norm == Some(true) {
            add("sum_out", "vec4<act>", true);
        }
        (0..outputs).for_each(|at| add(&format!("y{at}"), "act_out", true));
        all
    }

    /// Whether each binding is written.
    pub fn bindings(&self) -> Vec<bool> {
        self.bound().iter().map(|bound| bound.written).collect()
    }

    /// Bytes of workgroup memory.
    pub fn memory(&self) -> u32 {
        // Of an octet: 16 bytes of two digits, 8 of the third, and a quarter of a factor of 4 bytes.
        let row = if self.integer_row { 25 } else { 16 } * self.pool;
        row + 16 * ITEMS + if self.norm.is_some() { 4 * LANES } else { 0 }
    }

    /// The text.
    ///
    /// Equal shapes give equal texts, so that a device compiles each shape a single time for each set of constants.
    pub fn text(&self) -> Composition {
        let mut text = Composition::default();
        text.add(&ROW);
        text.declare("POOL", format!("const POOL = {}u;", self.pool));
        text.add(if self.integer_row { &INTEGERS } else { &POOL });
        // Packed weights are few bytes a row: their loads are chained over parts.
        text.add(if self.packed { &STREAM } else { &ITEM_BY_ITEM });
        text.line("");
        let bound = self.bound();
        for (at, BoundBinding { name, element, written }) in bound.iter().enumerate() {
            text.bind(at, *written, name, element);
        }
        text.bind_symbols(bound.len());
        for at in 0..self.weights {
            text.declare(&format!("O{at}"), format!("override O{at}: u32; // rows of weight {at}"));
        }
        let staged: &[&Fragment] = match self.norm {
            None => &[&AS_IT_IS],
            Some(false) => &[&NORMALISED, &ONE],
            Some(true) => &[&NORMALISED, &TWO],
        };
        // The fragment of integers has products of its own.
        let weights: &[&Fragment] = match (self.packed, self.integer_row) {
            (true, true) => &[&PACKED],
            (true, false) => &[&PACKED, &FLOATS],
            (false, _) => &[&PLAIN],
        };
        staged.iter().chain(weights).for_each(|fragment| text.add(fragment));
        let part = if self.packed { &PACKED_PART } else { &PLAIN_PART };
        (0..self.weights).for_each(|at| text.add_numbered(part, at));
        if self.gated {
            text.add(if self.packed { &GATED_LOAD } else { &GATED_SUM });
            text.add(&GATED);
        } else {
            self.add_stores(&mut text);
        }
        text
    }

    /// Writes the functions that find a quad's weight.
    ///
    /// Quads follow each other weight by weight. Each weight begins a quad of its own, so that no quad is shared.
    fn add_stores(&self, text: &mut Composition) {
        if self.bias {
            let line = "\noverride B_DTYPE: u32 = 0u; // of biases; 0: f32, 1: f16, 2: bf16";
            text.declare("B_DTYPE", line);
        }
        for at in 0..self.weights {
            text.add_numbered(if self.bias { &BIAS } else { &UNBIASED }, at);
            text.add_numbered(&STORE, at);
        }
        // A chain of comparisons rather than an array: WGSL cannot index bindings.
        let chosen = |call: &dyn Fn(usize) -> String| {
            let quads = (0..self.weights).map(|at| format!("(O{at} + 3u) / 4u"));
            let cases = quads.enumerate().map(|(at, quads)| {
                format!("    if rest < {quads} {{\n        {};\n    }}\n    rest -= {quads};\n", call(at))
            });
            format!("    var rest = quad;\n{}", cases.collect::<String>())
        };
        if self.packed {
            let load = chosen(&|at| format!("return load{at}(rows_of(rest, O{at}), at)"));
            let last = self.weights - 1;
            let rest = format!("load{last}(rows_of(quad, O{last}), at)");
            // Quads behind the last weight's end read its last rows: their sums are not stored.
            let line = format!("\nfn load_of(quad: u32, at: u32) -> Load {{\n{load}    return {rest};\n}}");
            text.declare("load_of", line);
        } else {
            let sum = chosen(&|at| format!("return partial{at}(rest, part, within, size)"));
            let given = "quad: u32, part: u32, within: u32, size: u32";
            let line = format!("\nfn quad_sum({given}) -> vec4<f32> {{\n{sum}    return vec4<f32>();\n}}");
            text.declare("quad_sum", line);
        }
        let store = chosen(&|at| format!("store{at}(rest, i, column);\n        return"));
        text.declare("store", format!("\nfn store(quad: u32, i: u32, column: u32) {{\n{store}}}"));
    }
}

/// Every shape.
pub fn all() -> Vec<RowShape> {
    let plain = POOLS.map(|pool| (false, false, pool));
    let floats = POOLS.map(|pool| (true, false, pool));
    let planes = ROW_SIZES.map(|pool| (true, true, pool));
    let mut all = Vec::new();
    for (packed, planes, pool) in plain.into_iter().chain(floats).chain(planes) {
        for norm in [None, Some(false), Some(true)] {
            for bias in [false, true] {
                let shape = |weights, gated| RowShape {
                    packed,
                    integer_row: planes,
                    norm,
                    weights,
                    gated,
                    bias,
                    pool,
                };
                all.extend((1..=MOST).map(|weights| shape(weights, false)));
                all.push(shape(2, true));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_what_they_need() {
        let packed = [PACKED, PACKED_PART, FLOATS, INTEGERS, STREAM, GATED_LOAD];
        let plain = [PLAIN, PLAIN_PART, POOL, ITEM_BY_ITEM, GATED_SUM];
        let both = [ROW, AS_IT_IS, NORMALISED, ONE, TWO, GATED, BIAS, UNBIASED, STORE];
        packed.iter().chain(&plain).chain(&both).for_each(Fragment::expect_names);
        for shape in all() {
            assert_eq!(shape.text().missing(), Vec::<&str>::new());
        }
    }
}
