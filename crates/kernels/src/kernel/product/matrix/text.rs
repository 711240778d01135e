//! The texts of `product/matrix`.
//!
//! The entry point is written out line by line for each shape. Loops over the matrices of a subgroup are unrolled
//! here.

use super::shape::{Format, MatrixShape, Tile, UNIT};
use crate::kernel::compose::{Composition, Fragment, fragment};

/// What all texts have in common: where rows are read, and where pieces of them go.
const MATRIX: Fragment =
    fragment!("product/matrix.wgsl", ["DEPTH", "STEP", "tiles"] => ["x_from", "slot", "put_piece"]);
/// Where a lane reads a weight, and how it is put into workgroup memory.
const PLAIN: Fragment = fragment!("product/matrix_plain.wgsl", [] => ["w_from"]);
/// What packed weights have in common: 16 elements are a share, with one scale.
const PACKED: Fragment =
    fragment!("product/matrix_packed.wgsl", ["DEPTH", "STEP"] => ["w_row", "share_from", "share", "half_at"]);
/// Two planes of integers of 4 bits.
const FOUR: Fragment = fragment!("product/matrix_four.wgsl", ["PLANE", "tiles"] => ["put_share"]);
/// Two planes of integers of 8 bits.
const EIGHT: Fragment = fragment!("product/matrix_eight.wgsl", ["PLANE", "tiles"] => ["put_share"]);
/// What becomes of the results.
const ONE: Fragment = fragment!("product/matrix_one.wgsl", ["b", "results", "y"] => ["keep"]);
/// Two products and the gate.
const GATED: Fragment = fragment!("product/matrix_gated.wgsl", ["results", "y"] => ["held", "keep"]);

/// What a lane brings of the columns.
struct ColumnShare {
    number: u32,
    /// `None` stands for the first weight in the first half of the lanes, and the second one in the others.
    weight: Option<&'static str>,
    /// Its place among what all lanes bring of that weight.
    from: String,
}

/// The text of a shape.
pub fn compose_shape(shape: MatrixShape) -> Composition {
    let mut text = Composition::default();
    // WGSL wants directives in front of all declarations; `crate::wgsl` moves this one in front of the prelude.
    text.line("enable wgpu_cooperative_matrix;");
    text.add(&MATRIX);
    let formats: &[&Fragment] = match shape.format {
        Format::Plain => &[&PLAIN],
        Format::Four => &[&PACKED, &FOUR],
        Format::Eight => &[&PACKED, &EIGHT],
    };
    formats.iter().for_each(|format| text.add(format));
    text.add(if shape.gated { &GATED } else { &ONE });
    text.line("");
    let mut writer = MatrixWriter { shape, text };
    writer.declare();
    writer.main();
    writer.text
}

/// Writes what differs from shape to shape: everything of a subgroup has a name, so that it stays in registers.
///
/// Unit 1 of row 0 of the result is `c0_1`, and `r0_1` is its sum within an accumulation block. `x0_1` is piece 0 of
/// the rows for step 1, `w0_1` share 0 of the weights.
struct MatrixWriter {
    /// What is written.
    shape: MatrixShape,
    /// The text so far.
    text: Composition,
}

impl MatrixWriter {
    /// Writes a line of the text.
    fn line(&mut self, text: impl AsRef<str>) {
        self.text.line(text);
    }

    /// Bindings, workgroup memory, sizes.
    fn declare(&mut self) {
        let MatrixShape { format, gated, tile, .. } = self.shape;
        let words = match format {
            Format::Four => "vec2<u32>",
            Format::Plain | Format::Eight => "vec4<u32>",
        };
        let mut bound = vec![(false, "x".to_string(), "vec4<u32>")];
        for name in self.shape.weights() {
            bound.push((false, name.to_string(), words));
            if format != Format::Plain {
                bound.push((false, format!("{name}_scale"), "u32"));
            }
        }
        if !gated {
            bound.push((false, "b".into(), "u32"));
        }
        bound.push((true, "y".into(), "act_out"));
        for (at, (written, name, element)) in bound.iter().enumerate() {
            self.text.bind(at, *written, name, element);
        }
        self.text.bind_symbols(bound.len());
        let sizes =
            [("TALL", tile.rows), ("WIDE", tile.columns), ("DEPTH", tile.depth), ("STEP", tile.step())];
        for (name, size) in sizes {
            self.text.declare(name, format!("const {name} = {size}u;"));
        }
        self.text.declare("PLANE", "// Quads of a plane of weights.\nconst PLANE = WIDE * STEP;");
        let (quads, results) = (self.shape.vec4_count(), self.shape.waiting_results());
        self.text.declare("tiles", format!("var<workgroup> tiles: array<vec4<f16>, {quads}>;"));
        self.text.declare("results", format!("var<workgroup> results: array<f32, {results}>;"));
        // Half of the lanes read one weight, and half the other: a function picks the binding, which WGSL cannot
        // index.
        if self.shares().any(|share| share.weight.is_none()) {
            for (suffix, words) in [("", words), ("_scale", "u32")] {
                self.line(format!("\nfn either{suffix}(lane: u32, at: u32) -> {words} {{"));
                self.line(format!(
                    "    if lane >= {}u {{\n        return up{suffix}[at];\n    }}",
                    tile.lanes() / 2
                ));
                self.line(format!("    return gate{suffix}[at];\n}}"));
            }
        }
    }

    /// Writes the entry point: loads of the first steps, the loop over K, and the stores.
    ///
    /// A step waits until all lanes have multiplied what lies in workgroup memory, and puts its loads there. It waits
    /// again, issues the loads of the step `ahead` steps on, and multiplies.
    fn main(&mut self) {
        let Tile { own_rows, own_columns, depth, ahead, .. } = self.shape.tile;
        let run = self.shape.run();
        let (lanes, parts) = (self.shape.tile.lanes(), self.shape.tile.columns / own_columns);
        let own_width = own_columns / self.shape.weights().len() as u32;
        self.line(format!(
            "\n@compute @workgroup_size({lanes})\nfn main(\n    @builtin(workgroup_id) group: vec3<u32>,\n    \
             @builtin(local_invocation_index) lane: u32,\n) {{"
        ));
        // WGSL demands that barriers are reached by all: the front end must see that `rows` is alike everywhere.
        self.line("    // As `row_count`; what all lanes have alike must be seen to be.");
        self.line("    let rows = ROWS_N * symbols.n + ROWS_P * symbols.p + ROWS_C;");
        self.line("    let first = group.x * TALL;");
        self.line("    if first >= rows {\n        return;\n    }");
        self.line(format!("    let column = group.y * {}u;", self.width()));
        self.line(format!("    let top = lane / 32u / {parts}u * {own_rows}u;"));
        self.line(format!("    let left = lane / 32u % {parts}u * {own_width}u;"));
        self.of_units(|unit| format!("    var c{unit} = coop_mat16x16<f32, C>();"));
        self.start();
        self.line(format!("    for (var k = 0u; k < K; k += {ahead}u * DEPTH) {{"));
        for step in 0..ahead {
            if (step * depth).is_multiple_of(run) {
                let fresh = "coop_mat16x16<f32, C>();";
                let put = if step == 0 { "var " } else { "" };
                self.of_units(|unit| format!("        {put}r{unit} = {fresh}"));
            }
            self.line("        workgroupBarrier();");
            self.put(step);
            self.line("        workgroupBarrier();");
            // Loads behind the end read the last step again, so that the loop needs no case of its own.
            self.line(format!("        let k{step} = min(k + {}u * DEPTH, K - DEPTH);", ahead + step));
            self.load("        ", step, &format!("k{step}"));
            // A block of its own, so that names of matrices may come again in the next step.
            self.line("        {");
            (0..self.shape.tile.depth / UNIT).for_each(|unit| self.multiply(unit));
            self.line("        }");
            if ((step + 1) * depth).is_multiple_of(run) {
                self.of_units(|unit| format!("        c{unit} = c{unit} + r{unit};"));
            }
        }
        self.line("    }");
        self.store();
        self.line("}");
    }

    /// Columns of y that a tile gives.
    fn width(&self) -> u32 {
        self.shape.tile.columns / self.shape.weights().len() as u32
    }

    /// A line for each unit of a subgroup.
    fn of_units(&mut self, line: impl Fn(String) -> String) {
        self.units().for_each(|(row, column)| self.line(line(format!("{row}_{column}"))));
    }

    /// Units of the part of a subgroup: those of a row follow each other, and with gates those of one weight.
    fn units(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Tile { own_rows, own_columns, .. } = self.shape.tile;
        (0..own_rows / UNIT).flat_map(move |row| (0..own_columns / UNIT).map(move |column| (row, column)))
    }

    /// Pieces of the rows that a lane brings.
    /// A piece is 16 bytes: 8 elements of f16.
    fn pieces(&self) -> u32 {
        self.shape.tile.rows * self.shape.tile.depth / 8 / self.shape.tile.lanes()
    }

    /// What a lane brings of the columns.
    fn shares(&self) -> impl Iterator<Item = ColumnShare> + use<> {
        // A plain piece is 16 bytes; a packed share is 16 elements.
        let elements = if self.shape.format == Format::Plain { 8 } else { 16 };
        let (lanes, weights) = (self.shape.tile.lanes(), self.shape.weights());
        let all = self.shape.tile.columns * self.shape.tile.depth / elements;
        let of_weight = all / weights.len() as u32;
        (0..all / lanes).map(move |i| {
            if of_weight < lanes {
                ColumnShare { number: i, weight: None, from: format!("lane % {of_weight}u") }
            } else {
                let weight = weights[(i * lanes / of_weight) as usize];
                let from = format!("lane + {}u", i * lanes % of_weight);
                ColumnShare { number: i, weight: Some(weight), from }
            }
        })
    }

    /// Where a lane reads, and the first steps of it.
    ///
    /// Variables are named after their number and their step, so that they are registers and not an array.
    fn start(&mut self) {
        let Tile { ahead, .. } = self.shape.tile;
        let lanes = self.shape.tile.lanes();
        for i in 0..self.pieces() {
            self.line(format!("    let x_at{i} = x_from(first, rows, lane + {}u);", i * lanes));
        }
        for ColumnShare { number: i, from, .. } in self.shares() {
            match self.shape.format {
                Format::Plain => self.line(format!("    let w_at{i} = w_from(column, {from});")),
                _ => {
                    self.line(format!("    let w_row{i} = w_row(column, {from});"));
                    self.line(format!("    let w_from{i} = share_from({from});"));
                }
            }
        }
        for step in 0..ahead {
            for i in 0..self.pieces() {
                self.line(format!("    var x{i}_{step} = vec4<u32>();"));
            }
            for ColumnShare { number: i, .. } in self.shares() {
                match self.shape.format {
                    Format::Four => self.line(format!("    var w{i}_{step} = vec2<u32>();")),
                    _ => self.line(format!("    var w{i}_{step} = vec4<u32>();")),
                }
                if self.shape.format != Format::Plain {
                    self.line(format!("    var scale{i}_{step} = 0u;"));
                }
            }
            self.load("    ", step, &format!("{step}u * DEPTH"));
        }
    }

    /// Loads DEPTH elements from k on as what is under way for a step.
    fn load(&mut self, indent: &str, step: u32, k: &str) {
        for i in 0..self.pieces() {
            self.line(format!("{indent}x{i}_{step} = x[x_at{i} + {k} / 8u];"));
        }
        for ColumnShare { number: i, weight, .. } in self.shares() {
            if self.shape.format == Format::Plain {
                let w = weight.unwrap_or_default();
                self.line(format!("{indent}w{i}_{step} = {w}[w_at{i} + {k} / 8u];"));
                continue;
            }
            let of = |suffix: &str, at: &str| match weight {
                Some(w) => format!("{w}{suffix}[{at}]"),
                None => format!("either{suffix}(lane, {at})"),
            };
            let words = of("", &format!("w_row{i} * (K / 16u) + ({k} + w_from{i}) / 16u"));
            self.line(format!("{indent}w{i}_{step} = {words};"));
            let at = format!("w_row{i} * (K / GROUP) + ({k} + w_from{i}) / GROUP");
            let scale = of("_scale", &format!("({at}) / 2u"));
            self.line(format!("{indent}scale{i}_{step} = half_at({scale}, {at});"));
        }
    }

    /// Puts what was loaded for a step into workgroup memory.
    fn put(&mut self, step: u32) {
        let lanes = self.shape.tile.lanes();
        for i in 0..self.pieces() {
            self.line(format!("        put_piece(slot(lane + {}u), x{i}_{step});", i * lanes));
        }
        for ColumnShare { number: i, .. } in self.shares() {
            let at = i * lanes;
            match self.shape.format {
                Format::Plain => {
                    self.line(format!("        put_piece(TALL * STEP + slot(lane + {at}u), w{i}_{step});"));
                }
                _ => {
                    let given = format!("TALL * STEP + share(lane + {at}u), w{i}_{step}, scale{i}_{step}");
                    self.line(format!("        put_share({given});"));
                }
            }
        }
    }

    /// Where unit `column` of a subgroup lies among the columns of a tile, beyond `left`.
    fn column_offset(&self, column: u32) -> u32 {
        let count = self.shape.tile.own_columns / UNIT / self.shape.weights().len() as u32;
        column / count * self.width() + column % count * UNIT
    }

    /// Multiplies 16 elements along K.
    /// Each of the two planes of a packed weight is multiplied by the same rows, into the same sums.
    fn multiply(&mut self, unit: u32) {
        let Tile { own_rows, own_columns, .. } = self.shape.tile;
        let quad = unit * UNIT / 4;
        for row in 0..own_rows / UNIT {
            let at = format!("(top + {}u) * STEP + {quad}u", row * UNIT);
            self.line(format!(
                "        let a{unit}_{row} = coopLoadT<coop_mat16x16<f16, A>>(&tiles[{at}], STEP);"
            ));
        }
        for plane in 0..self.shape.weight_tiles() {
            for column in 0..own_columns / UNIT {
                let b = format!("b{unit}_{plane}_{column}");
                let at = format!("(left + {}u) * STEP + {quad}u", self.column_offset(column));
                let at = format!("TALL * STEP + {plane}u * PLANE + {at}");
                self.line(format!("        let {b} = coopLoad<coop_mat16x16<f16, B>>(&tiles[{at}], STEP);"));
                for row in 0..own_rows / UNIT {
                    let run = format!("r{row}_{column}");
                    self.line(format!("        {run} = coopMultiplyAdd(a{unit}_{row}, {b}, {run});"));
                }
            }
        }
    }

    /// Stores all results, one after the other: of two weights gates are read back before what they let pass takes their place.
    fn store(&mut self) {
        let count = self.shape.tile.own_columns / UNIT / self.shape.weights().len() as u32;
        self.line(format!("    let at = lane / 32u * {}u;", UNIT * UNIT));
        for (row, column) in self.units().filter(|(_, column)| *column < count) {
            self.line(format!(
                "    coopStoreT(c{row}_{column}, &results[at], 16u);\n    workgroupBarrier();"
            ));
            let mut given = "at, lane".to_string();
            if self.shape.gated {
                let unit = format!("{row}_{column}");
                self.line(format!("    let low{unit} = held(at, lane);"));
                self.line(format!("    let high{unit} = held(at + 128u, lane);\n    workgroupBarrier();"));
                let up = format!("c{row}_{}", column + count);
                self.line(format!("    coopStoreT({up}, &results[at], 16u);\n    workgroupBarrier();"));
                given = format!("{given}, low{unit}, high{unit}");
            }
            let place = format!("first + top + {}u, rows, column + left + {}u", row * UNIT, column * UNIT);
            self.line(format!("    keep({place}, {given});\n    workgroupBarrier();"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_what_they_need() {
        [MATRIX, PLAIN, PACKED, FOUR, EIGHT, ONE, GATED].iter().for_each(Fragment::expect_names);
        for shape in MatrixShape::all() {
            assert_eq!(compose_shape(shape).missing(), Vec::<&str>::new());
        }
    }
}
