//! The small checkpoints of `tests/goldens`. Their random weights are not stored: `weights.json` describes them, and this
//! makes the files from it. `tools/goldens/weights.py` says what the description holds and makes the same files, to the bit.
//! A file that is stored packed, with `.zst` behind its name, is unpacked.
//!
//! The generator is SplitMix64, started from the hash of a tensor's name. So a tensor's values depend on
//! its name, its description and the seed, not on the order of tensors. Values near a normal distribution
//! are sums of four 16-bit parts.

use crate::packed::unpack;
use crate::root;
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Instead of the weight files in a golden's folder.
const DESCRIPTION: &str = "weights.json";
/// What is expected of it.
const EXPECTED: &str = "golden.safetensors";
/// Behind the name of a packed file.
const PACKED: &str = ".zst";
/// More elements in one tensor are refused.
/// Goldens are small; a wrong size in a description must not fill memory.
const MOST_ELEMENTS: u64 = 1 << 24;
/// The offset basis of FNV-1a with 64 bits.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The folder of a golden, by its name below `tests/goldens`, with its weights.
///
/// # Panics
/// If there is no such golden or its weights cannot be made.
pub fn golden(name: &str) -> PathBuf {
    ready(&golden_path(name), name).unwrap_or_else(|error| panic!("{error}"))
}

/// A bundled model, by the name of its folder below `models`: `llama`, `llama_draft`, `llama_head64`, `llama_tasks`, `llava`,
/// `qwen2_moe_head128`.
pub fn model(name: &str) -> PathBuf {
    root().join("models").join(name)
}

/// All bundled models, in order of their names.
///
/// # Panics
/// If their folder cannot be read.
pub fn models() -> Vec<PathBuf> {
    let folder = root().join("models");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut models: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    models.retain(|folder| folder.join("config.json").is_file());
    models.sort();
    models
}

/// The folders of all goldens, with the weights of those that have a checkpoint of their own, in order of their names.
pub fn goldens() -> Vec<PathBuf> {
    golden_names().iter().map(|name| golden(name)).collect()
}

/// The names of all goldens, sorted.
///
/// # Panics
/// If their folder cannot be read.
pub fn golden_names() -> Vec<String> {
    let folder = root().join("tests/goldens");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let has = |folder: &Path, name: &str| folder.join(name).is_file();
    let is_golden = |folder: &Path| has(folder, EXPECTED) || has(folder, &format!("{EXPECTED}{PACKED}"));
    let entries = entries.flatten().filter(|entry| is_golden(&entry.path()));
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// Writes the folder of a golden, with its weights, to a place where nothing is yet.
pub fn write_golden(name: &str, out: &Path) -> Result<(), String> {
    if !golden_names().iter().any(|known| known == name) {
        return Err(format!("there is no golden `{name}`; `ls tests/goldens` lists what there is"));
    }
    if out.symlink_metadata().is_ok() {
        return Err(format!("{} exists; name a folder that does not", out.display()));
    }
    write(&files(&golden_path(name))?, out)
}

/// Where it is stored in the repository.
fn golden_path(name: &str) -> PathBuf {
    root().join("tests/goldens").join(name)
}

/// Whether a folder holds a file that tests do not read as it is stored.
fn is_packed(stored: &Path) -> bool {
    let packed = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        name == DESCRIPTION || name.to_string_lossy().ends_with(PACKED)
    };
    std::fs::read_dir(stored).is_ok_and(|entries| entries.flatten().any(packed))
}

/// The stored folder if it is whole; else one below `target/goldens` that is named after the hash of all its files, so that
/// processes share it.
fn ready(stored: &Path, name: &str) -> Result<PathBuf, String> {
    static SCRATCH: AtomicU64 = AtomicU64::new(0);
    if !is_packed(stored) {
        return Ok(stored.to_path_buf());
    }
    let files = files(stored)?;
    let hash = files.iter().fold(FNV_START, |hash, (name, bytes)| fnv1a(fnv1a(hash, name.as_bytes()), bytes));
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let shared = root().join(target).join("goldens").join(format!("{hash:016x}"));
    let ready = shared.join(name);
    // The name holds the hash of the content, so what is there is right.
    if ready.is_dir() {
        return Ok(ready);
    }
    let number = SCRATCH.fetch_add(1, Ordering::Relaxed);
    let scratch = shared.with_extension(format!("{}.{number}", std::process::id()));
    write(&files, &scratch.join(name))?;
    // A folder appears whole: tests of other processes look at it.
    let renamed = std::fs::rename(&scratch, &shared);
    if renamed.is_err() {
        let _ = std::fs::remove_dir_all(&scratch);
    }
    // Another process may have been faster.
    if ready.is_dir() { Ok(ready) } else { Err(format!("could not make {}: {renamed:?}", ready.display())) }
}

/// Writes files into a new folder.
fn write(files: &[(String, Vec<u8>)], folder: &Path) -> Result<(), String> {
    let said = |path: &Path, e: std::io::Error| format!("could not write {}: {e}", path.display());
    std::fs::create_dir_all(folder).map_err(|e| said(folder, e))?;
    files.iter().try_for_each(|(name, bytes)| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|e| said(&path, e))
    })
}

/// All files of a golden's folder, with the weights in place of their description, by name.
fn files(stored: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let entries = std::fs::read_dir(stored).map_err(|e| format!("{}: {e}", stored.display()))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (name, content) = match name.strip_suffix(PACKED) {
            Some(name) => {
                let content = unpack(&read(&path)?).map_err(|e| format!("{}: {e}", path.display()))?;
                (name.to_string(), content)
            }
            None => {
                let content = read(&path)?;
                (name, content)
            }
        };
        if name == DESCRIPTION {
            let described = weight_files(&content);
            files.extend(described.map_err(|error| format!("{}: {error}", path.display()))?);
        } else {
            files.push((name, content));
        }
    }
    files.sort();
    match files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(twice) => {
            Err(format!("{}: {} is there whole and packed; remove one", stored.display(), twice[0].0))
        }
        None => Ok(files),
    }
}

/// The weight files of a description, each of the bytes that its hash says.
fn weight_files(description: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let description: Value = serde_json::from_slice(description).map_err(|e| e.to_string())?;
    let seed = description["seed"].as_u64().ok_or("`seed` is no whole number")?;
    let files = description["files"].as_object().ok_or("`files` is no object")?;
    let file = |(name, file): (&String, &Value)| {
        let tensors = file["tensors"].as_object().ok_or(format!("`{name}` has no object `tensors`"))?;
        let bytes = file_bytes(tensors, seed)?;
        let (found, expected) = (format!("{:016x}", fnv1a(FNV_START, &bytes)), &file["fnv1a"]);
        if *expected != *found {
            return Err(format!("the bytes of `{name}` have the hash {found}, expected {expected}"));
        }
        Ok((name.clone(), bytes))
    };
    files.iter().map(file).collect()
}

/// A file of safetensors with these tensors.
fn file_bytes(tensors: &Map<String, Value>, seed: u64) -> Result<Vec<u8>, String> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    for (name, described) in tensors {
        let start = data.len();
        let (dtype, shape) = fill(name, described, seed, &mut data).ok_or_else(|| {
            format!("`{name}`: expected a tensor as tools/goldens/weights.py says, found {described}")
        })?;
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes(), text.as_slice(), &data].concat())
}

/// Adds a tensor's bytes; gives its dtype and shape. `None` if the description has another form.
fn fill<'a>(name: &str, described: &'a Value, seed: u64, out: &mut Vec<u8>) -> Option<(&'a str, &'a Value)> {
    let [dtype, shape, content @ ..] = described.as_array()?.as_slice() else { return None };
    let mut sizes = shape.as_array()?.iter();
    let count = sizes.try_fold(1u64, |all, size| all.checked_mul(size.as_u64()?))?;
    let (dtype, start) = (dtype.as_str()?, mix(fnv1a(FNV_START, name.as_bytes()) ^ seed));
    if count > MOST_ELEMENTS {
        return None;
    }
    let words = (1..=count).map(|i| mix(start.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    match content {
        [Value::Array(runs)] => {
            let mut left = count;
            for run in runs {
                let (value, times) = (run[0].as_f64()?, run[1].as_u64()?);
                left = left.checked_sub(times)?;
                (0..times).try_for_each(|_| push(dtype, value, out))?;
            }
            (left == 0).then_some(())?;
        }
        [Value::String(bits), mask @ ..] if bits == "bits" && mask.len() < 2 => {
            let mask = mask.first().map_or(Some(u64::MAX), Value::as_u64)?;
            for word in words {
                match dtype {
                    "I32" => out.extend(((word & mask) as u32).to_le_bytes()),
                    "U8" => out.push((word & mask) as u8),
                    _ => return None,
                }
            }
        }
        [mean, deviation, first @ ..] if first.len() < 2 => {
            let (mean, deviation) = (mean.as_f64()?, deviation.as_f64()?);
            let first = first.first().map_or(Some("F32"), Value::as_str)?;
            for word in words {
                let parts = [0, 16, 32, 48].map(|shift| (word >> shift & 0xffff) as i64);
                // Four uniform parts of 0..=65535: their mean, 131 070, is taken off.
                let u = parts.iter().sum::<i64>() - 131_070;
                // 37 837 is the standard deviation of the sum: √(4·(2³² − 1)/12).
                let value = (mean + deviation * (u as f64 / 37837.0)) as f32;
                let value = match first {
                    "F32" => value,
                    "BF16" => bf16::from_f32(value).to_f32(),
                    _ => return None,
                };
                push(dtype, f64::from(value), out)?;
            }
        }
        _ => return None,
    }
    Some((dtype, shape))
}

/// Adds a value, rounded to nearest, ties to even.
fn push(dtype: &str, value: f64, out: &mut Vec<u8>) -> Option<()> {
    match dtype {
        "F32" => out.extend((value as f32).to_le_bytes()),
        "F16" => out.extend(f16::from_f32(value as f32).to_le_bytes()),
        "BF16" => out.extend(bf16::from_f32(value as f32).to_le_bytes()),
        "I64" => out.extend((value as i64).to_le_bytes()),
        "I32" => out.extend((value as i32).to_le_bytes()),
        "U8" => out.push(value.round_ties_even() as u8),
        "F8_E4M3" => out.push(e4m3(value)),
        _ => return None,
    }
    Some(())
}

/// The nearest number of E4M3 ("FP8 Formats for Deep Learning", Micikevicius et al., 2022), at most 448.
fn e4m3(value: f64) -> u8 {
    let size = value.abs().min(448.0);
    // The first step between numbers is 2^-9, up to 2^-5; from there on, each power of two has eight numbers.
    let exponent = (size.log2().floor() as i32).max(-6);
    let code = (exponent + 6) * 8 + (size / f64::from(exponent - 3).exp2()).round_ties_even() as i32;
    code as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
}

/// The output function of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fowler, Noll and Vo, 64 bits; `start` is the hash so far.
fn fnv1a(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for the seed 0 in the reference implementation (<https://prng.di.unimi.it/splitmix64.c>), and the
    /// published hash of "foobar" (Fowler, Noll and Vo's test vectors).
    #[test]
    fn generator_and_hash_are_the_published_ones() {
        let outputs = [1u64, 2].map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!(outputs, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(fnv1a(FNV_START, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn random_numbers_have_the_mean_and_deviation_described() {
        let mut bytes = Vec::new();
        fill("w", &json!(["F32", [200, 500], 3.0, 0.5]), 7, &mut bytes).expect("a good description");
        let values: Vec<f64> =
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        // Five standard errors of 100 000 numbers.
        assert!((mean - 3.0).abs() < 0.008 && (square.sqrt() - 0.5).abs() < 0.006, "{mean} {square}");
    }

    #[test]
    fn descriptions_of_other_forms_are_refused() {
        let refused = |description: Value| {
            let error = weight_files(description.to_string().as_bytes()).expect_err("a bad description");
            assert!(error.contains("expected") || error.contains('`'), "{error}");
        };
        let with =
            |tensor: Value| json!({"seed": 1, "files": {"f": {"fnv1a": "0", "tensors": {"w": tensor}}}});
        refused(json!({}));
        refused(json!({"seed": 1}));
        refused(with(json!(["F32", [2], 0.0])));
        refused(with(json!(["F33", [2], 0.0, 1.0])));
        refused(with(json!(["F32", [-2], 0.0, 1.0])));
        refused(with(json!(["F32", [1u64 << 40, 1u64 << 40], 0.0, 1.0])));
        refused(with(json!(["F32", [2], [[1.0, 3]]])));
        refused(with(json!(["F32", [2], [[1.0, 1]]])));
        // Well formed, but of another hash.
        refused(with(json!(["F32", [2], 0.0, 1.0])));
    }

    #[test]
    fn every_description_gives_the_bytes_of_its_hash() {
        let described = golden_names()
            .into_iter()
            .filter(|name| golden_path(name).join(format!("{DESCRIPTION}{PACKED}")).is_file());
        let made: Vec<PathBuf> = described.map(|name| golden(&name)).collect();
        assert!(made.len() >= 60, "only {} goldens are described", made.len());
        assert!(made.iter().all(|folder| !folder.join(DESCRIPTION).exists()));
    }
}
