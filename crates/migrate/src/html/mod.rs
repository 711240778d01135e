//! The report of a migration as one HTML page that needs no network: a template, its data and its filters.
//!
//! Texts of the report come from checkpoints and devices: the template engine escapes them. Only the bars
//! are inserted as they are; they consist of numbers.

use crate::composed::is_composed;
use crate::ratio_text;
use crate::report::{BUCKETS, MigrateReport, OpCheck, OpReport};
use minijinja::value::{Serde, Value as Any};
use minijinja::{Environment, context};
use serde::Serialize;
use std::fmt::Write;
use tapml_graph::{Error, Graph, Result};

/// One line of the graph's picture: the nodes of a layer.
#[derive(Serialize)]
struct GraphLayer {
    name: String,
    nodes: Vec<NodeBox>,
}

/// One node of the picture.
#[derive(Serialize)]
struct NodeBox {
    name: String,
    op: &'static str,
    /// In lower case, as JSON has it.
    state: String,
    /// Of the first output.
    ty: String,
}

/// A case with the numbers of its worst element.
#[derive(Serialize)]
struct WorstCase {
    op: String,
    case: String,
    ratio: f64,
    exact: String,
    observed: String,
    allowed: String,
    criterion: String,
}

/// One bar of the times.
#[derive(Serialize)]
struct Time {
    name: &'static str,
    seconds: f64,
    /// Of the longest bar.
    percent: f64,
}

/// Renders the report; `graph` is the graph that was migrated.
pub fn html(report: &MigrateReport, graph: &Graph) -> Result<String> {
    let mut env = Environment::new();
    env.add_filter("ratio", ratio_text);
    env.add_filter("sci", |v: f64| format!("{v:.1e}"));
    env.add_filter("fixed", |v: f64, digits: usize| format!("{v:.digits$}"));
    env.add_filter("histogram", |counts: Vec<u64>| Any::from_safe_string(histogram(&counts)));
    // The template is part of the program, so an error of it is a fault of the program.
    let bug = |e: minijinja::Error| Error::bug(format!("the report's page: {e:#}"));
    env.add_template("page.html", include_str!("page.html")).map_err(bug)?;
    let on_target = |op: &&OpReport| state(op) == "accepted";
    // Fused operators and the choice of the next token are no nodes of the graph that was carved.
    let drawn = |op: &&OpReport| !is_composed(graph, &op.op);
    let worst = report
        .ops
        .iter()
        .filter_map(|o| o.check.as_ref()?.worst.as_ref())
        .map(|w| w.ratio)
        .fold(0.0, f64::max);
    let pretty =
        serde_json::to_string_pretty(report).map_err(|e| Error::bug(format!("the report as JSON: {e}")))?;
    let page = env.get_template("page.html").map_err(bug)?;
    page.render(context! {
        report => serde(report),
        model => report.model.name.as_str(),
        source => report.source.platform.as_str(),
        target => report.target.platform.as_str(),
        device => format!("{}, {}", report.target.device, report.target.driver),
        version => env!("CARGO_PKG_VERSION"),
        accepted => report.ops.iter().filter(on_target).count(),
        nodes_on_target => report.ops.iter().filter(on_target).filter(drawn).map(|o| o.nodes).sum::<u64>(),
        node_count => graph.nodes().len(),
        worst => worst,
        regimes => report.coverage.regimes.text(),
        last => serde(report.ops.iter().rev().find_map(|o| o.model.as_ref())),
        layers => serde(layers(report, graph)),
        worst_cases => serde(report.ops.iter().flat_map(worst_cases).collect::<Vec<_>>()),
        times => serde(times(report)),
        pretty => pretty,
    })
    .map_err(bug)
}

/// A value that the template reads by its JSON fields.
fn serde(value: impl Serialize) -> Any {
    Any::from(Serde(value))
}

/// The state's word.
fn state(op: &OpReport) -> String {
    format!("{:?}", op.state).to_lowercase()
}

/// Nodes in graph order; a new line begins with each layer (`….layers.N`) and after the last one.
fn layers(report: &MigrateReport, graph: &Graph) -> Vec<GraphLayer> {
    let mut layers: Vec<GraphLayer> = Vec::new();
    for node in graph.nodes() {
        let name = layer_of(&node.name);
        let op = report.ops.iter().find(|o| o.op == node.op.name());
        let node_box = NodeBox {
            name: node.name.clone(),
            op: node.op.name(),
            state: op.map_or_else(|| "pending".into(), state),
            ty: node.outputs.first().map(|&v| graph.value(v).ty.to_string()).unwrap_or_default(),
        };
        match layers.last_mut().filter(|l| l.name == name) {
            Some(layer) => layer.nodes.push(node_box),
            None => layers.push(GraphLayer { name, nodes: vec![node_box] }),
        }
    }
    layers
}

/// `model.layers.3` of `model.layers.3.mlp.act`; the name's first part if there is no number in it.
fn layer_of(node: &str) -> String {
    let parts: Vec<&str> = node.split('.').collect();
    let number = parts.iter().position(|p| p.bytes().all(|b| b.is_ascii_digit()));
    parts[..number.map_or(1, |n| n + 1)].join(".")
}

/// The operator's failures; if it has none, its worst case.
fn worst_cases(op: &OpReport) -> Vec<WorstCase> {
    let Some(check) = &op.check else { return Vec::new() };
    let failures = check.failures.iter().take(5).map(|f| WorstCase {
        op: op.op.clone(),
        case: f.case.clone(),
        ratio: f.ratio,
        exact: f.element.as_ref().map_or_else(dash, |e| number(e.exact)),
        observed: f.element.as_ref().map_or_else(dash, |e| number(e.observed)),
        allowed: f.element.as_ref().map_or_else(dash, |e| format!("{:.3e}", e.allowed)),
        criterion: match (&f.error, &f.pattern) {
            (Some(error), _) => error.clone(),
            (None, Some(pattern)) => format!("{}: {}", f.criterion, pattern.text),
            (None, None) => f.criterion.clone(),
        },
    });
    let failures: Vec<WorstCase> = failures.collect();
    if failures.is_empty() { passed_case(&op.op, check).into_iter().collect() } else { failures }
}

/// The worst case of an operator without failures; `None` if nothing was run.
fn passed_case(op: &str, check: &OpCheck) -> Option<WorstCase> {
    let worst = check.worst.as_ref()?;
    let element = worst.element.as_ref();
    Some(WorstCase {
        op: op.into(),
        case: worst.case.clone(),
        ratio: worst.ratio,
        exact: element.map_or_else(dash, |e| number(e.exact)),
        observed: element.map_or_else(dash, |e| number(e.observed)),
        allowed: element.map_or_else(dash, |e| format!("{:.3e}", e.allowed)),
        criterion: "passed".into(),
    })
}

/// For a number that is not there.
fn dash() -> String {
    "–".into()
}

/// Nine significant digits: enough to tell two neighbouring f32 apart.
fn number(value: f64) -> String {
    format!("{value:.8e}")
}

/// Where the time went, as shares of the longest part.
fn times(report: &MigrateReport) -> Vec<Time> {
    let s = &report.seconds;
    let rows = [
        ("import", s.import),
        ("carve", s.carve),
        ("check operators alone", s.check),
        ("compile hybrid models", s.compile),
        ("check hybrid models", s.model),
    ];
    // Above 0, because the shares divide by it.
    let longest = rows.iter().map(|r| r.1).fold(1e-9, f64::max);
    rows.into_iter()
        .map(|(name, seconds)| Time { name, seconds, percent: 100.0 * seconds / longest })
        .collect()
}

/// Bars of the counts on a logarithmic height, with a line at ratio 1; empty text if there are none.
fn histogram(counts: &[u64]) -> String {
    const WIDTH: usize = 7;
    const HEIGHT: f64 = 28.0;
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut svg =
        format!("<svg class=\"hist\" width=\"{}\" height=\"{HEIGHT}\" role=\"img\">", counts.len() * WIDTH);
    for (i, &count) in counts.iter().enumerate().filter(|(_, c)| **c > 0) {
        // One is added, so that a single case has a bar, too.
        let height = HEIGHT * ((count + 1) as f64).ln() / ((most + 1) as f64).ln();
        let over = if i >= BUCKETS / 2 { " class=\"over\"" } else { "" };
        let (x, y, width) = (i * WIDTH, HEIGHT - height, WIDTH - 1);
        let exponent = i as i64 - (BUCKETS / 2) as i64;
        let _ = write!(
            svg,
            "<rect{over} x=\"{x}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\"><title>{count} from 2^{exponent}</title></rect>"
        );
    }
    let at = WIDTH * BUCKETS / 2;
    let _ = write!(svg, "<line x1=\"{at}\" x2=\"{at}\" y1=\"0\" y2=\"{HEIGHT}\"/></svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_by_their_number() {
        assert_eq!(layer_of("model.layers.12.mlp.down_proj"), "model.layers.12");
        assert_eq!(layer_of("model.norm"), "model");
        assert_eq!(layer_of("lm_head"), "lm_head");
    }

    #[test]
    fn the_line_at_one_parts_passes_from_failures() {
        let mut counts = vec![0; BUCKETS];
        counts[crate::report::bucket(0.9)] = 3;
        counts[crate::report::bucket(1.1)] = 1;
        let svg = histogram(&counts);
        assert_eq!(svg.matches("<rect").count(), 2);
        assert_eq!(svg.matches("class=\"over\"").count(), 1);
        assert_eq!(histogram(&[0; BUCKETS]), "");
    }
}
