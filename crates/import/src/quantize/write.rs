//! A quantised checkpoint as a folder in Hugging Face layout, which opens as it is.
//!
//! The folder is an ordinary checkpoint whose `quantization_config` names the method `tapml`. It is built
//! beside its final name and renamed at the end.

use super::{Kept, Scheme, quantize};
use crate::checkpoint::{build, open_files};
use crate::options::ImportOptions;
use crate::packed::{Method, VERSION};
use crate::safetensors;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tapml_files::NewFolder;
use tapml_graph::{DType, Error, Model, Result, Symbols, Tensor, TensorType, byte_len};

// Weights are not among them: theirs are written anew.
/// Files beside the weights that belong to a model, by their endings: configuration, tokenizer, templates, licence.
const COPIED: [&str; 7] = ["json", "txt", "model", "jinja", "tiktoken", "md", "py"];
/// The file that makes a folder a model.
const CONFIG: &str = "config.json";
/// A larger file is none of these.
const MOST_BYTES: u64 = 256 << 20;

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Bytes of weights before.
    pub before: u64,
    /// Bytes of weights now.
    pub after: u64,
    /// Number of weights that are quantised.
    pub quantized: usize,
    /// Matrices that stay as they are.
    pub kept: Vec<Kept>,
}

/// Writes the checkpoint in `from` with its weights quantised to the folder `out`, which must not hold anything yet.
/// Weights are made and written one after another. The folder appears under its name when it is complete.
/// Asks `go_on` before each of them, and ends with its error.
///
/// # Errors
/// If `from` is no folder or is quantised already, `out` holds something, or nothing can be quantised.
pub fn write(from: &Path, scheme: &Scheme, out: &Path, go_on: &dyn Fn() -> Result<()>) -> Result<Written> {
    if !from.is_dir() {
        return Err(Error::unsupported(format!("{}: expected a model folder", from.display()))
            .with_hint("a GGUF file is quantised as it is; name the folder of the model it was made from"));
    }
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        let what = if out.join(CONFIG).exists() { "holds a model already" } else { "is not empty" };
        return Err(Error::invalid(format!("{} {what}", out.display())).with_hint("name another folder"));
    }
    let new = NewFolder::create(out, CONFIG, false)?;
    let (config, weights) = open_files(from)?;
    // Rounding rounded numbers again would lose twice.
    Method::refuse(&config.root())?;
    let (decoder, _) = build(&config, &|name| weights.dtype(name), &ImportOptions::default())?;
    let values = weights.load(&decoder.graph, &decoder.sources, true, &|_| false)?;
    let before = values.values().map(|tensor| tensor.bytes().len() as u64).sum();
    let model = Model::new(decoder.graph, values)?;
    let (quantized, kept) = quantize(&model, scheme)?;

    // Packed weights are named as the graph names them, all others as the checkpoint does.
    let mut names: BTreeSet<(String, bool)> = BTreeSet::new();
    let mut packed: BTreeMap<String, String> = BTreeMap::new();
    for (_, weight) in quantized.graph().weights() {
        if weight.ty.dtype.packing().is_some() {
            names.insert((weight.name.clone(), true));
            packed.insert(weight.name.clone(), weight.ty.dtype.to_string());
            continue;
        }
        match decoder.sources.get(&weight.name) {
            None => drop(names.insert((weight.name.clone(), false))),
            Some(source) => names.extend(source.tensors().iter().map(|name| (name.clone(), false))),
        }
    }
    // Files know no packed dtypes: their bytes are stored as they lie, and `config.json` says what they are.
    let get = |(name, made): &(String, bool)| -> Result<Tensor> {
        go_on()?;
        if !made {
            return weights.any_tensor(name);
        }
        let bytes = quantized.weight(name)?.bytes().clone();
        Tensor::new(DType::U8, vec![bytes.len()], bytes)
    };
    let listed = names.iter().map(|entry| {
        let ty = if entry.1 {
            quantized.weight_type(&entry.0).map(|ty| as_bytes(&ty)).transpose()?
        } else {
            weights.ty(&entry.0)
        };
        Ok((entry.0.as_str(), ty.ok_or_else(|| Error::bug(format!("`{}` has no type", entry.0)))?))
    });
    let listed: Vec<_> = listed.collect::<Result<_>>()?;
    let entries: Vec<&(String, bool)> = names.iter().collect();
    // Files are written into a hidden folder that nobody asked for.
    let named = |e: Error| e.context(format!("to write {}", out.display()));
    let get_listed = |index: usize| get(entries[index]);
    let after = safetensors::write_each(&new.folder().join("model.safetensors"), &listed, &get_listed);
    let after = after.map_err(named)?;
    copy_others(from, new.folder()).map_err(named)?;
    let mut json = config.json().clone();
    let count = packed.len();
    let method =
        json!({"quant_method": "tapml", "version": VERSION, "scheme": scheme.to_string(), "weights": packed});
    json.insert("quantization_config".into(), method);
    let text = serde_json::to_string_pretty(&Value::Object(json))
        .map_err(|e| Error::bug(format!("a configuration does not serialise: {e}")))?;
    tapml_files::write(&new.folder().join(CONFIG), (text + "\n").as_bytes()).map_err(named)?;
    new.publish()?;
    Ok(Written { before, after, quantized: count, kept })
}

/// The type of the bytes of a packed tensor.
fn as_bytes(ty: &TensorType) -> Result<TensorType> {
    let len = byte_len(ty.dtype, &ty.sizes(&Symbols::new())?);
    let len = len.ok_or_else(|| Error::bug(format!("a weight {ty} has no length")))?;
    Ok(TensorType::new(DType::U8, [len]))
}

/// Copies tokenizer, templates and licence.
fn copy_others(from: &Path, out: &Path) -> Result<()> {
    let entries = std::fs::read_dir(from).map_err(|e| Error::io("read", from, &e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io("read", from, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ending = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        let wanted = COPIED.contains(&ending.as_str()) || name.starts_with("LICENSE");
        // An index would name shards that are not there.
        let stale = name == CONFIG || name.ends_with(".index.json");
        let fits = std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MOST_BYTES);
        if wanted && !stale && fits {
            std::fs::copy(&path, out.join(&name)).map_err(|e| Error::io("copy", &path, &e))?;
        }
    }
    Ok(())
}
