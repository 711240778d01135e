//! A text as an input: the ids of its tokens.
//!
//! The tokenizer's own special tokens are added, as `encode` of Hugging Face tokenizers does.

use super::source::{Filled, InputSource};
use std::path::Path;
use tapml_graph::{DType, Error, Result, Tensor};
use tapml_import::onnx::InputType;

pub(super) const OPTIONS: [&str; 3] = ["tokenizer", "length", "pad"];

/// The largest text that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// Most ids.
const MAX_IDS: usize = 1 << 20;
/// How tokenizers write the token that fills a text.
const PADDING: [&str; 4] = ["[PAD]", "<pad>", "<|pad|>", "<PAD>"];

/// Fills an input of ids, `[1, n]` or `[n]`. Options: `tokenizer`, a folder that has one; `length`, to which a text that is shorter is
/// filled up with the id `pad`. Without these the tokenizer lies beside the model, the length is the one that the model says, if it
/// says one, and the tokenizer names the id.
pub(super) fn read(source: &InputSource<'_>) -> Result<Filled> {
    let options = source.options;
    let text = tapml_files::read_text(source.path, MAX_FILE, "a text")?;
    let Some(dtype) = source.wanted.dtype.filter(|dtype| matches!(dtype, DType::I64 | DType::I32)) else {
        return Err(source
            .unfit("are no ids of tokens, i64 or i32")
            .with_hint("numbers are read from a .csv"));
    };
    let tokenizer = (source.tokenizer)(options.get("tokenizer").map(Path::new))?;
    let mut ids: Vec<i64> =
        // Editors end a file with a line break that belongs to no text.
        tokenizer.encode(text.trim_end_matches(['\r', '\n']))?.into_iter().map(i64::from).collect();
    let count = ids.len();
    let declared = match source.wanted.shape.as_deref() {
        None | Some([None | Some(1), None]) => None,
        Some([None | Some(1), Some(length)]) => Some(*length),
        Some([length]) => *length,
        Some(_) => return Err(source.unfit("is no row of ids")),
    };
    let length = match (declared, options.count("length")?) {
        (Some(declared), Some(asked)) if declared != asked => {
            return Err(source.unfit(&format!("has {declared} where `length` asks for {asked}")));
        }
        (Some(length), _) | (None, Some(length)) => length,
        (None, None) => count,
    };
    if count == 0 || count > length || length > MAX_IDS {
        let text = format!("the text has {count} tokens, expected 1 to {}", length.min(MAX_IDS));
        return Err(Error::invalid(text).with_hint("give another text"));
    }
    let mut how = format!("{count} tokens");
    if count < length {
        let named = PADDING.iter().find_map(|token| tokenizer.token_id(token)).map(|id| id as usize);
        let pad = options.count("pad")?.or(named).ok_or_else(|| {
            let text = format!(
                "the text has {count} tokens, expected {length}, and the tokenizer names none that fills it"
            );
            Error::invalid(text).with_hint("`pad=ID` behind a `?` gives the id")
        })?;
        ids.resize(length, i64::try_from(pad).unwrap_or(i64::MAX));
        how += &format!(", then {} times the id {pad}", length - count);
    }
    let rank = source.wanted.shape.as_ref().map_or(2, Vec::len);
    let shape = if rank == 1 { vec![length] } else { vec![1, length] };
    Ok(Filled { tensor: source.integers(dtype, shape, &ids)?, how, ids: Some(count) })
}

/// What stands beside the ids of a text, of this shape, of which so many are no padding: an input that nobody gave, and how it is
/// filled; `None` if it is none of these.
pub(super) fn companion_input(
    wanted: &InputType,
    shape: &[usize],
    ids: usize,
) -> Result<Option<(Tensor, String)>> {
    let length = shape.last().copied().unwrap_or(0);
    let (values, how): (Vec<f64>, _) = match wanted.name.as_str() {
        "attention_mask" | "input_mask" => {
            let mask = (0..length).map(|at| if at < ids { 1.0 } else { 0.0 }).collect();
            (mask, "1 for each token and 0 for padding")
        }
        "token_type_ids" | "segment_ids" => (vec![0.0; length], "0 for each token"),
        _ => return Ok(None),
    };
    let Some(dtype) = wanted.dtype else { return Ok(None) };
    Ok(Some((Tensor::from_f64(dtype, shape.to_vec(), &values)?, how.into())))
}
