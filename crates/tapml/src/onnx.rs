//! ONNX models as jobs take them: arrays for their inputs, and the run on a source that makes them graphs.

use crate::exec::Platform;
use crate::graph::op::{Declared, Foreign};
use crate::graph::{Bytes, Context, DType, Tensor};
use crate::import::onnx::{File, Runner, Traced};
use crate::migrate::{Progress, RecordedRun, Stop, identity_of_file, record, tensor_type};
use crate::reference::foreign::Evaluator;
use crate::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of an array at most.
const MAX_ARRAY: u64 = 4 << 30;

/// Where the inputs of a model's runs are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inputs {
    /// `NAME=FILE` for each input of one run; `FILE` is a `.npy` array.
    pub files: Vec<String>,
    /// A folder with `NAME.npy` for each input of one run, or with a folder of these for each of several.
    pub folder: Option<PathBuf>,
}

/// The inputs of one run, by name, and what they are called.
pub struct InputSet {
    /// The name of a file or a folder.
    pub label: String,
    /// Arrays by the names of inputs.
    pub arrays: HashMap<String, Tensor>,
}

impl Inputs {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folder.is_none()
    }

    /// Reads the arrays.
    pub fn read(&self) -> Result<Vec<InputSet>> {
        let mut sets = Vec::new();
        if !self.files.is_empty() {
            let mut arrays = HashMap::new();
            for given in &self.files {
                let (name, file) = given.split_once('=').ok_or_else(|| {
                    Error::invalid(format!("`--input {given}`: expected NAME=FILE"))
                        .with_hint("for example `--input image=photo.npy`; `tapml inspect` tells the names")
                })?;
                if arrays.insert(name.to_string(), read_array(Path::new(file))?).is_some() {
                    return Err(Error::invalid(format!("input `{name}` is given twice")));
                }
            }
            let first = self.files[0].split_once('=').map_or("", |(_, file)| file);
            sets.push(InputSet { label: name_of(Path::new(first)), arrays });
        }
        if let Some(folder) = &self.folder {
            sets.extend(read_folder(folder)?);
        }
        match sets.is_empty() {
            true => Err(Error::invalid("no inputs given")
                .with_hint("--input NAME=FILE.npy for each input of the model, or --inputs DIR")),
            false => Ok(sets),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))?;
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.map_err(|e| Error::io("read", folder, &e))?.path();
        Ok((name_of(&path), path))
    };
    read.map(entry).collect()
}

fn read_folder(folder: &Path) -> Result<Vec<InputSet>> {
    let entries = entries(folder)?;
    let arrays = |label: String, entries: &BTreeMap<String, PathBuf>| {
        let npy = entries.iter().filter_map(|(name, path)| Some((name.strip_suffix(".npy")?, path)));
        let arrays = npy.map(|(name, path)| Ok((name.to_string(), read_array(path)?)));
        Ok(InputSet { label, arrays: arrays.collect::<Result<_>>()? })
    };
    if entries.keys().any(|name| name.ends_with(".npy")) {
        return Ok(vec![arrays(name_of(folder), &entries)?]);
    }
    let folders = entries.iter().filter(|(_, path)| path.is_dir());
    let sets = folders.map(|(name, path)| arrays(name.clone(), &self::entries(path)?));
    let sets: Vec<InputSet> = sets.collect::<Result<_>>()?;
    match sets.iter().find(|set| set.arrays.is_empty()) {
        Some(empty) => Err(Error::invalid(format!("{}/{} holds no `.npy`", folder.display(), empty.label))),
        None if sets.is_empty() => Err(Error::invalid(format!(
            "{} holds neither `.npy` files nor folders of them",
            folder.display()
        ))),
        None => Ok(sets),
    }
}

/// Reads a NumPy array: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
pub fn read_array(path: &Path) -> Result<Tensor> {
    let bytes = crate::files::read(path, MAX_ARRAY, "an array")?;
    array(&bytes).context(|| path.display().to_string())
}

fn array(bytes: &[u8]) -> Result<Tensor> {
    let invalid =
        |text: String| Error::invalid(text).with_hint("`numpy.save(FILE, array)` writes what is read");
    let (header, rest) = Header::read(bytes).ok_or_else(|| invalid("this is no `.npy` array".into()))?;
    let Header { code, by_columns, shape } = header;
    if by_columns && shape.len() > 1 {
        return Err(Error::unsupported("the array is stored column by column")
            .with_hint("save `numpy.ascontiguousarray(array)`"));
    }
    let dtype = dtype_of(code).ok_or_else(|| {
        Error::unsupported(format!("its elements are {code}, which no graph holds"))
            .with_hint("served are little-endian floats, integers and bool")
    })?;
    let tensor = Tensor::new(dtype, shape, Bytes::new(rest.to_vec()))?;
    match dtype == DType::Bool && tensor.bytes().iter().any(|&byte| byte > 1) {
        true => Err(invalid("a truth is neither 0 nor 1".into())),
        false => Ok(tensor),
    }
}

/// What stands in front of an array's elements: a literal of a Python dictionary with three entries.
struct Header<'a> {
    code: &'a str,
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

/// The dtype of NumPy's code for it.
fn dtype_of(code: &str) -> Option<DType> {
    Some(match code {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "<i2" => DType::I16,
        "|i1" => DType::I8,
        "<u8" => DType::U64,
        "<u4" => DType::U32,
        "<u2" => DType::U16,
        "|u1" => DType::U8,
        "|b1" => DType::Bool,
        _ => return None,
    })
}

/// Runs nodes on the source.
struct OnSource<'a> {
    source: &'a mut dyn Platform,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Runner for OnSource<'_> {
    fn run(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.stop.check()?;
        let gave = self.source.discover(node, op, inputs);
        self.progress.advance(1);
        gave
    }
}

/// A platform that evaluates operators of others in `f64`.
pub struct PlatformEvaluator(Mutex<Box<dyn Platform>>);

impl PlatformEvaluator {
    /// Of this platform, such as `reference`.
    pub fn new(platform: Box<dyn Platform>) -> PlatformEvaluator {
        PlatformEvaluator(Mutex::new(platform))
    }
}

impl Evaluator for PlatformEvaluator {
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>> {
        let inputs: Vec<(Tensor, bool)> =
            inputs.iter().zip(constants).map(|(tensor, &constant)| (tensor.clone(), constant)).collect();
        let mut platform = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = platform.discover("oracle", op, &inputs)?;
        let declared = op.outputs().iter().filter_map(Declared::ty);
        for (ty, output) in declared.zip(&outputs) {
            let found = tensor_type(output);
            if found != *ty {
                return Err(Error::invalid(format!("the oracle gives {found}, expected {ty}")));
            }
        }
        Ok(outputs)
    }
}

/// A model that was run on a source with each set of inputs: one graph, and the values of each run.
pub struct TracedModel {
    /// The run with the first set.
    pub first: Traced,
    /// What each set is called.
    pub labels: Vec<String>,
    /// Values of the runs after the first.
    pub more: Vec<Vec<Tensor>>,
}

impl TracedModel {
    /// Runs a model.
    ///
    /// # Errors
    /// Two sets give two graphs: their sizes differ, or another branch was taken.
    pub fn of(
        path: &Path,
        inputs: &Inputs,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TracedModel> {
        let file = File::open(path)?;
        let sets = inputs.read()?;
        let nodes = file.outline().nodes as u64;
        progress.stage("carve", nodes.saturating_mul(sets.len() as u64));
        let mut traced: Option<TracedModel> = None;
        for set in sets {
            let mut runner = OnSource { source, progress, stop };
            let run = file.trace(&set.arrays, &mut runner);
            let run =
                run.context(|| path.display().to_string()).context(|| format!("inputs `{}`", set.label))?;
            let Some(known) = &mut traced else {
                traced = Some(TracedModel { first: run, labels: vec![set.label], more: Vec::new() });
                continue;
            };
            if run.model.graph() != known.first.model.graph() {
                let (own, first) = (&set.label, &known.labels[0]);
                let text = format!(
                    "inputs `{own}` give another graph than `{first}`: other sizes, or another branch"
                );
                return Err(Error::invalid(text).with_hint("carve a suite for each"));
            }
            known.labels.push(set.label);
            known.more.push(run.values);
        }
        traced.ok_or_else(|| Error::invalid("no inputs given"))
    }

    /// Writes the suite of these runs.
    pub fn write(
        &self,
        path: &Path,
        source: &dyn Platform,
        out: (&Path, bool),
    ) -> Result<crate::migrate::suite::Manifest> {
        let values = std::iter::once(&self.first.values).chain(&self.more);
        let runs: Vec<RecordedRun<'_>> = (self.labels.iter().zip(values))
            .map(|(label, values)| RecordedRun { label: label.clone(), values })
            .collect();
        let model = &self.first.model;
        record(out, model, identity_of_file(path, model), source.describe(), &runs)
    }
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
}
