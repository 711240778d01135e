//! Prompts as people and prompt files give them: texts or token ids, with an image for models that see.
//!
//! The bundled prompts are chosen by what kernels do at different numbers of rows. A carved suite that
//! holds them reaches every regime of a small model.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use tapml_engine::{
    Chat, Pixels, Tokenizer, Vision, bundled_image, bundled_prompts, bundled_text, user_message,
};
use tapml_exec::Image;
use tapml_graph::{Error, Result};
use tapml_import::Checkpoint;
use tapml_migrate::PromptInput;

/// What a bundled prompt asks of the bundled image.
const BUNDLED_QUESTION: &str = "What does this picture show?";
// One row takes the decode kernels, two the smallest prefill.
/// Tokens of the bundled prompts that every model is given: one and two rows are ways of their own in which kernels work.
const SHORT: [usize; 2] = [1, 2];
/// Tokens of those that a small model is given: below, at and above the tiles of 32 to 512 rows and the parts of 256 keys of
/// the kernels. Each is followed by one step, whose keys are one more.
const LONG: [usize; 5] = [33, 64, 129, 256, 513];
// A path to something else, such as weights, is refused before it is read.
/// Bytes that a file of prompts may have, and one of its lines: longer ones are no prompts of any model.
const MAX_FILE: u64 = 64 << 20;
/// See [`MAX_FILE`].
const MAX_LINE: usize = 4 << 20;
/// Rows times parameters that the long prompts may come to: seconds on the emulator.
///
/// A proxy for time: a product with a matrix costs rows times parameters.
const LONG_WORK: u64 = 400_000_000;

/// Where the prompts of a run are from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum Prompts {
    /// The bundled ones, and with an image for a model that sees.
    #[default]
    Bundled,
    /// A file with one per line; `![](FILE)` at the beginning of a line is an image, for models that see.
    File(PathBuf),
    /// These texts.
    Texts(Vec<String>),
}

impl Prompts {
    /// Of this file, or the bundled ones.
    pub fn from_file(file: Option<&Path>) -> Prompts {
        file.map_or(Prompts::Bundled, |file| Prompts::File(file.to_path_buf()))
    }

    /// Fails if prompts were given: the model reads arrays.
    pub(crate) fn expect_none(&self) -> Result<()> {
        match self {
            Prompts::Bundled => Ok(()),
            Prompts::File(_) | Prompts::Texts(_) => {
                let hint =
                    "give a file for each input, `--input NAME=FILE`, or a folder of these, `--inputs DIR`";
                Err(Error::invalid("prompts were given, but an ONNX model reads arrays").with_hint(hint))
            }
        }
    }

    /// The prompts with their token ids.
    ///
    /// # Errors
    /// If a file cannot be read, holds no prompts, or an image cannot be placed.
    pub fn read(&self, checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<PromptInput>> {
        let vision = Vision::open(checkpoint)?;
        let input = |Line { text, picture }: Line| -> Result<PromptInput> {
            let (Some(vision), Some(picture)) = (&vision, picture) else {
                return Ok(PromptInput { ids: tokenizer.encode(&text)?, text, ..PromptInput::default() });
            };
            let pixels: Pixels = match &picture {
                Picture::File(path) => vision.processor().file(path)?,
                Picture::Bundled => vision.processor().bytes(bundled_image())?,
            };
            let (ids, image) = vision.place(&vision.encode(tokenizer, &text, false)?, pixels)?;
            Ok(PromptInput { text, ids, image: Some(image), ..PromptInput::default() })
        };
        let mut prompts: Vec<PromptInput> =
            self.lines(vision.is_some())?.into_iter().map(input).collect::<Result<_>>()?;
        if matches!(self, Prompts::Bundled) {
            let ids = tokenizer.encode(bundled_text())?;
            let weights = checkpoint.model().graph().weights();
            let parameters = weights.filter_map(|(_, value)| value.ty.elements()?.as_const()).sum();
            let cut = cut(&ids, &lengths(parameters, checkpoint.context()));
            let mut before = 0;
            prompts.extend(cut.into_iter().map(|ids| {
                // Cut within the text: people see that it is.
                // The text starts somewhere within the bundled one.
                let mark = if before > 0 { "…" } else { "" };
                before += ids.len() - 1;
                let text = format!("{mark}{}", tokenizer.decode(&ids).unwrap_or_default());
                PromptInput { text, ids, most_steps: Some(1), ..PromptInput::default() }
            }));
        }
        Ok(prompts)
    }

    /// The prompts as text, with their images.
    fn lines(&self, sees: bool) -> Result<Vec<Line>> {
        match self {
            Prompts::Bundled => lines(None, sees),
            Prompts::File(file) => lines(Some(file), sees),
            Prompts::Texts(texts) if texts.is_empty() => Err(Error::invalid("there are no prompts")),
            Prompts::Texts(texts) => {
                Ok(texts.iter().map(|text| Line { text: text.clone(), picture: None }).collect())
            }
        }
    }
}

/// Lengths of the prompts that are cut of the bundled text for a model of so many parameters and so long a context (0 if it
/// is unknown).
fn lengths(parameters: u64, context: usize) -> Vec<usize> {
    let mut work = 0;
    let mut within = |length: usize| {
        let more = work + length as u64 * parameters;
        let fits = more <= LONG_WORK;
        work = if fits { more } else { work };
        fits
    };
    let long: Vec<usize> = LONG.into_iter().filter(|&length| within(length)).collect();
    let room = |length: &usize| context == 0 || *length < context;
    SHORT.into_iter().chain(long).filter(room).collect()
}

/// Texts of these lengths: each the first token and then the next ones of the text, so that no two share rows.
fn cut(ids: &[u32], lengths: &[usize]) -> Vec<Vec<u32>> {
    let Some((&first, mut rest)) = ids.split_first() else { return Vec::new() };
    let mut texts = Vec::new();
    for &length in lengths {
        let Some((own, behind)) = rest.split_at_checked(length - 1) else { break };
        texts.push([&[first], own].concat());
        rest = behind;
    }
    texts
}

/// An image as it is given.
/// Decoded only for a model that sees.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Picture {
    File(PathBuf),
    Bundled,
}

/// A prompt of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    text: String,
    picture: Option<Picture>,
}

/// The prompts of a file. `![](FILE)` at the beginning of a line is an image if the model `sees`; a path that is not
/// absolute starts from the prompt file's folder.
fn lines(file: Option<&Path>, sees: bool) -> Result<Vec<Line>> {
    let plain = |text: &str| Line { text: text.to_string(), picture: None };
    let Some(file) = file else {
        let question = Line { text: BUNDLED_QUESTION.to_string(), picture: Some(Picture::Bundled) };
        let texts = bundled_prompts().into_iter().map(plain);
        return Ok(sees.then_some(question).into_iter().chain(texts).collect());
    };
    let text = tapml_files::read_text(file, MAX_FILE, "prompts")?;
    // Editors on Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().filter(|l| !l.trim().is_empty());
    if let Some((at, line)) = text.lines().enumerate().find(|(_, line)| line.len() > MAX_LINE) {
        let (file, at, found) = (file.display(), at + 1, line.len());
        let text = format!("{file}: line {at}: expected a prompt of at most {MAX_LINE} bytes, found {found}");
        return Err(Error::invalid(text).with_hint("cut the text into prompts, one per line"));
    }
    let lines: Vec<Line> = lines
        .map(|line| match line.strip_prefix("![](").and_then(|rest| rest.split_once(')')) {
            Some((image, text)) if sees => {
                // `join` with an absolute path gives that path.
                let path = file.parent().unwrap_or(Path::new("")).join(image);
                Line { text: text.trim_start().to_string(), picture: Some(Picture::File(path)) }
            }
            _ => plain(line),
        })
        .collect();
    if lines.is_empty() {
        return Err(Error::invalid(format!("{} holds no prompts", file.display()))
            .with_hint("write one prompt per line"));
    }
    Ok(lines)
}

/// One prompt of the command line.
pub struct Given<'a> {
    /// Text, unless there are ids.
    pub text: Option<&'a str>,
    /// Token ids.
    pub ids: Option<&'a [u32]>,
    /// An image file.
    pub image: Option<&'a Path>,
    /// Whether the text is a chat message where the checkpoint has a chat template.
    pub chat: bool,
}

impl Given<'_> {
    /// The token ids and the image. `tokenizer` may be missing if there are ids.
    pub fn read(
        &self,
        checkpoint: &Checkpoint,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<(Vec<u32>, Option<Image>)> {
        let vision = match self.image {
            None => None,
            Some(_) => Some(Vision::open(checkpoint)?.ok_or_else(|| {
                let text = format!("a {} model takes no images", checkpoint.model_type());
                Error::unsupported(text).with_hint("leave --image away, or take a model such as LLaVA")
            })?),
        };
        let ids = match (self.ids, tokenizer) {
            (Some(ids), _) => ids.to_vec(),
            (None, Some(tokenizer)) => self.encode(checkpoint, tokenizer, vision.as_ref())?,
            (None, None) => Vec::new(),
        };
        Ok(match (vision, self.image) {
            (Some(vision), Some(path)) => {
                let (ids, image) = vision.place_file(&ids, path)?;
                (ids, Some(image))
            }
            _ => (ids, None),
        })
    }

    /// Through the chat template if there is one and it is wanted, which brings the special tokens with it.
    fn encode(
        &self,
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        vision: Option<&Vision>,
    ) -> Result<Vec<u32>> {
        let text = self.text.unwrap_or_default();
        let template = tokenizer.chat_template().filter(|_| self.chat);
        let text = match template {
            Some(template) => {
                template.render(&Chat::new(&[user_message(checkpoint.image(), vision.is_some(), text)])?)?
            }
            None => text.to_string(),
        };
        Ok(match (vision, template) {
            (Some(vision), _) => vision.encode(tokenizer, &text, template.is_some())?,
            (None, Some(_)) => tokenizer.encode_plain(&text)?,
            (None, None) => tokenizer.encode(&text)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_model_is_given_long_prompts() {
        assert_eq!(lengths(300_000, 4096), [1, 2, 33, 64, 129, 256, 513]);
        assert_eq!(
            lengths(300_000, 256),
            [1, 2, 33, 64, 129],
            "the step behind a prompt is within the context"
        );
        assert_eq!(lengths(10_660_000, 512), [1, 2, 33]);
        assert_eq!(lengths(8_000_000_000, 0), [1, 2]);
        let ids: Vec<u32> = (0..40).collect();
        let texts = cut(&ids, &[1, 2, 33, 64]);
        assert_eq!(texts[..2], [vec![0], vec![0, 1]]);
        assert_eq!((texts[2].len(), texts[2][0], texts[2][1]), (33, 0, 2), "behind what the other has");
        assert_eq!(texts.len(), 3, "the text is too short for the last");
        assert!(cut(&[], &[1]).is_empty());
    }

    #[test]
    fn an_image_stands_at_the_beginning_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompts.txt");
        std::fs::write(&file, "![](a b.png) What is this?\nplain ![](x.png)\n\n![](/y.png)\n").unwrap();
        let line = |text: &str, picture: Option<PathBuf>| Line {
            text: text.into(),
            picture: picture.map(Picture::File),
        };
        let expected = [
            line("What is this?", Some(folder.path().join("a b.png"))),
            line("plain ![](x.png)", None),
            line("", Some("/y.png".into())),
        ];
        assert_eq!(lines(Some(&file), true).unwrap(), expected);
        let blind = lines(Some(&file), false).unwrap();
        assert_eq!(blind[0], line("![](a b.png) What is this?", None), "a text as before");
        assert_eq!(lines(None, false).unwrap().len() + 1, lines(None, true).unwrap().len());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_prompt() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompts.txt");
        std::fs::write(&file, "\u{feff}Once upon\r\n\n  \na time\n").unwrap();
        let texts: Vec<String> =
            lines(Some(&file), true).unwrap().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["Once upon", "a time"]);
        std::fs::write(&file, "\u{feff}\n").unwrap();
        assert!(lines(Some(&file), true).unwrap_err().to_string().contains("holds no prompts"));
        std::fs::write(&file, format!("short\n{}", "x".repeat(MAX_LINE + 1))).unwrap();
        let error = lines(Some(&file), true).unwrap_err().to_string();
        assert!(
            error.contains("line 2: expected a prompt of at most 4194304 bytes, found 4194305"),
            "{error}"
        );
    }
}
