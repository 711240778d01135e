//! Writes safetensors files.
//!
//! Headers are written before any element, from types alone. So a checkpoint of any size is written with
//! one tensor in memory.

use super::StoredType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use tapml_files::NewFile;
use tapml_graph::{DType, Error, Result, Symbols, Tensor, TensorType, byte_len};

/// Writes tensors in this order, with `metadata` under `__metadata__`. The file appears under its name only when it is
/// complete. Fails on a duplicate name or if the file cannot be written.
pub fn write(path: &Path, tensors: &[(&str, Tensor)], metadata: &BTreeMap<String, String>) -> Result<()> {
    let facts: Vec<Fact> =
        tensors.iter().map(|(name, t)| Fact { name, dtype: t.dtype(), shape: t.shape().to_vec() }).collect();
    let (header, _) = header(&facts, metadata)?;
    finish(path, &header, &|file| {
        let mut all = tensors.iter();
        all.try_for_each(|(_, tensor)| file.write_all(tensor.bytes()))
            .map_err(|e| Error::io("write", path, &e))
    })
}

/// Writes tensors of these names and types, of constant sizes, each asked for when its turn has come; gives the bytes of
/// all. The file appears under its name only when it is complete. Fails on a duplicate name, on a tensor of another type,
/// or if the file cannot be written.
pub fn write_each(
    path: &Path,
    types: &[(&str, TensorType)],
    tensor: &dyn Fn(usize) -> Result<Tensor>,
) -> Result<u64> {
    let facts =
        types.iter().map(|(name, ty)| Ok(Fact { name, dtype: ty.dtype, shape: ty.sizes(&Symbols::new())? }));
    let facts: Vec<Fact> = facts.collect::<Result<_>>()?;
    let (header, bytes) = header(&facts, &BTreeMap::from([("format".to_string(), "pt".to_string())]))?;
    finish(path, &header, &|file| {
        for (index, Fact { name, dtype, shape }) in facts.iter().enumerate() {
            let tensor = tensor(index)?;
            if tensor.dtype() != *dtype || tensor.shape() != shape {
                return Err(Error::bug(format!("`{name}` is not of the type it was said to have")));
            }
            file.write_all(tensor.bytes()).map_err(|e| Error::io("write", path, &e))?;
        }
        Ok(())
    })?;
    Ok(bytes as u64)
}

/// What a header needs of a tensor.
struct Fact<'a> {
    name: &'a str,
    dtype: DType,
    shape: Vec<usize>,
}

/// Writes a file of this header and of what `tensors` writes behind it, which appears under its name when it is complete.
/// A process that is killed leaves no file of this name; see `tapml_files::NewFile`.
fn finish(path: &Path, header: &[u8], tensors: &dyn Fn(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("write", path, &e);
    let mut file = BufWriter::new(NewFile::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(header).map_err(failed)?;
    tensors(&mut file)?;
    file.into_inner().map_err(|e| failed(e.into_error()))?.finish()
}

/// The header, and the bytes of all tensors.
/// Offsets follow from the order of the list, without gaps.
///
/// # Errors
/// If two tensors have one name, or sizes overflow.
fn header(tensors: &[Fact], metadata: &BTreeMap<String, String>) -> Result<(Vec<u8>, usize)> {
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".into(), json!(metadata));
    }
    let mut start = 0usize;
    for Fact { name, dtype, shape } in tensors {
        let end = byte_len(*dtype, shape).and_then(|len| start.checked_add(len));
        let end = end.ok_or_else(|| Error::invalid(format!("`{name}`: {shape:?} is too large")))?;
        let stored = StoredType::from_dtype(*dtype);
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
