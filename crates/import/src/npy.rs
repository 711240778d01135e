//! Arrays as NumPy saves them, `.npy`: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! A file is the letters `\x93NUMPY`, two bytes of version, the header's length (two bytes in version 1,
//! four in 2 and 3), the header as a Python literal, then the elements in one piece. Arrays of objects
//! (pickles) are never read.

use std::path::Path;
use tapml_graph::{Bytes, Context, DType, Error, Result, Tensor};

/// Bytes of an array at most.
/// The whole file is read into memory, so this bounds what a hostile path can cost.
const MAX_ARRAY: u64 = 4 << 30;

// `<` is little-endian, `|` is for elements of one byte. Big-endian codes are refused rather than turned.
/// NumPy's codes of dtypes; `bf16` has none.
const CODES: [(&str, DType); 12] = [
    ("<f8", DType::F64),
    ("<f4", DType::F32),
    ("<f2", DType::F16),
    ("<i8", DType::I64),
    ("<i4", DType::I32),
    ("<i2", DType::I16),
    ("|i1", DType::I8),
    ("<u8", DType::U64),
    ("<u4", DType::U32),
    ("<u2", DType::U16),
    ("|u1", DType::U8),
    ("|b1", DType::Bool),
];

/// Reads the array of a file.
///
/// # Errors
/// If the file is too large, no array, column by column, or of a dtype that no graph holds.
pub fn read(path: &Path) -> Result<Tensor> {
    let bytes = tapml_files::read(path, MAX_ARRAY, "an array")?;
    array(&bytes).context(|| path.display().to_string())
}

/// The array of a file's bytes. [`Tensor::new`] checks that there are as many bytes as the shape needs.
fn array(bytes: &[u8]) -> Result<Tensor> {
    let invalid =
        |text: String| Error::invalid(text).with_hint("`numpy.save(FILE, array)` writes what is read");
    let (header, rest) = Header::read(bytes).ok_or_else(|| invalid("this is no `.npy` array".into()))?;
    let Header { code, by_columns, shape } = header;
    // With fewer than two axes both orders are the same.
    if by_columns && shape.len() > 1 {
        return Err(Error::unsupported("the array is stored column by column")
            .with_hint("save `numpy.ascontiguousarray(array)`"));
    }
    let known = CODES.iter().find(|(known, _)| *known == code);
    let dtype = known.map(|(_, dtype)| *dtype).ok_or_else(|| {
        Error::unsupported(format!("its elements are {code}, which no graph holds"))
            .with_hint("served are little-endian floats, integers and bool")
    })?;
    // A copy: elements begin at any byte of the file.
    let tensor = Tensor::new(dtype, shape, Bytes::new(rest.to_vec()))?;
    if dtype == DType::Bool && tensor.bytes().iter().any(|&byte| byte > 1) {
        Err(invalid("a truth is neither 0 nor 1".into()))
    } else {
        Ok(tensor)
    }
}

/// What stands in front of an array's elements: a literal of a Python dictionary with three entries.
struct Header<'a> {
    /// The code of the dtype, such as `<f4`.
    code: &'a str,
    /// Fortran's order: the first axis changes fastest.
    by_columns: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    /// The header, and the bytes behind it.
    fn read(bytes: &'a [u8]) -> Option<(Header<'a>, &'a [u8])> {
        let rest = bytes.strip_prefix(b"\x93NUMPY")?;
        let (version, rest) = rest.split_at_checked(2)?;
        let (len, rest) = match version[0] {
            1 => rest
                .split_first_chunk::<2>()
                .map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest))?,
            2 | 3 => {
                rest.split_first_chunk::<4>().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest))?
            }
            _ => return None,
        };
        let (text, rest) = rest.split_at_checked(len)?;
        let text = std::str::from_utf8(text).ok()?.trim().strip_prefix('{')?.strip_suffix('}')?;
        // NumPy itself writes the three entries in this form. A header in another legal form of Python is
        // not read.
        let entry = |name: &str| Some(text.split_once(&format!("'{name}':"))?.1.trim_start());
        let code = entry("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
        let order = entry("fortran_order")?;
        let by_columns = order.starts_with("True");
        if !by_columns && !order.starts_with("False") {
            return None;
        }
        let sizes = entry("shape")?.strip_prefix('(')?.split_once(')')?.0;
        let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(|size| size.parse().ok()).collect::<Option<Vec<usize>>>()?;
        Some((Header { code, by_columns, shape }, rest))
    }
}

/// Writes a file that NumPy loads; `bf16`, which NumPy does not have, as `f32`.
///
/// # Errors
/// If the dtype is none of NumPy's or the file cannot be written.
pub fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    tapml_files::write(path, &file_of(tensor)?)
}

/// The bytes of a file that NumPy loads: version 1.0, its elements at a multiple of 64 bytes.
pub fn file_of(tensor: &Tensor) -> Result<Vec<u8>> {
    let Some((code, _)) = CODES.iter().find(|(_, dtype)| *dtype == tensor.dtype()) else {
        if !tensor.dtype().is_float() {
            return Err(Error::unsupported(format!("NumPy has no {}", tensor.dtype())));
        }
        return file_of(&Tensor::from_f32(tensor.shape().to_vec(), tensor.to_f32().into_owned())?);
    };
    let sizes: String = tensor.shape().iter().map(|size| format!("{size}, ")).collect();
    // A tuple of one element needs its comma in Python.
    let shape = match tensor.shape() {
        [_] => sizes.trim_end(),
        _ => sizes.trim_end_matches(", "),
    };
    let header = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic, version and length are 10 bytes, and the header ends with a line break.
    let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let short = u16::try_from(len).map_err(|_| Error::unsupported("an array of this many axes"))?;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(short.to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = len - 1).bytes());
    bytes.extend_from_slice(tensor.bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 1.0 with this header.
    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let header = format!("{header}{}\n", " ".repeat((118usize).saturating_sub(header.len() + 1)));
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn arrays_keep_rank_and_type_and_damage_is_told() {
        let header = |descr: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
        };
        let whole =
            npy(&header("<i8", "(2, 1)"), &[1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        let tensor = array(&whole).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (DType::I64, &[2, 1][..]));
        assert_eq!(tensor.to_i64().unwrap(), [1, -1]);
        assert_eq!(array(&npy(&header("<f4", "()"), &[0, 0, 128, 63])).unwrap().shape(), [0usize; 0]);
        for (bytes, told) in [
            (npy(&header("<f4", "(2,)"), &[0; 4]), "needs 8 bytes, found 4"),
            (npy(&header(">f4", "(1,)"), &[0; 4]), "elements are >f4"),
            (npy(&header("<c8", "(1,)"), &[0; 8]), "elements are <c8"),
            (npy(&header("|b1", "(1,)"), &[2]), "neither 0 nor 1"),
            (npy(&header("<f4", "(99999999999, 99999999999)"), &[]), "overflows"),
            (npy("{'descr': '<f4'", &[]), "no `.npy` array"),
            (b"PK\x03\x04".to_vec(), "no `.npy` array"),
            (Vec::new(), "no `.npy` array"),
        ] {
            let error = array(&bytes).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        for end in 0..whole.len() {
            assert!(array(&whole[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (_, dtype) in CODES {
            for shape in [vec![], vec![3], vec![2, 3], vec![0, 2]] {
                let count: usize = shape.iter().product();
                let values: Vec<f64> = (0..count).map(|i| (i % 2) as f64).collect();
                let tensor = if dtype.is_float() {
                    Tensor::from_f64(dtype, shape, &values).unwrap()
                } else {
                    Tensor::new(dtype, shape, Bytes::new(vec![1u8; count * dtype.size()])).unwrap()
                };
                let bytes = file_of(&tensor).unwrap();
                assert_eq!(bytes.len() % 64, (count * dtype.size()) % 64, "elements are aligned");
                let read = array(&bytes).unwrap();
                assert_eq!((read.dtype(), read.shape()), (tensor.dtype(), tensor.shape()));
                assert_eq!(read.bytes()[..], tensor.bytes()[..]);
            }
        }
        let half = Tensor::from_f64(DType::BF16, vec![1], &[1.5]).unwrap();
        assert_eq!(array(&file_of(&half).unwrap()).unwrap().to_f32()[..], [1.5]);
        assert!(file_of(&half).unwrap().starts_with(
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
        ));
    }
}
