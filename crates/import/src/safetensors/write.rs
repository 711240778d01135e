//! Writes safetensors files.

use super::StoredType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use tapml_graph::{DType, Error, Result, Symbols, Tensor, TensorType, byte_len};

/// Writes tensors in this order, with `metadata` under `__metadata__`. The file appears under its name only when it is
/// complete. Fails on a duplicate name or if the file cannot be written.
pub fn write(path: &Path, tensors: &[(&str, Tensor)], metadata: &BTreeMap<String, String>) -> Result<()> {
    let facts: Vec<Fact> = tensors.iter().map(|(name, t)| (*name, t.dtype(), t.shape().to_vec())).collect();
    let (header, _) = header(&facts, metadata)?;
    finish(path, &|path| write_to(path, &header, tensors))
}

/// Writes tensors of these names and types, of constant sizes, each asked for when its turn has come; gives the bytes of
/// all. The file appears under its name only when it is complete. Fails on a duplicate name, on a tensor of another type,
/// or if the file cannot be written.
pub fn write_each(
    path: &Path,
    types: &[(&str, TensorType)],
    tensor: &dyn Fn(usize) -> Result<Tensor>,
) -> Result<u64> {
    let facts = types.iter().map(|(name, ty)| Ok((*name, ty.dtype, ty.sizes(&Symbols::new())?)));
    let facts: Vec<Fact> = facts.collect::<Result<_>>()?;
    let (header, bytes) = header(&facts, &BTreeMap::from([("format".to_string(), "pt".to_string())]))?;
    // An error of the tensors themselves is kept: it says more than that of the file.
    let failed = std::cell::RefCell::new(None);
    let each = |path: &Path| {
        write_with(path, &header, |file| {
            for (index, (name, dtype, shape)) in facts.iter().enumerate() {
                let tensor = tensor(index).and_then(|t| match t.dtype() == *dtype && t.shape() == shape {
                    true => Ok(t),
                    false => Err(Error::bug(format!("`{name}` is not of the type it was said to have"))),
                });
                let tensor = tensor.map_err(|e| {
                    *failed.borrow_mut() = Some(e);
                    std::io::Error::other("no tensor")
                })?;
                file.write_all(tensor.bytes())?;
            }
            Ok(())
        })
    };
    let written = finish(path, &each);
    match failed.into_inner() {
        Some(error) => Err(error),
        None => written.map(|()| bytes as u64),
    }
}

/// Name, dtype and shape of a tensor.
type Fact<'a> = (&'a str, DType, Vec<usize>);

/// Lets `write` write a file that appears under its name when it is complete.
fn finish(path: &Path, write: &dyn Fn(&Path) -> std::io::Result<()>) -> Result<()> {
    // A device or a pipe is written through: renaming over it would replace it.
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write(path).map_err(|e| Error::io("write", path, &e));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = write(partial).and_then(|()| std::fs::rename(partial, path));
    written.map_err(|e| {
        // Only tidies up: the error that matters is the one of writing.
        let _ = std::fs::remove_file(partial);
        Error::io("write", path, &e)
    })
}

/// The header, and the bytes of all tensors.
fn header(tensors: &[Fact], metadata: &BTreeMap<String, String>) -> Result<(Vec<u8>, usize)> {
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".into(), json!(metadata));
    }
    let mut start = 0usize;
    for (name, dtype, shape) in tensors {
        let end = byte_len(*dtype, shape).and_then(|len| start.checked_add(len));
        let end = end.ok_or_else(|| Error::invalid(format!("`{name}`: {shape:?} is too large")))?;
        let stored = StoredType::of(*dtype);
        let entry = json!({"dtype": stored.name(), "shape": shape, "data_offsets": [start, end]});
        if map.insert((*name).to_string(), entry).is_some() {
            return Err(Error::invalid(format!("two tensors are named `{name}`")));
        }
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    // The format asks that tensors start at a multiple of 8; spaces may follow the JSON text.
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok((text, start))
}

fn write_to(path: &Path, header: &[u8], tensors: &[(&str, Tensor)]) -> std::io::Result<()> {
    write_with(path, header, |file| tensors.iter().try_for_each(|(_, tensor)| file.write_all(tensor.bytes())))
}

fn write_with(
    path: &Path,
    header: &[u8],
    tensors: impl Fn(&mut BufWriter<std::fs::File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    tensors(&mut file)?;
    let file = file.into_inner()?;
    if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) }
}
