//! Numbers in a text as an input: for lengths, thresholds and other small arrays.

use super::options::wrong;
use super::source::{Filled, InputSource};
use tapml_graph::{DType, Error, Result};

pub(super) const OPTIONS: [&str; 1] = ["shape"];

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Fills an input with numbers that commas or white space divide. Their order is that of memory. `shape=2x3` gives sizes; without
/// it they are those that the model says, of which one may be free, else lines are rows.
pub(super) fn read(source: &InputSource<'_>) -> Result<Filled> {
    let text = tapml_files::read_text(source.path, MAX_FILE, "numbers")?;
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        words.map(str::to_string).collect()
    };
    let lines: Vec<Vec<String>> = text.lines().map(words).filter(|line| !line.is_empty()).collect();
    let all: Vec<&str> = lines.iter().flatten().map(String::as_str).collect();
    let shape = shape(source, &lines, all.len())?;
    let wrong = |word: &str| {
        let word: String = word.chars().take(40).collect();
        Error::invalid(format!("expected numbers, found `{word}`"))
            .with_hint("commas or white space divide them")
    };
    let tensor = match source.wanted.dtype {
        // Integers of 64 bits are more than an f64 holds.
        Some(dtype @ (DType::I64 | DType::I32)) => {
            let ints = all.iter().map(|word| word.parse::<i64>().map_err(|_| wrong(word)));
            let ints = ints.collect::<Result<Vec<i64>>>()?;
            source.integers(dtype, shape, &ints)?
        }
        dtype => {
            let number = |word: &&str| match (dtype, *word) {
                (Some(DType::Bool), "true") => Ok(1.0),
                (Some(DType::Bool), "false") => Ok(0.0),
                (_, word) => word.parse::<f64>().map_err(|_| wrong(word)),
            };
            let values = all.iter().map(number).collect::<Result<Vec<f64>>>()?;
            source.elements(shape, &values)?
        }
    };
    Ok(Filled { tensor, how: format!("{} numbers", all.len()), ids: None })
}

/// Sizes from the option, from the model with at most one free size, or from the lines.
fn shape(source: &InputSource<'_>, lines: &[Vec<String>], count: usize) -> Result<Vec<usize>> {
    let product = |shape: &[usize]| shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    if let Some(shape) = source.options.sizes("shape")? {
        return if product(&shape) == Some(count) {
            Ok(shape)
        } else {
            Err(wrong("shape", &format!("{shape:?}"), format!("sizes of the {count} numbers of the file")))
        };
    }
    let (rows, columns) = (lines.len(), lines.first().map_or(0, Vec::len));
    let table = lines.iter().all(|line| line.len() == columns);
    let Some(declared) = source.wanted.shape.as_deref() else {
        return Ok(if rows > 1 && table { vec![rows, columns] } else { vec![count] });
    };
    let known: Vec<usize> = declared.iter().copied().flatten().collect();
    let rest =
        product(&known).filter(|known| *known > 0 && count.is_multiple_of(*known)).map(|known| count / known);
    let free = declared.len() - known.len();
    match (free, rest) {
        (0, Some(1)) => Ok(known),
        (1, Some(rest)) => Ok(declared.iter().map(|size| size.unwrap_or(rest)).collect()),
        (2, Some(_)) if declared.len() == 2 && table => Ok(vec![rows, columns]),
        (2.., Some(_)) => {
            Err(source.unfit("has several free sizes").with_hint("`shape=2x3` behind a `?` says which"))
        }
        _ => Err(source.unfit(&format!("is not of the {count} numbers of the file"))),
    }
}
