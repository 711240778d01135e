//! Writes safetensors files.

use super::StoredType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use tapml_graph::{Error, Result, Tensor};

/// Writes tensors in this order, with `metadata` under `__metadata__`. The file appears under its name only when it is
/// complete. Fails on a duplicate name or if the file cannot be written.
pub fn write(path: &Path, tensors: &[(&str, Tensor)], metadata: &BTreeMap<String, String>) -> Result<()> {
    let header = header(tensors, metadata)?;
    // A device or a pipe is written through: renaming over it would replace it.
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write_to(path, &header, tensors).map_err(|e| Error::io("write", path, &e));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = write_to(partial, &header, tensors).and_then(|()| std::fs::rename(partial, path));
    written.map_err(|e| {
        // Only tidies up: the error that matters is the one of writing.
        let _ = std::fs::remove_file(partial);
        Error::io("write", path, &e)
    })
}

fn header(tensors: &[(&str, Tensor)], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".into(), json!(metadata));
    }
    let mut start = 0;
    for (name, tensor) in tensors {
        let end = start + tensor.bytes().len();
        let stored = StoredType::of(tensor.dtype());
        let entry = json!({"dtype": stored.name(), "shape": tensor.shape(), "data_offsets": [start, end]});
        if map.insert((*name).to_string(), entry).is_some() {
            return Err(Error::invalid(format!("two tensors are named `{name}`")));
        }
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    // The format asks that tensors start at a multiple of 8; spaces may follow the JSON text.
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok(text)
}

fn write_to(path: &Path, header: &[u8], tensors: &[(&str, Tensor)]) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    for (_, tensor) in tensors {
        file.write_all(tensor.bytes())?;
    }
    let file = file.into_inner()?;
    if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) }
}
