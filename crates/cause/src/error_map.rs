//! Which elements are wrong: in words, as a small drawing in text, and as a grid of ratios for a report to draw.
//!
//! Nothing here depends on a cause. The map is drawn also where no hypothesis fits.

use crate::context::CallContext;
use crate::output_view::Out;
use crate::words::ranges;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which elements of the output that departs most are wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorMap {
    /// In words: which rows, columns, heads, lanes or tiles.
    pub text: String,
    /// A drawing of at most 16 lines of 64 characters: `·` right, `+` some wrong, `#` most wrong, `!` not a number.
    pub drawing: String,
    /// The same in numbers.
    pub grid: Grid,
}

/// Ratios of observed to allowed error, the largest of each cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Which output.
    pub output: usize,
    /// Rows and columns of the output.
    pub shape: [usize; 2],
    /// Rows and columns of the grid; at most 32 and 64.
    pub cells: [usize; 2],
    /// The ratios in row-major order; infinite ones as 1e30.
    pub ratios: Vec<f64>,
}

/// Lines of the drawing at most.
const LINES: usize = 16;
/// Characters of a line at most.
const CHARACTERS: usize = 64;
/// Rows and columns of the grid at most.
const CELLS: [usize; 2] = [32, 64];
/// What stands for an infinite ratio, which JSON does not have.
const INFINITE: f64 = 1e30;

impl ErrorMap {
    /// The words are of all outputs, the drawing and the grid of the one with the largest share of wrong elements.
    pub(crate) fn from_context(study: &CallContext<'_>) -> ErrorMap {
        let outs = &study.full.outs;
        let count = |i: &usize| outs[*i].wrong().count() as f64 / outs[*i].exact.len().max(1) as f64;
        let output = (0..outs.len()).max_by(|a, b| count(a).total_cmp(&count(b))).unwrap_or(0);
        let blocks = |width| block_sizes(&study.evidence.call.op.attributes(), width);
        let words = |(i, out): (usize, &Out)| {
            let text = words(out, &blocks(out.width))?;
            Some(if outs.len() > 1 { format!("output {i}: {text}") } else { text })
        };
        let mut text: Vec<String> = outs.iter().enumerate().filter_map(words).collect();
        if text.is_empty() {
            let passed = study.judged.passes();
            // A verdict may fail on the distribution of errors without any wrong element.
            text.push(if passed { "nothing" } else { "no single element, but all together" }.to_string());
        }
        match outs.get(output) {
            Some(out) => ErrorMap { text: text.join("; "), drawing: draw(out), grid: grid(output, out) },
            None => ErrorMap { text: text.join("; "), drawing: String::new(), grid: empty() },
        }
    }
}

/// The grid of a call without outputs.
fn empty() -> Grid {
    Grid { output: 0, shape: [0, 0], cells: [0, 0], ratios: Vec::new() }
}

/// Sizes of runs of columns that the attributes name, such as heads, that divide a row into several.
///
/// The attribute's JSON is read, so that every operator with a count of heads or a size of groups has them. Of equal sizes the first
/// name stays.
pub(crate) fn block_sizes(attributes: &serde_json::Value, width: usize) -> Vec<(String, usize)> {
    let mut sizes: Vec<(String, usize)> = Vec::new();
    for (name, value) in attributes.as_object().into_iter().flatten() {
        let Some(value) = value.as_u64().and_then(|v| usize::try_from(v).ok()).filter(|&v| v > 0) else {
            continue;
        };
        // Names of attributes, as operators have them.
        let size = match name.as_str() {
            // A count of runs instead of the size of one.
            "heads" | "kv_heads" | "groups" | "k" => width / value,
            _ => value,
        };
        let divides = size > 0 && size < width && width.is_multiple_of(size);
        if divides && !sizes.iter().any(|(_, s)| *s == size) {
            sizes.push((name.clone(), size));
        }
    }
    sizes
}

/// Periods of columns that lanes and tiles of kernels have.
/// Sizes that attributes name are tried before them.
const PERIODS: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/// The wrong elements of one output in words; `None` if there are none.
/// Counts first, then rows, columns, values that are not finite, and zeros, each only if it says something.
fn words(out: &Out, blocks: &[(String, usize)]) -> Option<String> {
    let wrong: Vec<usize> = out.wrong().collect();
    if wrong.is_empty() {
        return None;
    }
    let rows: BTreeSet<usize> = wrong.iter().map(|i| i / out.width).collect();
    let columns: BTreeSet<usize> = wrong.iter().map(|i| i % out.width).collect();
    let (rows, columns): (Vec<usize>, Vec<usize>) =
        (rows.into_iter().collect(), columns.into_iter().collect());
    let mut parts = vec![format!("{} of {} elements", wrong.len(), out.exact.len())];
    if out.rows() > 1 {
        parts.push(if rows.len() == out.rows() {
            format!("in all {} rows", out.rows())
        } else {
            format!("in rows {} of {}", ranges(&rows), out.rows())
        });
    }
    if out.width > 1 && columns.len() < out.width {
        parts.push(in_columns(&columns, out.width, blocks));
    }
    let broken = out.observed.iter().zip(&out.exact).filter(|(o, e)| !o.is_finite() && e.is_finite()).count();
    if broken > 0 {
        parts.push(format!("{broken} NaN or infinite"));
    }
    let zeros = wrong.iter().filter(|&&i| out.observed[i] == 0.0).count();
    if zeros > 0 {
        parts.push(format!("{zeros} zero"));
    }
    Some(parts.join(", "))
}

/// Some of the columns of a row in words.
/// Descriptions are tried in this order: runs that attributes name, periods, the end of the row, ranges. Of a run or period at most a
/// fifth of the columns may be right.
fn in_columns(columns: &[usize], width: usize, blocks: &[(String, usize)]) -> String {
    for (name, size) in blocks {
        let runs: BTreeSet<usize> = columns.iter().map(|c| c / size).collect();
        // Four fifths of the columns of these runs are wrong: a few may be right by chance.
        let whole = columns.len() * 10 >= runs.len() * size * 8;
        if whole && runs.len() < width / size {
            let runs: Vec<usize> = runs.into_iter().collect();
            return format!("in runs {} of {size} columns (`{name}`)", ranges(&runs));
        }
    }
    // A period must repeat at least twice.
    let sizes = blocks.iter().map(|(_, s)| *s).chain(PERIODS).filter(|&s| s * 2 <= width);
    for period in sizes {
        let places: BTreeSet<usize> = columns.iter().map(|c| c % period).collect();
        // More than half of a period is no pattern.
        if places.len() * 2 <= period && columns.len() * 10 >= places.len() * (width / period) * 8 {
            let places: Vec<usize> = places.into_iter().collect();
            return format!("in columns {} of each {period}", ranges(&places));
        }
    }
    match columns.first() {
        Some(&first) if columns.len() > 1 && first + columns.len() == width => {
            format!("in columns from {first} on, the last {} of {width}", columns.len())
        }
        _ => format!("in columns {} of {width}", ranges(columns)),
    }
}

/// The cell of a coordinate when `all` of them share `cells`, and the coordinates of a cell.
/// At least one coordinate, so that no cell is empty.
fn span(cell: usize, all: usize, cells: usize) -> std::ops::Range<usize> {
    cell * all / cells..((cell + 1) * all / cells).max(cell * all / cells + 1)
}

/// The drawing in text. A value that is not finite marks its whole cell.
fn draw(out: &Out) -> String {
    // Small outputs have one character per element.
    let (lines, characters) = (out.rows().min(LINES), out.width.min(CHARACTERS));
    let mut text = String::new();
    for line in 0..lines {
        for character in 0..characters {
            let (mut wrong, mut all, mut broken) = (0, 0, false);
            for r in span(line, out.rows(), lines) {
                for c in span(character, out.width, characters) {
                    let i = r * out.width + c;
                    all += 1;
                    wrong += usize::from(out.is_wrong(i));
                    broken |= out.is_wrong(i) && !out.observed[i].is_finite();
                }
            }
            text.push(match (broken, wrong) {
                (true, _) => '!',
                (_, 0) => '·',
                (_, wrong) if 2 * wrong <= all => '+',
                _ => '#',
            });
        }
        text.push('\n');
    }
    text
}

/// The grid of an output: the largest ratio of each cell, so that single wrong elements stay visible.
fn grid(output: usize, out: &Out) -> Grid {
    let cells = [out.rows().min(CELLS[0]), out.width.min(CELLS[1])];
    let mut ratios = Vec::with_capacity(cells[0] * cells[1]);
    for row in 0..cells[0] {
        for column in 0..cells[1] {
            let rows = span(row, out.rows(), cells[0]);
            let worst = rows
                .flat_map(|r| span(column, out.width, cells[1]).map(move |c| r * out.width + c))
                .map(|i| out.ratios[i])
                .fold(0.0, f64::max);
            ratios.push(worst.min(INFINITE));
        }
    }
    Grid { output, shape: [out.rows(), out.width], cells, ratios }
}
