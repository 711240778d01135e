//! Sound as an input: one row of samples.
//!
//! Nothing is resampled: a filter would be part of the result. The user is told which program does it.

use super::options::wrong;
use super::source::{Filled, InputSource};
use tapml_engine::Sound;
use tapml_graph::{Error, Result};

pub(super) const OPTIONS: [&str; 5] = ["rate", "channel", "scale", "start", "length"];

/// Fills an input of which one size is the number of samples and the others are 1. Options: `rate`, which the file must have;
/// `channel`, a number or `mean`; `scale`, by which samples are multiplied, for floats such that the loudest are ±1 and for
/// integers 1; `start` and `length`, in samples. A part that ends behind the file is filled with zeros.
pub(super) fn read(source: &InputSource<'_>) -> Result<Filled> {
    let (sound, options) = (Sound::open(source.path)?, source.options);
    if let Some(rate) = options.number("rate")?.filter(|rate| *rate != f64::from(sound.rate)) {
        let text = format!("the sound has {} samples a second, expected {rate}", sound.rate);
        return Err(
            Error::invalid(text).with_hint("resample it, for example with `ffmpeg -i FILE -ar RATE OUT.wav`")
        );
    }
    let (samples, channel) = channel(source, &sound)?;
    let start = options.count("start")?.unwrap_or(0);
    if start >= samples.len() {
        return Err(wrong(
            "start",
            &start.to_string(),
            format!("less than the {} samples of the file", samples.len()),
        ));
    }
    let rest = samples.len() - start;
    let (shape, length) = shape(source, options.count("length")?, rest)?;
    let float = source.wanted.dtype.is_none_or(|dtype| dtype.is_float());
    let scale = options.number("scale")?.unwrap_or(if float { 1.0 / sound.full_scale } else { 1.0 });
    let taken = samples[start..].iter().take(length).map(|sample| sample * scale);
    let values: Vec<f64> = taken.chain(std::iter::repeat_n(0.0, length.saturating_sub(rest))).collect();
    let tensor = source.elements(shape, &values)?;
    let end = start + length.min(rest);
    let filled = if length > rest { format!(", then {} zeros", length - rest) } else { String::new() };
    let how = format!(
        "{channel}samples {start} to {end} of {}{filled}, {} a second, {}, each times {scale}",
        samples.len(),
        sound.rate,
        sound.stored
    );
    Ok(Filled { tensor, how, ids: None })
}

/// The samples of the channel that is asked for, and which that is, in words.
fn channel(source: &InputSource<'_>, sound: &Sound) -> Result<(Vec<f64>, String)> {
    let count = sound.channels.max(1);
    match source.options.get("channel") {
        None if count == 1 => Ok((sound.samples.clone(), String::new())),
        None => Err(Error::invalid(format!("the sound has {count} channels, expected one"))
            .with_hint("`channel=0` takes the first, `channel=mean` the mean of all")),
        Some("mean") => {
            let frames = sound.samples.chunks_exact(count);
            let mean = frames.map(|frame| frame.iter().sum::<f64>() / count as f64).collect();
            Ok((mean, format!("mean of {count} channels, ")))
        }
        Some(word) => {
            let found = word.parse::<usize>().ok().filter(|channel| *channel < count);
            let channel =
                found.ok_or_else(|| wrong("channel", word, format!("`mean` or 0 to {}", count - 1)))?;
            let samples = sound.samples.iter().skip(channel).step_by(count).copied();
            Ok((samples.collect(), format!("channel {channel}, ")))
        }
    }
}

/// The sizes for `rest` samples, of which as many as the model says or as are asked for count, and how many these are.
fn shape(source: &InputSource<'_>, asked: Option<usize>, rest: usize) -> Result<(Vec<usize>, usize)> {
    let Some(declared) = source.wanted.shape.as_deref() else {
        let length = asked.unwrap_or(rest);
        return Ok((vec![1, length], length));
    };
    let long: Vec<usize> =
        (0..declared.len()).filter(|&at| declared[at].is_some_and(|size| size != 1)).collect();
    // A free size in front is that of a batch.
    let free: Vec<usize> = (0..declared.len()).filter(|&at| declared[at].is_none()).collect();
    let at = match (&long[..], &free[..]) {
        ([at], [] | [0]) => Some(*at),
        ([], [at] | [0, at]) => Some(*at),
        ([], []) => declared.len().checked_sub(1),
        _ => None,
    };
    let at = at.ok_or_else(|| source.unfit("is no row of samples"))?;
    let length = match (declared[at], asked) {
        (Some(declared), Some(asked)) if declared != asked => {
            return Err(source.unfit(&format!("has {declared} where `length` asks for {asked}")));
        }
        (Some(length), _) | (None, Some(length)) => length,
        (None, None) => rest,
    };
    // 1 GiB in f32.
    if length == 0 || length > (1 << 28) {
        return Err(wrong("length", &length.to_string(), "1 to 268435456 samples"));
    }
    let mut shape = vec![1; declared.len()];
    shape[at] = length;
    Ok((shape, length))
}
