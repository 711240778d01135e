//! Types of elements, and whether a tensor has the bytes that it claims.
//!
//! A tensor has its elements in one of three places. Each place is checked against type and sizes before
//! anything is made of it; files may lie only below the model's folder.

use super::messages::TensorProto;
use crate::mapped::map;
use std::path::{Component, Path, PathBuf};
use tapml_graph::{Bytes, Context, DType, Error, Result};

/// Where the numbers of a type stand if not in `raw_data`.
/// Several types share a field, as `onnx.proto` says for each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    /// `float_data`.
    Float,
    /// `int32_data`, also of narrower types and of f16 by their bits.
    Int32,
    Int64,
    Double,
    Uint64,
    /// `string_data`.
    Text,
}

// Names are those of `DType` where there is one, which is how `dtype` finds it.
/// `TensorProto.DataType`: number, name, bits of an element, field, and numbers of the field for each element.
const ELEMENTS: &[(i32, &str, usize, Field, usize)] = &[
    (1, "f32", 32, Field::Float, 1),
    (2, "u8", 8, Field::Int32, 1),
    (3, "i8", 8, Field::Int32, 1),
    (4, "u16", 16, Field::Int32, 1),
    (5, "i16", 16, Field::Int32, 1),
    (6, "i32", 32, Field::Int32, 1),
    (7, "i64", 64, Field::Int64, 1),
    (8, "string", 0, Field::Text, 1),
    (9, "bool", 8, Field::Int32, 1),
    (10, "f16", 16, Field::Int32, 1),
    (11, "f64", 64, Field::Double, 1),
    (12, "u32", 32, Field::Uint64, 1),
    (13, "u64", 64, Field::Uint64, 1),
    (14, "c64", 64, Field::Float, 2),
    (15, "c128", 128, Field::Double, 2),
    (16, "bf16", 16, Field::Int32, 1),
    (17, "e4m3fn", 8, Field::Int32, 1),
    (18, "e4m3fnuz", 8, Field::Int32, 1),
    (19, "e5m2", 8, Field::Int32, 1),
    (20, "e5m2fnuz", 8, Field::Int32, 1),
    (21, "u4", 4, Field::Int32, 1),
    (22, "i4", 4, Field::Int32, 1),
    (23, "e2m1", 4, Field::Int32, 1),
    (24, "e8m0", 8, Field::Int32, 1),
    (25, "u2", 2, Field::Int32, 1),
    (26, "i2", 2, Field::Int32, 1),
    (27, "e2m3", 6, Field::Int32, 1),
    (28, "e3m2", 6, Field::Int32, 1),
];

/// What a code means.
struct ElementKind {
    name: &'static str,
    /// Of an element.
    bits: usize,
    field: Field,
    /// Numbers of the field for each element.
    numbers: usize,
}

/// The row of a code.
fn element(code: i32) -> Option<ElementKind> {
    let found = ELEMENTS.iter().find(|(own, ..)| *own == code);
    found.map(|&(_, name, bits, field, numbers)| ElementKind { name, bits, field, numbers })
}

/// The name of a type of elements; its number if there is none of this number.
pub fn element_name(code: i32) -> String {
    element(code).map_or_else(|| format!("type {code}"), |element| element.name.into())
}

/// Elements and bytes of a tensor. Fails if the product of its sizes is no number of elements.
pub fn len(tensor: &TensorProto) -> Result<(u64, u64)> {
    let wrong = || Error::invalid(format!("tensor `{}` has the sizes {:?}", tensor.name, tensor.dims));
    let mut elements = 1u64;
    for &size in &tensor.dims {
        let size = u64::try_from(size).map_err(|_| wrong())?;
        elements = elements.checked_mul(size).ok_or_else(wrong)?;
    }
    // Elements of a type that is not known take no bytes here; `check` refuses them.
    let bits = element(tensor.data_type).map_or(0, |element| element.bits as u64);
    let bytes = elements.checked_mul(bits).ok_or_else(wrong)?.div_ceil(8);
    Ok((elements, bytes))
}

/// The file of a tensor's bytes, if it is another one.
pub fn external(tensor: &TensorProto) -> Option<&str> {
    (tensor.data_location == 1).then(|| value(tensor, "location").unwrap_or_default())
}

/// An entry of the external data, such as `offset`.
fn value<'t>(tensor: &'t TensorProto, key: &str) -> Option<&'t str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

/// Where files beside a model may be.
#[derive(Clone, Debug)]
pub struct Around {
    /// The folder of the model's path as it was given.
    folder: PathBuf,
    /// Folders below which a link may lead: that one, and the one to which the model's own path leads, as in a cache where all
    /// files of a model are links.
    real: Vec<PathBuf>,
}

impl Around {
    /// What is around the model at this path.
    pub fn from_path(path: &Path) -> Around {
        let folder = tapml_files::parent(path);
        let own = path.canonicalize().ok().map(|path| tapml_files::parent(&path));
        let real = folder.canonicalize().ok().into_iter().chain(own).collect();
        Around { folder, real }
    }
}

/// Checks that a tensor's bytes are there, in the model or in a file of its folder.
///
/// # Errors
/// If type and sizes do not fit what is held, or a file is missing, too short or outside the folder.
pub fn check(tensor: &TensorProto, folder: &Around) -> Result<()> {
    let name = &tensor.name;
    let invalid = |text: String| Error::invalid(format!("tensor `{name}`: {text}"));
    let Some(ElementKind { name: type_name, bits, field, numbers }) = element(tensor.data_type) else {
        return Err(invalid(format!("there is no type of elements {}", tensor.data_type)));
    };
    let (elements, bytes) = len(tensor)?;
    // What is marked as external has nothing in the message.
    if let Some(location) = external(tensor) {
        if field == Field::Text {
            return Err(invalid("texts cannot be in another file".into()));
        }
        return check_external(tensor, (location, bytes), folder)
            .map_err(|e| e.context(format!("tensor `{name}`")));
    }
    if let Some(raw) = &tensor.raw_data {
        let held = raw.len() as u64;
        return if held == bytes && field != Field::Text {
            Ok(())
        } else {
            Err(invalid(format!(
                "{type_name}{:?} takes {bytes} bytes, and `raw_data` has {held}",
                tensor.dims
            )))
        };
    }
    // Typed fields are lists of numbers, one or two for each element.
    let held = match field {
        Field::Float => tensor.float_data.len(),
        Field::Int32 => tensor.int32_data.len(),
        Field::Int64 => tensor.int64_data.len(),
        Field::Double => tensor.double_data.len(),
        Field::Uint64 => tensor.uint64_data.len(),
        Field::Text => tensor.string_data.len(),
    } as u64;
    // Numbers of two and of four bits share one of the field, those of six do not.
    let expected = match bits {
        2 | 4 => bytes,
        _ => elements.saturating_mul(numbers as u64),
    };
    if held == expected {
        Ok(())
    } else {
        Err(invalid(format!("{type_name}{:?} takes {expected} numbers, and there are {held}", tensor.dims)))
    }
}

/// The file's length alone is looked at.
fn check_external(tensor: &TensorProto, (location, bytes): (&str, u64), around: &Around) -> Result<()> {
    let number = |key: &str| {
        let parsed = value(tensor, key).map(|text| {
            let wrong = |_| Error::invalid(format!("`{key}` of its external data is no number: `{text}`"));
            text.parse::<u64>().map_err(wrong)
        });
        parsed.transpose()
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    // The length may be left out; given, it must be right.
    if length.is_some_and(|length| length != bytes) {
        let text = format!("it takes {bytes} bytes, and its external data claims {}", length.unwrap_or(0));
        return Err(Error::invalid(text));
    }
    let path = Path::new(location);
    // No `..`, no root: a model must not read files elsewhere.
    let below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if location.is_empty() || !path.components().all(below) {
        let text = format!("its external data is at `{location}`, which is no path below the model's folder");
        return Err(Error::invalid(text));
    }
    let path = around.folder.join(path);
    // Links are resolved before the comparison.
    let absent = format!("the model keeps weights beside itself: put `{location}` into its folder");
    let real = path.canonicalize().map_err(|e| Error::io("read", &path, &e).with_hint(absent))?;
    if !around.real.iter().any(|folder| real.starts_with(folder)) {
        let text = format!("its external data is at `{location}`, a link to {}", real.display());
        return Err(Error::invalid(text).with_hint("links may lead to files in the model's folder only"));
    }
    let held = tapml_files::open(&path)?.metadata().map_err(|e| Error::io("read", &path, &e))?.len();
    if offset.checked_add(bytes).is_none_or(|end| end > held) {
        let text =
            format!("expected bytes {offset} to {offset} + {bytes} of {}, which has {held}", path.display());
        return Err(
            Error::invalid(text).with_hint("the file was cut off, or is another model's: fetch it again")
        );
    }
    Ok(())
}

/// The dtype of elements, if a graph can hold them.
pub fn dtype(code: i32) -> Option<DType> {
    element(code).and_then(|element| DType::parse(element.name))
}

/// The code of a dtype.
///
/// # Errors
/// If ONNX has no such type of elements.
pub fn code(dtype: DType) -> Result<i32> {
    let found = ELEMENTS.iter().find(|(_, name, ..)| *name == dtype.name());
    found
        .map(|(code, ..)| *code)
        .ok_or_else(|| Error::unsupported(format!("ONNX has no elements of {dtype}")))
}

/// The tensor with its elements, which share the model's file, or that of its external data. It has been checked.
pub fn read(tensor: &TensorProto, folder: &Path) -> Result<tapml_graph::Tensor> {
    let context = || format!("tensor `{}`", tensor.name);
    let dtype = dtype(tensor.data_type).ok_or_else(|| {
        let name = element_name(tensor.data_type);
        Error::unsupported(format!("its elements are {name}, which no graph holds")).context(context())
    })?;
    let shape: Vec<usize> =
        tensor.dims.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    let bytes = bytes(tensor, folder).context(context)?;
    // Truths of graphs are 0 or 1.
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err(Error::invalid("a truth is neither 0 nor 1").context(context()));
    }
    tapml_graph::Tensor::new(dtype, shape, bytes).context(context)
}

/// The elements little-endian; shared with the map unless they lie in a typed field.
fn bytes(tensor: &TensorProto, folder: &Path) -> Result<Bytes> {
    if let Some(location) = external(tensor) {
        let (_, len) = len(tensor)?;
        let offset = value(tensor, "offset").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let file = map(&folder.join(location))?;
        let place = usize::try_from(offset).ok().zip(usize::try_from(len).ok());
        let part = place.and_then(|(offset, len)| file.slice(offset, len));
        return part.ok_or_else(|| Error::invalid(format!("`{location}` ends early")));
    }
    if let Some(raw) = &tensor.raw_data {
        return Ok(Bytes::new(raw.clone()));
    }
    let element = element(tensor.data_type);
    let bits = element.as_ref().map_or(0, |element| element.bits);
    // Every typed field holds numbers that are at least as wide as the elements.
    let narrow = |wide: &mut dyn Iterator<Item = [u8; 8]>| -> Vec<u8> {
        wide.flat_map(|number| number.into_iter().take(bits / 8)).collect()
    };
    Ok(Bytes::new(match element.map(|element| element.field) {
        Some(Field::Float) => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Some(Field::Double) => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Some(Field::Int32) => narrow(&mut tensor.int32_data.iter().map(|&v| i64::from(v).to_le_bytes())),
        Some(Field::Int64) => narrow(&mut tensor.int64_data.iter().map(|v| v.to_le_bytes())),
        Some(Field::Uint64) => narrow(&mut tensor.uint64_data.iter().map(|v| v.to_le_bytes())),
        Some(Field::Text) | None => return Err(Error::unsupported("its elements are texts")),
    }))
}

/// A tensor as a message without a name.
pub(super) fn write(elements: &tapml_graph::Tensor) -> Result<TensorProto> {
    let size = |&size: &usize| i64::try_from(size).map_err(|_| Error::invalid("a size beyond 2⁶³"));
    Ok(TensorProto {
        dims: elements.shape().iter().map(size).collect::<Result<_>>()?,
        data_type: code(elements.dtype())?,
        raw_data: Some(prost::bytes::Bytes::copy_from_slice(elements.bytes())),
        ..TensorProto::default()
    })
}
