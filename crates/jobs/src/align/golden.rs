//! Golden files: hidden states between layers, and logits.
//!
//! A golden is one safetensors file. Token ids may be stored in any dtype; they are read as numbers.

use super::values::{AlignRow, Values, WorstElement, worst};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tapml_engine::{Pixels, Vision};
use tapml_exec::Image;
use tapml_graph::{Error, Result, Tensor};
use tapml_import::Checkpoint;
use tapml_import::safetensors::File;

/// A golden file.
pub struct Golden {
    file: File,
    path: PathBuf,
    prompts: usize,
    /// Pairs of a name in the golden and a name in the graph, in the order of computation.
    names: Vec<(String, String)>,
}

/// The number of prompts in a file. Fails if there are none.
///
/// Prompts are numbered without gaps from 0.
pub fn prompts(file: &File, path: &Path) -> Result<usize> {
    let has = |i: usize| file.entries().iter().any(|e| e.name == format!("p{i}.input_ids"));
    match (0..).take_while(|&i| has(i)).count() {
        0 => Err(Error::invalid(format!("{}: there is no tensor `p0.input_ids`", path.display())).with_hint(
            "tools/goldens and `tml.torch.carve` make such files; `tapml align --help` says what they hold",
        )),
        count => Ok(count),
    }
}

/// A tensor of a prompt, if the file holds it.
pub fn find(file: &File, prompt: usize, name: &str) -> Result<Option<Tensor>> {
    let name = format!("p{prompt}.{name}");
    if file.entries().iter().any(|e| e.name == name) { Ok(Some(file.tensor(&name)?)) } else { Ok(None) }
}

/// The token ids of a prompt.
/// Empty if the file holds none.
pub fn ids(file: &File, prompt: usize) -> Result<Vec<u32>> {
    let ids = find(file, prompt, "input_ids")?.map(|t| t.to_f64()).unwrap_or_default();
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

impl Golden {
    /// Names of hidden states are matched with those that the checkpoint's graph gives.
    pub fn open(path: &Path, checkpoint: &Checkpoint) -> Result<Golden> {
        let file = File::open(path)?;
        let prompts = prompts(&file, path)?;
        let hidden = checkpoint.hidden_values().into_iter().enumerate();
        let mut names: Vec<(String, String)> =
            hidden.map(|(index, value)| (format!("hidden.{index}"), value)).collect();
        // Last, because rows are in the order of computation.
        names.push(("logits".into(), "logits".into()));
        Ok(Golden { file, path: path.to_path_buf(), prompts, names })
    }

    /// The image, and in which parts it is cut if it is.
    fn pixels(&self) -> Result<Pixels> {
        let parts = match self.file.tensor("parts") {
            // An image that is not cut has one part.
            Err(_) => [1, 1],
            Ok(parts) => match *parts.to_f64() {
                [down, across] => [down, across].map(|count| count as u32),
                _ => return Err(Error::invalid("`parts` of the golden must hold two numbers")),
            },
        };
        Ok(Pixels { values: self.file.tensor("pixels")?, parts })
    }

    /// Positions of the rows of a tensor.
    fn positions(&self, prompt: usize, rows: usize, length: usize) -> Result<Vec<usize>> {
        let listed = find(&self.file, prompt, "positions")?.map(|t| t.to_f64()).unwrap_or_default();
        let listed: Vec<usize> = listed.into_iter().map(|p| p as usize).collect();
        if rows == listed.len() && listed.iter().all(|&p| p < length) {
            return Ok(listed);
        }
        if rows <= length {
            // Fewer rows than tokens are those of the last positions.
            Ok((length - rows..length).collect())
        } else {
            Err(Error::invalid(format!(
                "{}: prompt {prompt} has {length} tokens, but values of {rows} positions",
                self.path.display()
            )))
        }
    }
}

impl Values for Golden {
    fn lacks(&self) -> &'static str {
        "there is neither `p0.logits` nor a hidden state"
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn prompts(&self) -> usize {
        self.prompts
    }

    fn prompt(&self, prompt: usize, checkpoint: &Checkpoint) -> Result<(Vec<u32>, Option<Image>)> {
        let ids = ids(&self.file, prompt)?;
        match Vision::open(checkpoint)? {
            Some(vision) if checkpoint.image().is_some_and(|image| ids.contains(&image.id)) => {
                let (ids, image) = vision.place(&ids, self.pixels()?)?;
                Ok((ids, Some(image)))
            }
            _ => Ok((ids, None)),
        }
    }

    fn wanted_values(&self) -> Vec<(String, String)> {
        self.names.iter().filter(|(name, value)| name != value).cloned().collect()
    }

    fn compare(
        &self,
        prompt: usize,
        length: usize,
        found: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<AlignRow>> {
        let mut rows = Vec::new();
        for (name, value) in &self.names {
            let (Some(expected), Some(found)) = (find(&self.file, prompt, name)?, found.get(name)) else {
                continue;
            };
            if expected.row_len() != found.row_len() {
                let (want, have) = (expected.row_len(), found.row_len());
                return Err(Error::invalid(format!(
                    "{}: `p{prompt}.{name}` has {want} columns, the model's has {have}",
                    self.path.display()
                ))
                .with_hint("the golden belongs to another model"));
            }
            let positions = self.positions(prompt, expected.shape().first().copied().unwrap_or(0), length)?;
            let WorstElement { difference, row, column } = worst(&expected, found, &positions);
            let position = positions.get(row).copied().unwrap_or(0);
            let (name, value) = (name.clone(), value.clone());
            rows.push(AlignRow { name, value, worst: difference, prompt, position, column });
        }
        Ok(rows)
    }

    fn unmatched_values(&self, _: &[AlignRow]) -> Vec<String> {
        Vec::new()
    }
}
