//! Products of many rows on matrix units: `matrix.wgsl`, beside the launch for one row. Activations are f16;
//! weights are f16, or packed ones that go by two planes of f16, so that nothing of them is lost.

use crate::kernel::Request;
use crate::kernel::asked::Asked;
use crate::kernel::source::{Kernel, LaunchBuilder, one, plan_of, unserved};
use crate::kernel::weights::Weight;
use crate::plan::{Arg, Launch, NodePlan};
use std::fmt::Write as _;
use tapml_graph::op::Packing;
use tapml_graph::{DType, Extent, Result, TensorType};

const NAME: &str = "product/matrix";
/// Lanes of a subgroup.
const SUBGROUP: u32 = 32;
/// Rows and columns of one product on matrix units, and its elements along K.
const UNIT: u32 = 16;
/// Elements along K at a time, at least.
const DEPTH: u32 = 32;
/// Columns from which on a prompt has enough large tiles for a large GPU.
const MANY_COLUMNS: u32 = 3072;

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Plain,
    Four,
    Eight,
}

/// What a workgroup computes, and each of its subgroups.
#[derive(Clone, Copy)]
struct Tile {
    rows: u32,
    columns: u32,
    own_rows: u32,
    own_columns: u32,
    /// Elements along K at a time.
    depth: u32,
    /// How many of these steps are under way.
    ahead: u32,
}

impl Tile {
    const LARGE: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };
    /// For two planes of a weight, or of two.
    const PLANES: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: DEPTH, ahead: 4 };
    /// For products of one weight that would have too few large ones.
    const SMALL: Tile =
        Tile { rows: 64, columns: 64, own_rows: 32, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };

    /// Of weights in this format, `gated` for two, that have `few` columns.
    fn of(format: Format, gated: bool, few: bool) -> Tile {
        match format {
            _ if few && !gated => Tile::SMALL,
            Format::Plain => Tile::LARGE,
            _ => Tile::PLANES,
        }
    }

    /// The tile for rows of so many elements: in shorter steps, if they do not consist of whole ones.
    fn along(self, k: u32) -> Tile {
        match k.is_multiple_of(self.depth * self.ahead) {
            true => self,
            false => Tile { depth: DEPTH, ahead: 1, ..self },
        }
    }

    /// Quads of four elements from a row in workgroup memory to the next, two more so that rows hit other banks.
    fn step(self) -> u32 {
        self.depth / 4 + 2
    }

    fn lanes(self) -> u32 {
        self.rows / self.own_rows * self.columns / self.own_columns * SUBGROUP
    }
}

/// What the text depends on.
#[derive(Clone, Copy)]
struct Shape {
    format: Format,
    gated: bool,
    tile: Tile,
}

impl Shape {
    fn all() -> impl Iterator<Item = Shape> {
        let formats = [Format::Plain, Format::Four, Format::Eight].into_iter();
        let kinds = [(false, true), (false, false), (true, false)];
        let shapes = formats.flat_map(move |format| {
            kinds.map(|(gated, few)| Shape { format, gated, tile: Tile::of(format, gated, few) })
        });
        shapes.flat_map(|shape| [0, DEPTH].map(|k| Shape { tile: shape.tile.along(k), ..shape }))
    }

    /// Weights by their names.
    fn weights(self) -> &'static [&'static str] {
        if self.gated { &["gate", "up"] } else { &["w"] }
    }

    /// Tiles of the weights.
    fn planes(self) -> u32 {
        if self.format == Format::Plain { 1 } else { 2 }
    }

    /// Quads in workgroup memory.
    fn quads(self) -> u32 {
        (self.tile.rows + self.planes() * self.tile.columns) * self.tile.step()
    }

    /// Elements along K whose products matrix units add up: those of all steps under way, of two planes those of one step. They
    /// cut bits off where sums of f32 round, always towards zero, so that a long sum drifts (Fasi, Higham, Mikaitis and
    /// Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): what a run gives is added as f32.
    fn run(self) -> u32 {
        if self.planes() == 1 { self.tile.depth * self.tile.ahead } else { self.tile.depth }
    }

    /// Results that wait in workgroup memory, a unit of each subgroup.
    fn waiting(self) -> u32 {
        UNIT * UNIT * self.tile.lanes() / SUBGROUP
    }

    /// Bytes of workgroup memory.
    fn memory(self) -> u32 {
        8 * self.quads() + 4 * self.waiting()
    }

    fn file(self) -> String {
        let formats: &[&str] = match self.format {
            Format::Plain => &["plain"],
            Format::Four => &["packed", "four"],
            Format::Eight => &["packed", "eight"],
        };
        let last = if self.gated { "gated" } else { "one" };
        let files = formats.iter().chain([&last]).map(|file| format!("+product/matrix_{file}.wgsl"));
        std::iter::once("product/matrix.wgsl".to_string()).chain(files).collect()
    }

    fn text(self) -> String {
        let mut text = "enable wgpu_cooperative_matrix;\n".to_string();
        text.push_str(include_str!("matrix.wgsl"));
        text.push_str(match self.format {
            Format::Plain => include_str!("matrix_plain.wgsl"),
            _ => include_str!("matrix_packed.wgsl"),
        });
        text.push_str(match self.format {
            Format::Plain => "",
            Format::Four => include_str!("matrix_four.wgsl"),
            Format::Eight => include_str!("matrix_eight.wgsl"),
        });
        text.push_str(match self.gated {
            true => include_str!("matrix_gated.wgsl"),
            false => include_str!("matrix_one.wgsl"),
        });
        text.push('\n');
        let mut writer = Writer { shape: self, text };
        writer.declare();
        writer.main();
        writer.text
    }

    fn launch(self, out: DType) -> Result<LaunchBuilder> {
        let lanes = self.tile.lanes();
        let mut kernel = Kernel { weights: true, math: self.gated, lanes, ..Kernel::flat(NAME, "", "") };
        kernel.workgroup_memory = self.memory();
        kernel.launch(DType::F16, out)
    }
}

/// Writes what differs from shape to shape: everything of a subgroup has a name, so that it stays in registers.
struct Writer {
    shape: Shape,
    text: String,
}

impl Writer {
    fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "{}", text.as_ref());
    }

    /// Bindings, workgroup memory, sizes.
    fn declare(&mut self) {
        let Shape { format, gated, tile, .. } = self.shape;
        let words = match format {
            Format::Four => "vec2<u32>",
            Format::Plain | Format::Eight => "vec4<u32>",
        };
        let mut bound = vec![("read", "x".to_string(), "vec4<u32>")];
        for name in self.shape.weights() {
            bound.push(("read", name.to_string(), words));
            if format != Format::Plain {
                bound.push(("read", format!("{name}_scale"), "u32"));
            }
        }
        if !gated {
            bound.push(("read", "b".into(), "u32"));
        }
        bound.push(("read_write", "y".into(), "act_out"));
        for (at, (access, name, element)) in bound.iter().enumerate() {
            self.line(format!("@group(0) @binding({at}) var<storage, {access}> {name}: array<{element}>;"));
        }
        self.line(format!("@group(0) @binding({}) var<uniform> symbols: Symbols;", bound.len()));
        let results = self.shape.waiting();
        self.line(format!("const TALL = {}u;\nconst WIDE = {}u;", tile.rows, tile.columns));
        self.line(format!("const DEPTH = {}u;\nconst STEP = {}u;", tile.depth, tile.step()));
        self.line("// Quads of a plane of weights.\nconst PLANE = WIDE * STEP;");
        self.line(format!("var<workgroup> tiles: array<vec4<f16>, {}>;", self.shape.quads()));
        self.line(format!("var<workgroup> results: array<f32, {results}>;"));
        if self.shares().any(|(_, weight, _)| weight.is_none()) {
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

    fn main(&mut self) {
        let Tile { own_rows, own_columns, depth, ahead, .. } = self.shape.tile;
        let run = self.shape.run();
        let (lanes, parts) = (self.shape.tile.lanes(), self.shape.tile.columns / own_columns);
        let own_width = own_columns / self.shape.weights().len() as u32;
        self.line(format!(
            "\n@compute @workgroup_size({lanes})\nfn main(\n    @builtin(workgroup_id) group: vec3<u32>,\n    \
             @builtin(local_invocation_index) lane: u32,\n) {{"
        ));
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
            self.line(format!("        let k{step} = min(k + {}u * DEPTH, K - DEPTH);", ahead + step));
            self.load("        ", step, &format!("k{step}"));
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
    fn pieces(&self) -> u32 {
        self.shape.tile.rows * self.shape.tile.depth / 8 / self.shape.tile.lanes()
    }

    /// What a lane brings of the columns: number, weight, and its place among what all bring of that weight. `None` for the
    /// weight stands for the first one in the first half of the lanes, and the second one in the others.
    fn shares(&self) -> impl Iterator<Item = (u32, Option<&'static str>, String)> + use<> {
        let elements = if self.shape.format == Format::Plain { 8 } else { 16 };
        let (lanes, weights) = (self.shape.tile.lanes(), self.shape.weights());
        let all = self.shape.tile.columns * self.shape.tile.depth / elements;
        let of_weight = all / weights.len() as u32;
        (0..all / lanes).map(move |i| match of_weight < lanes {
            true => (i, None, format!("lane % {of_weight}u")),
            false => {
                let weight = weights[(i * lanes / of_weight) as usize];
                (i, Some(weight), format!("lane + {}u", i * lanes % of_weight))
            }
        })
    }

    /// Where a lane reads, and the first steps of it.
    fn start(&mut self) {
        let Tile { ahead, .. } = self.shape.tile;
        let lanes = self.shape.tile.lanes();
        for i in 0..self.pieces() {
            self.line(format!("    let x_at{i} = x_from(first, rows, lane + {}u);", i * lanes));
        }
        for (i, _, from) in self.shares() {
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
            for (i, ..) in self.shares() {
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
        for (i, weight, _) in self.shares() {
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
        for (i, ..) in self.shares() {
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
    fn beyond(&self, column: u32) -> u32 {
        let count = self.shape.tile.own_columns / UNIT / self.shape.weights().len() as u32;
        column / count * self.width() + column % count * UNIT
    }

    /// Multiplies 16 elements along K.
    fn multiply(&mut self, unit: u32) {
        let Tile { own_rows, own_columns, .. } = self.shape.tile;
        let quad = unit * UNIT / 4;
        for row in 0..own_rows / UNIT {
            let at = format!("(top + {}u) * STEP + {quad}u", row * UNIT);
            self.line(format!(
                "        let a{unit}_{row} = coopLoadT<coop_mat16x16<f16, A>>(&tiles[{at}], STEP);"
            ));
        }
        for plane in 0..self.shape.planes() {
            for column in 0..own_columns / UNIT {
                let b = format!("b{unit}_{plane}_{column}");
                let at = format!("(left + {}u) * STEP + {quad}u", self.beyond(column));
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

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    Shape::all().map(Shape::text)
}

/// The plan of a product of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let asked = Asked::of(request.op, request.inputs).ok_or_else(|| unserved(request))?;
    let first = match asked.packing {
        Some(packing) => Weight::packed(request, 1, packing)?,
        None => Weight::plain(request, 1),
    };
    let mut weights = vec![first];
    if asked.gated {
        weights.push(match asked.packing {
            Some(packing) => Weight::packed(request, weights[0].after(), packing)?,
            None => Weight::plain(request, weights[0].after()),
        });
    }
    let bias = if asked.gated { None } else { request.inputs.get(weights[0].after()) };
    let weights: Vec<&Weight> = weights.iter().collect();
    let found = launch(request, &weights, bias).filter(|_| request.binds_whole());
    let (launch, chain) = found.ok_or_else(|| unserved(request))?;
    let lacks_bias = bias.is_none() && !asked.gated;
    let constants = if lacks_bias { vec![vec![0; 4]] } else { Vec::new() };
    Ok(NodePlan { constants, ..plan_of(launch, chain) })
}

fn launch(request: &Request, weights: &[&Weight], bias: Option<&TensorType>) -> Option<(Launch, u32)> {
    let (x, out) = (&request.inputs[0], request.outputs[0].dtype);
    let k = u32::try_from(x.shape[1].as_const()?).ok()?;
    let width = u32::try_from(weights[0].ty.shape[0].as_const()?).ok()?;
    let packing = weights[0].packing();
    let format = match packing {
        None if weights[0].ty.dtype == DType::F16 => Format::Plain,
        // Two planes of f16 do not hold what is left of the smallest numbers of 8 bits.
        Some(p) if p.zeros || p.float || !p.group.is_multiple_of(UNIT) => return None,
        Some(Packing { bits: 4, .. }) => Format::Four,
        Some(Packing { bits: 8, .. }) => Format::Eight,
        _ => return None,
    };
    let many = x.shape[0].as_const().is_none();
    let fits = x.dtype == DType::F16 && k > 0 && k.is_multiple_of(DEPTH) && width > 0;
    if !request.info.features.matrices || !many || !fits {
        return None;
    }
    let gated = weights.len() > 1;
    let tile = Tile::of(format, gated, width < MANY_COLUMNS).along(k);
    let shape = Shape { format, gated, tile };
    let mut launch = shape.launch(out).ok()?.input(0);
    launch = weights.iter().flat_map(|w| w.inputs()).fold(launch, LaunchBuilder::input);
    if !gated {
        launch = launch.optional(weights[0].after(), bias).given(["HAS_BIAS", "B_DTYPE"], bias).ok()?;
    }
    launch = launch.bind(true, Arg::Output(0)).rows(&x.shape[0]).ok()?.set("K", k).set("O", width);
    if let Some(packing) = packing {
        launch = launch.packed(packing);
    }
    let columns = Extent::of(u64::from(width.div_ceil(tile.columns / weights.len() as u32)));
    let groups = [Extent::ceil_div(x.shape[0].clone(), tile.rows), columns, one()];
    let mut launch = launch.subgroups().groups(groups);
    launch.desc.source.file = shape.file();
    launch.desc.source.text = shape.text();
    launch.desc.check_limits(request.info).ok()?;
    Some((launch, k / shape.run() + shape.run() / UNIT * shape.planes() + UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgsl::declared;

    #[test]
    fn texts_are_valid() {
        for shape in Shape::all() {
            let launch = shape.launch(DType::F16).unwrap();
            let launch = match shape.format {
                Format::Plain => launch,
                Format::Four => launch.packed(Packing::integers(4, 32, false)),
                Format::Eight => launch.packed(Packing::integers(8, 32, false)),
            };
            let mut launch = launch.groups([one(), one(), one()]);
            launch.desc.source.text = shape.text();
            let found = declared(&launch.desc.source, true).unwrap();
            assert_eq!(found.workgroup_memory, Some(shape.memory()));
        }
    }
}
