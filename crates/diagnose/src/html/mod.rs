//! A diagnosis as one HTML page that needs no network: a template, its data and its filters.
//!
//! The template escapes every text by itself, because its name ends in `.html`. Texts come from models and devices of others.

use crate::report::{Diagnosis, Fault, FaultKind};
use minijinja::value::{Serde, Value as Any};
use minijinja::{Environment, context};
use std::fmt::Write;
use tapml_cause::ErrorMap;
use tapml_graph::{Error, Result};
use tapml_migrate::ratio_text;

/// Renders the diagnosis.
///
/// The page holds the whole report as JSON, too.
///
/// # Errors
///
/// Only a defect of the template or of the report's fields.
pub fn html(found: &Diagnosis) -> Result<String> {
    let bug = |e: minijinja::Error| Error::bug(format!("the report's page: {e:#}"));
    let mut env = Environment::new();
    env.add_filter("ratio", ratio_text);
    // Infinity is stored as the largest finite number.
    env.add_filter("sci", |v: f64| if v < f64::MAX { format!("{v:.1e}") } else { "infinite".into() });
    env.add_filter("number", |v: f64| format!("{v:.8e}"));
    env.add_filter("fixed", |v: f64, digits: usize| format!("{v:.digits$}"));
    env.add_filter("words", |text: String| text.replace('_', " "));
    env.add_template("page.html", include_str!("page.html")).map_err(bug)?;
    let pretty =
        serde_json::to_string_pretty(found).map_err(|e| Error::bug(format!("the report as JSON: {e}")))?;
    let faults = found.faults_by_impact();
    let pictures: Vec<Any> = faults
        .iter()
        // The drawing is made of numbers alone, so it needs no escaping.
        .map(|f| Any::from_safe_string(f.error_map.as_ref().map(drawing).unwrap_or_default()))
        .collect();
    let between = found.faults.iter().filter(|f| f.kind == FaultKind::Between).count();
    let page = env.get_template("page.html").map_err(bug)?;
    page.render(context! {
        report => Any::from(Serde(found)),
        faults => Any::from(Serde(&faults)),
        sure => faults.iter().map(|f| f.sure()).collect::<Vec<_>>(),
        verdict => verdict(found),
        device => format!("{}, {}", found.target.device, found.target.driver),
        version => env!("CARGO_PKG_VERSION"),
        pictures => pictures,
        between => between,
        worst => found.faults.iter().map(worst).fold(0.0, f64::max),
        pretty => pretty,
    })
    .map_err(bug)
}

/// The result in two words.
fn verdict(found: &Diagnosis) -> &'static str {
    match (found.faults.is_empty(), found.holds()) {
        (false, _) => "faults",
        (true, false) => "not all run",
        (true, true) => "no fault",
    }
}

/// A ratio to compare: NaN is worse than any number.
fn worst(fault: &Fault) -> f64 {
    if fault.worst_ratio.is_nan() { f64::INFINITY } else { fault.worst_ratio }
}

/// The cells of an output by how far they are off; right ones are left out.
fn drawing(picture: &ErrorMap) -> String {
    /// Pixels of a cell, with the gap to the next.
    const CELL: usize = 9;
    let [rows, columns] = picture.grid.cells;
    let [all_rows, all_columns] = picture.grid.shape;
    let (width, height) = (columns * CELL, rows * CELL);
    // A report read from a file may hold any numbers.
    if width == 0 || height == 0 || picture.grid.ratios.len() != rows * columns {
        return String::new();
    }
    let mut svg = format!(
        "<svg class=\"grid\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">"
    );
    for (i, &ratio) in picture.grid.ratios.iter().enumerate().filter(|(_, r)| **r > 1.0) {
        let (row, column) = (i / columns, i % columns);
        // Ratios from 1e30 on are drawn as values that are not finite.
        let class = match ratio {
            r if r >= 1e30 => "nan",
            r if r >= 1000.0 => "far",
            r if r >= 10.0 => "off",
            _ => "near",
        };
        let (first_row, first_column) = (row * all_rows / rows, column * all_columns / columns);
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>from row {first_row}, column {first_column}: {ratio:.1e} times the allowed error</title></rect>",
            column * CELL,
            row * CELL,
            CELL - 1,
            CELL - 1
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_cause::Grid;

    #[test]
    fn only_wrong_cells_are_drawn() {
        let grid =
            Grid { output: 0, shape: [2, 6], cells: [2, 3], ratios: vec![0.5, 2.0, 1e30, 1.0, 50.0, 5e4] };
        let picture = ErrorMap { text: String::new(), drawing: String::new(), grid };
        let svg = drawing(&picture);
        assert_eq!(svg.matches("<rect").count(), 4);
        for class in ["near", "nan", "off", "far"] {
            assert_eq!(svg.matches(&format!("class=\"{class}\"")).count(), 1, "{class}");
        }
        assert!(svg.contains("from row 1, column 2"));
        let broken = Grid { ratios: vec![2.0], ..picture.grid.clone() };
        assert_eq!(drawing(&ErrorMap { grid: broken, ..picture }), "");
    }
}
