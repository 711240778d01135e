//! Convolutions, computed as they are defined.
//!
//! Tensors are `[batch, channels, …]` with up to three dimensions behind, and weights `[outputs, channels of a group,
//! …]`, as in <https://onnx.ai/onnx/operators/onnx__Conv.html>. A convolution can also run as a product of matrices
//! in tiles.

use super::epilogue::{Epilogue, with_epilogue};
use super::window::{Window, WindowSizes, windowed};
use super::{OnnxNode, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_device::AdapterKind;
use tapml_graph::{Dim, Error, Extent, Result};

/// The convolution as it is defined.
const DIRECT: KernelSource = windowed!("convolution", "convolution.wgsl");
/// The convolution as a product; lines of the text are repeated by [`repeat_text`].
const TILED: KernelSource = windowed!("convolution_tiled", "convolution_tiled.wgsl");
/// The transposed convolution: each element of the output looks for what reaches it.
const TRANSPOSED: KernelSource = windowed!("transposed", "transposed.wgsl");

/// Channels of the output that an invocation treats.
const TILE: u32 = 4;

/// Attributes; the last one is that of transposed convolutions alone.
const READ: [&str; 7] =
    ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "output_padding"];

/// What both kinds have in common: sizes of input, weight and output, groups, and the bias.
struct ConvSizes {
    /// Sizes of the input.
    x: Vec<u32>,
    /// Sizes of the weight.
    w: Vec<u32>,
    /// Sizes of the output.
    y: Vec<u32>,
    /// Groups of channels; at least 1.
    groups: u32,
}

/// The sizes of a convolution, from its operands and attributes.
///
/// # Errors
/// `Unsupported` for operands of several dtypes or ranks, `InvalidInput` for sizes that contradict each other.
fn parts(node: &OnnxNode) -> Result<ConvSizes> {
    let dtype = node.float_dtype()?;
    let (x, w, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    if w.dtype() != dtype || y.dtype() != dtype {
        return Err(node.unserved_error("weights of another dtype"));
    }
    let groups = u32::try_from(node.int("group", 1)?).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| Error::invalid("`group` is no positive integer"))?;
    let parts = ConvSizes { x: x.sizes()?, w: w.sizes()?, y: y.sizes()?, groups };
    let ranks = [parts.x.len(), parts.w.len(), parts.y.len()];
    if !ranks.iter().all(|&rank| rank == ranks[0] && rank > 2) {
        return Err(node.unserved_error(&format!("{} with {}", x.ty, w.ty)));
    }
    node.may_take(2, dtype, &parts.y[1..2])?;
    if parts.x[0] == parts.y[0] { Ok(parts) } else { Err(Error::invalid(format!("{} from {}", y.ty, x.ty))) }
}

/// A convolution to plan, alone or with what becomes of its result.
struct ConvProblem<'a> {
    /// The convolution.
    node: OnnxNode<'a>,
    /// What becomes of its result.
    epilogue: Epilogue,
    /// Its window.
    window: Window,
    /// Channels of x in a group, of y in a group, groups.
    channels: u32,
    outputs: u32,
    groups: u32,
    /// Elements of a channel of y.
    places: u32,
    /// Elements of the batch.
    batch: u32,
    /// Terms of a sum.
    terms: u32,
}

impl<'a> ConvProblem<'a> {
    /// Checks that the declared sizes are those that the window gives.
    fn from_request(request: &'a Request) -> Result<ConvProblem<'a>> {
        let (node, epilogue) = with_epilogue(request, 1)?;
        node.reads(&READ[..6])?;
        let ConvSizes { x, w, y, groups } = parts(&node)?;
        let window = Window::from_node(
            &node,
            WindowSizes { input: &x[2..], output: &y[2..], kernel: &w[2..] },
            false,
        )?;
        window.expect_convolved()?;
        let (channels, outputs) = (w[1], w[0] / groups);
        let fits = channels.checked_mul(groups) == Some(x[1]) && outputs * groups == w[0];
        if !fits || outputs == 0 || y[1] != w[0] {
            return Err(Error::invalid(format!("{x:?} with a weight of {w:?} in {groups} groups")));
        }
        let (places, terms) = (count(&y[2..])?, channels.saturating_mul(count(&w[2..])?));
        Ok(ConvProblem { node, epilogue, window, channels, outputs, groups, places, batch: y[0], terms })
    }

    /// By a kernel with this text, a workgroup of which treats so many channels of so many places.
    fn plan(self, kernel: KernelSource, text: &str, [rows, columns]: [u32; 2]) -> Result<NodePlan> {
        let ConvProblem { node, epilogue, window, channels, outputs, groups, places, batch, terms } = self;
        let (dtype, bias) = (node.float_dtype()?, node.optional(2));
        // An invocation adds all terms one after the other, and the bias.
        let chain = terms.saturating_add(1).saturating_add(epilogue.additions);
        let kernel = KernelSource { math: epilogue.math, ..kernel };
        let launch = kernel.launch(dtype, dtype)?.read(whole(node.input(0)?)).read(whole(node.input(1)?));
        let launch = launch.read(bias.map_or(Arg::Constant(0), whole)).output(node.output(0)?.index);
        let tiles = outputs.div_ceil(rows);
        let launch = launch.set("CHANNELS", channels).set("OUTPUTS", outputs).set("GROUPS", groups);
        let launch =
            launch.set("TILES", tiles).set("PLACES", places).set("HAS_BIAS", u32::from(bias.is_some()));
        let launch = epilogue.join(window.set(launch), text, 4);
        let grid = [
            Extent::from_dim(u64::from(places.div_ceil(columns))),
            Extent::from_dim(u64::from(groups.saturating_mul(tiles))),
            Extent::from_dim(u64::from(batch)),
        ];
        Ok(plan_with(&kernel, vec![launch.groups(grid)], vec![vec![0; 4]], chain))
    }
}

/// A convolution as it is defined.
pub fn plan(request: &Request) -> Result<NodePlan> {
    ConvProblem::from_request(request)?.plan(DIRECT, DIRECT.text, [TILE, 256])
}

/// A convolution as a product of matrices: several channels share what they read.
pub fn plan_tiled(request: &Request) -> Result<NodePlan> {
    let problem = ConvProblem::from_request(request)?;
    let tile = Tile::from_problem(&problem)?;
    let kernel = KernelSource { lanes: tile.lanes(), workgroup_memory: tile.memory(), ..TILED };
    problem.plan(kernel, &tile.text(), [tile.rows, tile.columns])
}

/// Whether tiles are faster than the definition, by what `tapml tune` measured
/// (docs/results/data/convolution_tiles.json.gz).
pub fn gains_by_tiles(request: &Request) -> bool {
    let Ok(problem) = ConvProblem::from_request(request) else { return false };
    let Ok(tile) = Tile::from_problem(&problem) else { return false };
    if request.info.kind == AdapterKind::Cpu {
        // A processor pays for the cells of a tile that lie beyond the problem, and for loads that few results share.
        return tile.cells == Tile::MOST_CELLS && tile.useful_share(&problem) >= 0.6;
    }
    // A GPU has cells to spare, but loading a tile takes longer than a short sum.
    problem.terms >= 48 && problem.places >= 16
}

// What an invocation of the tiled kernel does for each of its elements of the tiles, and for each of its places.
// `#` is a number, so that each value has a name of its own and stays in a register.
const LOAD_W: &str = "            w# = weight(first + (lane + #u * LANES) % DEPTH, tile + (lane + #u * LANES) / DEPTH, base);\n";
const LOAD_X: &str =
    "            x# = term(first + lane / COLUMNS + #u * (LANES / COLUMNS), corner, plane, is_place);\n";
const STORE_W: &str =
    "        tile_w[(lane + #u * LANES) % DEPTH * STRIDE + (lane + #u * LANES) / DEPTH] = w#;\n";
const STORE_X: &str =
    "        tile_x[(lane / COLUMNS + #u * (LANES / COLUMNS)) * COLUMNS + lane % COLUMNS] = x#;\n";
const PRODUCT: &str =
    "                s# = fma(weights, vec4<f32>(tile_x[k * COLUMNS + column + #u * APART]), s#);\n";
const STORE: &str = "        let o# = group.x * COLUMNS + column + #u * APART;
        if o# < PLACES {
            y[start + o#] = to_act(epilogue(s#[t] + b, start + o#, m));
        }
";

/// The text once for each number below `count`, which `#` stands for.
fn repeat_text(count: u32, text: &str) -> String {
    (0..count).map(|number| text.replace('#', &number.to_string())).collect()
}

/// The part of the product that a workgroup computes.
#[derive(Clone, Copy)]
struct Tile {
    /// Channels of y.
    rows: u32,
    /// Places of y.
    columns: u32,
    /// Places that an invocation treats.
    cells: u32,
}

impl Tile {
    /// Terms of the sums that lie in a workgroup's memory at a time.
    const DEPTH: u32 = 16;
    /// Channels that an invocation treats.
    const CHANNELS: u32 = 4;
    /// Places that an invocation treats in the tiles of more than 32 channels.
    const MOST_CELLS: u32 = 4;
    /// Channels and terms below which most of a tile is empty.
    const LEAST: u32 = 8;

    /// Fails where a tile would be mostly empty.
    fn from_problem(problem: &ConvProblem) -> Result<Tile> {
        let &ConvProblem { outputs, places, terms, .. } = problem;
        if outputs < Tile::LEAST || terms < Tile::LEAST || places == 0 {
            let text = format!("{outputs} channels of sums of {terms} terms: a tile has no use");
            return Err(Error::unsupported(text));
        }
        let rows = if outputs <= 16 {
            16
        } else if outputs <= 32 {
            32
        } else {
            64
        };
        // 256 invocations: each loads at most 4 elements of either tile. SwiftShader compiles 8 such loads for minutes.
        Ok(Tile { rows, columns: 64, cells: rows * Tile::MOST_CELLS / 64 })
    }

    /// Multiplications that the problem asks for, of those that its tiles do.
    fn useful_share(self, problem: &ConvProblem) -> f64 {
        let share =
            |size: u32, step: u32| f64::from(size) / (f64::from(size.div_ceil(step)) * f64::from(step));
        let &ConvProblem { outputs, places, terms, .. } = problem;
        share(outputs, self.rows) * share(places, self.columns) * share(terms, Tile::DEPTH)
    }

    /// Invocations of a workgroup.
    fn lanes(self) -> u32 {
        self.rows / Tile::CHANNELS * (self.columns / self.cells)
    }

    /// Bytes of workgroup memory: both tiles, that of the weights with one element more in each step.
    fn memory(self) -> u32 {
        Tile::DEPTH * (self.rows + 1 + self.columns) * 4
    }

    /// The kernel's text with what an invocation does several times over.
    fn text(self) -> String {
        let Tile { rows, columns, cells } = self;
        let depth = Tile::DEPTH;
        let (of_w, of_x) = (rows * depth / self.lanes(), columns * depth / self.lanes());
        let parts = [
            ("SUMS", repeat_text(cells, "    var s# = vec4<f32>();\n")),
            ("VALUES", repeat_text(of_w, "    var w# = 0.0;\n") + &repeat_text(of_x, "    var x# = 0.0;\n")),
            ("LOADS", repeat_text(of_w, LOAD_W) + &repeat_text(of_x, LOAD_X)),
            ("KEEPS", repeat_text(of_w, STORE_W) + &repeat_text(of_x, STORE_X)),
            ("PRODUCTS", repeat_text(cells, PRODUCT)),
            ("STORES", repeat_text(cells, STORE)),
        ];
        let text = parts
            .into_iter()
            .fold(TILED.text.to_string(), |text, (name, part)| text.replace(&format!("{name}\n"), &part));
        let sizes = [("ROWS", rows), ("COLUMNS", columns), ("CELLS", cells), ("DEPTH", depth)];
        let sizes: String = sizes.iter().map(|(name, size)| format!("const {name} = {size}u;\n")).collect();
        sizes + &text
    }
}

/// `ConvTranspose`; see <https://onnx.ai/onnx/operators/onnx__ConvTranspose.html>.
pub fn plan_transposed(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[&READ[..], &["output_shape"]].concat())?;
    let ConvSizes { x, w, y, groups } = parts(&node)?;
    let window =
        Window::from_node(&node, WindowSizes { input: &x[2..], output: &y[2..], kernel: &w[2..] }, true)?;
    let (channels, outputs) = (w[0] / groups, w[1]);
    if x[1] != w[0] || channels * groups != w[0] || outputs.checked_mul(groups) != Some(y[1]) {
        return Err(Error::invalid(format!("{x:?} with a weight of {w:?} in {groups} groups")));
    }
    let (dtype, bias) = (node.float_dtype()?, node.optional(2));
    let elements = count(&y)?;
    let launch = TRANSPOSED.launch(dtype, dtype)?.read(whole(node.input(0)?)).read(whole(node.input(1)?));
    let launch = launch.read(bias.map_or(Arg::Constant(0), whole)).output(node.output(0)?.index);
    let launch = launch.set("COUNT", elements).set("CHANNELS", channels).set("OUTPUTS", outputs);
    let launch = launch.set("GROUPS", groups).set("HAS_BIAS", u32::from(bias.is_some()));
    let launch = window.set(launch);
    let chain = channels.saturating_mul(count(&w[2..])?).saturating_add(1);
    Ok(plan_with(&TRANSPOSED, vec![launch.flat(Dim::from(u64::from(elements)))], vec![vec![0; 4]], chain))
}
