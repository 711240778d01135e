//! Lists of models: one line for each, with the keys of its configuration that decide its graph.

use super::{Error, Result};
use std::collections::HashSet;
use std::path::Path;
use tapml_import::Config;

/// Larger files are no lists of models.
const MAX_BYTES: u64 = 16 << 20;
/// The first line that is no comment.
const HEADER: &str = "name\tmodel_type\tparameters\tconfig";

/// A line of a list.
#[derive(Clone, Debug)]
pub struct ListedModel {
    /// The model's name.
    pub name: String,
    /// `model_type` of its configuration.
    pub model_type: String,
    /// The published number of parameters in billions.
    pub billions: f64,
    /// The configuration.
    pub config: Config,
}

/// Reads a list: tab-separated columns `name`, `model_type`, `parameters` (published, in billions) and `config`, the
/// other keys of `config.json` as a JSON object. Lines that begin with `#` are comments. Errors name the line.
pub fn read_list(path: &Path) -> Result<Vec<ListedModel>> {
    let text = tapml_files::read_text(path, MAX_BYTES, "a list of models")?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (mut models, mut names, mut header) = (Vec::new(), HashSet::new(), true);
    for (index, line) in lines {
        let at = format!("{}:{}", path.display(), index + 1);
        let bad = |text: String| Error::invalid(text).context(at.clone());
        if std::mem::take(&mut header) {
            if line != HEADER {
                return Err(bad(format!("expected the columns {HEADER:?}, found {line:?}")));
            }
            continue;
        }
        let model = read_line(line, &at)?;
        if !names.insert(model.name.clone()) {
            return Err(bad(format!("`{}` is listed twice", model.name)));
        }
        models.push(model);
    }
    if models.is_empty() {
        Err(Error::invalid(format!("{} lists no models", path.display())))
    } else {
        Ok(models)
    }
}

/// One line; `at` is file and line for messages.
fn read_line(line: &str, at: &str) -> Result<ListedModel> {
    let bad = |text: String| Error::invalid(text).context(at.to_string());
    let columns: Vec<&str> = line.split('\t').collect();
    let [name, model_type, billions, config] = columns[..] else {
        return Err(bad(format!("expected 4 columns between tabs, found {}", columns.len())));
    };
    let number = billions.parse::<f64>().ok().filter(|b| (1e-6..1e6).contains(b));
    let billions =
        number.ok_or_else(|| bad(format!("expected billions of parameters, found `{billions}`")))?;
    let Some(keys) = config.trim().strip_prefix('{') else {
        return Err(bad(format!("expected a JSON object, found `{config}`")));
    };
    let comma = if keys.trim() == "}" { "" } else { "," };
    // `model_type` has a column of its own and is put in front of the other keys.
    let text = format!("{{\"model_type\":{}{comma}{keys}", serde_json::Value::from(model_type));
    let config = Config::parse(Path::new("config.json"), text.as_bytes()).map_err(|e| e.context(at))?;
    Ok(ListedModel { name: name.into(), model_type: model_type.into(), billions, config })
}
