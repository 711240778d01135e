//! How weights are to be quantised, as people write it: `q4`, `q4a,head=keep`.
//!
//! The text round-trips: what is the default is left out when it is printed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use tapml_graph::{Error, Packing, Result};

/// How the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 4 bits, groups of 32 with a scale.
    Q4,
    /// 4 bits, groups of 128 with a scale and a zero point.
    Q4a,
    /// 8 bits, groups of 32 with a scale.
    Q8,
    /// Numbers of 8 bits, 4 of them exponent, groups of 32 with a scale.
    Fp8,
    /// Numbers of 4 bits, 2 of them exponent, groups of 32 with a power of two as their scale: MXFP4.
    Mxfp4,
    /// As the checkpoint has them.
    Keep,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 6] = [Form::Q4, Form::Q4a, Form::Q8, Form::Fp8, Form::Mxfp4, Form::Keep];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Q4 => "q4",
            Form::Q4a => "q4a",
            Form::Q8 => "q8",
            Form::Fp8 => "fp8",
            Form::Mxfp4 => "mxfp4",
            Form::Keep => "keep",
        }
    }

    /// How words are packed; `None` if the weight stays.
    pub fn packing(self) -> Option<Packing> {
        let packing = |bits, group, zeros| Some(Packing::integers(bits, group, zeros));
        match self {
            Form::Q4 => packing(4, 32, false),
            Form::Q4a => packing(4, 128, true),
            Form::Q8 => packing(8, 32, false),
            Form::Fp8 => Some(Packing::floats(32)),
            Form::Mxfp4 => Some(Packing::MXFP4),
            Form::Keep => None,
        }
    }

    /// The form of this name.
    ///
    /// # Errors
    /// With the list of names.
    fn parse(text: &str) -> Result<Form> {
        Form::ALL.into_iter().find(|form| form.name() == text).ok_or_else(|| {
            let known = Form::ALL.map(Form::name).join(", ");
            let text = format!("unknown quantisation `{}`, expected one of {known}", text.escape_debug());
            Error::invalid(text).with_hint(HINT)
        })
    }
}

/// What may be written, for the help of commands.
pub const FORMS_HELP: &str =
    "q4, q4a, q8, fp8 or mxfp4, and `,embedding=…`, `,head=…` for these (default q8; `keep` for none)";

/// For every text that is no scheme.
const HINT: &str = "write q4 (4 bits, groups of 32), q4a (4 bits, groups of 128 with zero points), q8 (8 bits, groups of \
                    32), fp8 (numbers of e4m3, groups of 32) or mxfp4 (numbers of e2m1, groups of 32); `,embedding=…` and `,head=…` choose another for these, or `keep`; their default is q8";

/// Which weights are quantised, and how. As text, `FORM[,embedding=FORM][,head=FORM]`.
///
/// Norms, biases, routers, and whatever is no operand of a matrix product or an embedding stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// The matrices of the layers.
    pub body: Form,
    /// Tables that token ids choose rows of.
    pub embedding: Form,
    /// The matrix that gives the logits. One that is a table too takes the form of more bits.
    pub head: Form,
}

impl Scheme {
    /// The matrices of the layers in this form, embedding and head in 8 bits.
    pub fn from_form(body: Form) -> Scheme {
        Scheme { body, embedding: Form::Q8, head: Form::Q8 }
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scheme> {
        let mut words = text.split(',');
        let mut scheme = Scheme::from_form(Form::parse(words.next().unwrap_or_default())?);
        for word in words {
            match word.split_once('=') {
                Some(("embedding", form)) => scheme.embedding = Form::parse(form)?,
                Some(("head", form)) => scheme.head = Form::parse(form)?,
                _ => {
                    let text = format!("`{}` is no part of a quantisation", word.escape_debug());
                    return Err(Error::invalid(text).with_hint(HINT));
                }
            }
        }
        Ok(scheme)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scheme { body, embedding, head } = self;
        f.write_str(body.name())?;
        for (class, form) in [("embedding", embedding), ("head", head)] {
            // Equal schemes have one text, which names the folders of ledgers.
            if *form != Form::Q8 {
                write!(f, ",{class}={}", form.name())?;
            }
        }
        Ok(())
    }
}

impl Serialize for Scheme {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Scheme, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_round_trip_as_text() {
        for text in [
            "q4",
            "q4a",
            "q8",
            "fp8",
            "mxfp4",
            "keep",
            "fp8,head=fp8",
            "q4,embedding=q4,head=q4",
            "q4a,head=keep",
            "q8,embedding=q4a",
        ] {
            assert_eq!(text.parse::<Scheme>().unwrap().to_string(), text);
        }
        let scheme: Scheme = "q4,head=q8".parse().unwrap();
        assert_eq!(scheme, Scheme::from_form(Form::Q4));
        let json = serde_json::to_string(&scheme).unwrap();
        assert_eq!(serde_json::from_str::<Scheme>(&json).unwrap(), scheme);
    }

    #[test]
    fn unknown_words_are_errors_that_list_the_known() {
        for text in ["", "q5", "q4,", "q4,tail=q8", "q4,head", "q4,head=", "Q4"] {
            let error = text.parse::<Scheme>().unwrap_err();
            assert!(error.hint().unwrap().contains("q4a"), "{text}: {error}");
        }
    }
}
