//! Suites of a PyTorch model: what its modules took and gave, at the places where the graph has values of the same name.
//!
//! Module names of PyTorch and node names of the graph agree, because the importer names nodes by the
//! checkpoint's modules. What has no counterpart is listed, not guessed.

use super::golden::{find, ids, prompts};
use super::values::{AlignRow, Values, WorstElement, worst};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tapml_exec::Image;
use tapml_graph::{Error, Graph, Node, Op, Origin, Result, Tensor};
use tapml_import::Checkpoint;
use tapml_import::safetensors::File;

/// Prefix of the outputs that show values.
const SHOWN: &str = "value: ";

/// A suite, matched with a graph.
pub struct Modules {
    file: File,
    path: PathBuf,
    /// Prompts that the file numbers.
    prompts: usize,
    /// In the order of their names.
    places: Vec<ModulePlace>,
    /// Names without a value in the graph, without the prompt's number.
    unmatched: BTreeSet<String>,
}

/// A place of the suite that has a value in the graph.
struct ModulePlace {
    /// Such as `out.model.norm`.
    name: String,
    /// Name of the value.
    value: String,
    /// Whether the module gives cosines, and sines as its second result, which the graph has side by side.
    rotary: bool,
}

impl Modules {
    /// Matches every tensor of the file with a value of the graph.
    pub fn open(path: &Path, graph: &Graph) -> Result<Modules> {
        let file = File::open(path)?;
        let prompts = prompts(&file, path)?;
        let names = file.entries().iter().filter_map(|e| {
            let (prompt, name) = e.name.strip_prefix('p')?.split_once('.')?;
            let counted = prompt.parse::<usize>().is_ok_and(|p| p < prompts);
            (counted && !matches!(name, "input_ids" | "positions")).then_some(name)
        });
        let (mut places, mut unmatched) = (Vec::new(), BTreeSet::new());
        for name in names.collect::<BTreeSet<&str>>() {
            match place(graph, name) {
                Some(place) => places.push(place),
                // The second results belong to the first ones.
                None if name.contains(':') => {}
                None => drop(unmatched.insert(name.to_string())),
            }
        }
        Ok(Modules { file, path: path.to_path_buf(), prompts, places, unmatched })
    }

    /// What the suite says of a place; `None` if it has another form than the graph's value.
    fn expected_value(&self, prompt: usize, place: &ModulePlace, found: &Tensor) -> Result<Option<Tensor>> {
        let Some(first) = find(&self.file, prompt, &place.name)? else { return Ok(None) };
        let expected = if place.rotary {
            match find(&self.file, prompt, &format!("{}:1", place.name))? {
                Some(second) => side_by_side(&first, &second)?,
                None => None,
            }
        } else {
            Some(first)
        };
        // Fused or transposed forms differ in shape and are left to `unmatched`.
        let rows = |t: &Tensor| t.shape().first().copied();
        Ok(expected.filter(|e| rows(e) == rows(found) && e.row_len() == found.row_len()))
    }
}

/// The value of the graph for a place of the suite.
fn place(graph: &Graph, name: &str) -> Option<ModulePlace> {
    if name == "logits" {
        let output = graph.outputs().iter().find(|o| o.name == name)?;
        let value = graph.value(output.value).name.clone();
        return Some(ModulePlace { name: name.into(), value, rotary: false });
    }
    let (side, module) = name.split_once('.')?;
    let node = node(graph, module)?;
    let value = match side {
        "out" => *node.outputs.first()?,
        // Weights are inputs of a node too; a module's input is the first that is none.
        "in" => *node.inputs.iter().find(|&&v| graph.value(v).origin != Origin::Weight)?,
        _ => return None,
    };
    let computed = matches!(graph.value(value).origin, Origin::Node { .. });
    let rotary = matches!(node.op, Op::RopeAngles(_));
    computed.then(|| ModulePlace { name: name.into(), value: graph.value(value).name.clone(), rotary })
}

/// The node of a module: of the same name, or, where one of the two stands in a larger model, the only one whose name
/// ends alike.
fn node<'a>(graph: &'a Graph, module: &str) -> Option<&'a Node> {
    if let Some(id) = graph.find_node(module) {
        return Some(graph.node(id));
    }
    let ends = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|rest| rest.ends_with('.'));
    let dotted = |name: &str| name.contains('.');
    let mut alike = graph
        .nodes()
        .iter()
        .filter(|n| (ends(&n.name, module) && dotted(module)) || (ends(module, &n.name) && dotted(&n.name)));
    // Two candidates are none: a wrong match would accuse the wrong node.
    alike.next().filter(|_| alike.next().is_none())
}

/// Cosines and sines of each pair, side by side. PyTorch has each of them twice: in halves, or next to each other.
fn side_by_side(cosines: &Tensor, sines: &Tensor) -> Result<Option<Tensor>> {
    let columns = cosines.row_len();
    if cosines.shape() != sines.shape() || columns == 0 || !columns.is_multiple_of(2) {
        return Ok(None);
    }
    let (cos, sin) = (cosines.to_f32(), sines.to_f32());
    let half = columns / 2;
    let halves = cos.chunks(columns).all(|row| row[..half] == row[half..]);
    let pairs = cos.chunks(columns).all(|row| row.chunks(2).all(|pair| pair[0] == pair[1]));
    let pick = |row: &[f32]| -> Vec<f32> {
        if halves { row[..half].to_vec() } else { row.iter().step_by(2).copied().collect() }
    };
    if !halves && !pairs {
        return Ok(None);
    }
    let rows = cos.chunks(columns).zip(sin.chunks(columns));
    let values: Vec<f32> = rows.flat_map(|(cos, sin)| [pick(cos), pick(sin)].concat()).collect();
    Tensor::from_f32(vec![values.len() / columns, columns], values).map(Some)
}

impl Values for Modules {
    fn lacks(&self) -> &'static str {
        "nothing in it has a place in the graph"
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn prompts(&self) -> usize {
        self.prompts
    }

    fn prompt(&self, prompt: usize, _: &Checkpoint) -> Result<(Vec<u32>, Option<Image>)> {
        match ids(&self.file, prompt)? {
            ids if ids.is_empty() => Err(Error::invalid(format!("`p{prompt}.input_ids` is empty"))),
            ids => Ok((ids, None)),
        }
    }

    fn wanted_values(&self) -> Vec<(String, String)> {
        let values: BTreeSet<&String> = self.places.iter().map(|p| &p.value).collect();
        values.into_iter().map(|value| (format!("{SHOWN}{value}"), value.clone())).collect()
    }

    fn compare(
        &self,
        prompt: usize,
        length: usize,
        found: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<AlignRow>> {
        let positions: Vec<usize> = (0..length).collect();
        let mut rows = Vec::new();
        for place in &self.places {
            let Some(found) = found.get(&format!("{SHOWN}{}", place.value)) else { continue };
            let Some(expected) = self.expected_value(prompt, place, found)? else { continue };
            let WorstElement { difference, row, column } = worst(&expected, found, &positions);
            let (name, value) = (place.name.clone(), place.value.clone());
            rows.push(AlignRow { name, value, worst: difference, prompt, position: row, column });
        }
        Ok(rows)
    }

    fn unmatched_values(&self, rows: &[AlignRow]) -> Vec<String> {
        let places = self.places.iter().map(|place| &place.name);
        let other = places.filter(|name| rows.iter().all(|row| row.name != **name));
        self.unmatched.iter().chain(other).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = "graph g\nmodel.rotary_emb: f32[n,4] = rope_angles() {\"inv_freq\":[1.0,0.5],\"scale\":1.0}\n\
        input ids: u32[n]\nweight w: f32[8,4]\nmodel.embed: f32[n,4] = embedding(ids, w) {\"dtype\":\"f32\"}\n\
        model.a.act: f32[n,4] = silu(model.embed)\nmodel.b.act: f32[n,4] = silu(model.a.act)\noutput logits = model.b.act\n";

    fn find_module(name: &str) -> Option<(String, bool)> {
        place(&Graph::parse(GRAPH).unwrap(), name).map(|p| (p.value, p.rotary))
    }

    #[test]
    fn modules_are_found_by_name_and_by_what_they_take() {
        let plain = |value: &str| Some((value.to_string(), false));
        assert_eq!(find_module("out.model.a.act"), plain("model.a.act"));
        assert_eq!(find_module("in.model.b.act"), plain("model.a.act"));
        assert_eq!(find_module("logits"), plain("model.b.act"));
        assert_eq!(find_module("out.model.rotary_emb"), Some(("model.rotary_emb".into(), true)));
        assert_eq!(find_module("out.text.model.a.act"), plain("model.a.act"), "within a larger model");
        assert_eq!(find_module("out.a.act"), plain("model.a.act"), "without the head");
        for none in ["out.act", "out.model.c", "in.model.embed", "x", "by.model.embed"] {
            assert_eq!(find_module(none), None, "{none}");
        }
    }

    #[test]
    fn cosines_and_sines_stand_side_by_side() {
        let tensor = |values: [f32; 4]| Tensor::from_f32(vec![1, 4], values.to_vec()).unwrap();
        let sin = tensor([3.0, 4.0, 3.0, 4.0]);
        let halves = side_by_side(&tensor([1.0, 2.0, 1.0, 2.0]), &sin).unwrap().unwrap();
        assert_eq!(*halves.to_f32(), [1.0, 2.0, 3.0, 4.0]);
        let sin = tensor([3.0, 3.0, 4.0, 4.0]);
        let pairs = side_by_side(&tensor([1.0, 1.0, 2.0, 2.0]), &sin).unwrap().unwrap();
        assert_eq!(*pairs.to_f32(), [1.0, 2.0, 3.0, 4.0]);
        assert!(side_by_side(&tensor([1.0, 2.0, 3.0, 4.0]), &sin).unwrap().is_none());
    }
}
