//! What stands behind the `?` of a file that fills an input: `scale=1/255&layout=nhwc`.
//!
//! Values are read when they are asked for, so that an error can say what was expected there. All numbers
//! are finite.

use std::fmt::Display;
use tapml_graph::{Error, Result};

/// Options by name, in the order given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// Reads `NAME=VALUE&NAME=VALUE`.
    pub fn parse(text: &str) -> Result<Options> {
        let mut read: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Error::invalid(format!("option `{pair}`: expected NAME=VALUE"))
                    .with_hint("for example photo.png?scale=1/255&layout=nhwc")
            })?;
            if read.iter().any(|(known, _)| known == name) {
                return Err(Error::invalid(format!("option `{name}` is given twice")));
            }
            read.push((name.into(), value.into()));
        }
        Ok(Options(read))
    }

    /// The names of all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Those of these names.
    pub fn select(&self, names: &[&str]) -> Options {
        Options(self.0.iter().filter(|(name, _)| names.contains(&name.as_str())).cloned().collect())
    }

    /// Fails on a name that is none of these; `what` has them, such as `an image`.
    pub fn expect(&self, names: &[&str], what: &str) -> Result<()> {
        let Some(unknown) = self.names().find(|name| !names.contains(name)) else { return Ok(()) };
        let error = Error::invalid(format!("{what} has no option `{unknown}`"));
        Err(if names.is_empty() {
            error.with_hint("it has none: the array is taken as it is")
        } else {
            error.with_hint(format!("it has: {}", names.join(", ")))
        })
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// One of several words.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let names = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let found = words.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant);
        found.map(Some).ok_or_else(|| wrong(name, value, format!("one of {}", names())))
    }

    /// A number, or two with a `/` between them.
    ///
    /// # Errors
    /// If it is no finite number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let read = |value| number(value).ok_or_else(|| wrong(name, value, "a number such as 0.5 or 1/255"));
        self.get(name).map(read).transpose()
    }

    /// A whole number from 0 on.
    pub fn count(&self, name: &str) -> Result<Option<usize>> {
        let read = |value: &str| value.parse().map_err(|_| wrong(name, value, "a whole number from 0 on"));
        self.get(name).map(read).transpose()
    }

    /// Numbers with commas between them: one for all of `count`, or one for each.
    pub fn numbers(&self, name: &str, count: usize) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let read: Option<Vec<f64>> = value.split(',').map(number).collect();
        match read {
            Some(all) if all.len() == count => Ok(Some(all)),
            Some(one) if one.len() == 1 => Ok(Some(vec![one[0]; count])),
            _ => Err(wrong(name, value, format!("one number, or {count} with commas between them"))),
        }
    }

    /// Sizes with an `x` between them: `640x480`.
    pub fn sizes(&self, name: &str) -> Result<Option<Vec<usize>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let read: Option<Vec<usize>> = value.split('x').map(|size| size.parse().ok()).collect();
        read.map(Some).ok_or_else(|| wrong(name, value, "sizes with an `x` between them, such as 640x480"))
    }
}

/// Why an option cannot be taken.
pub fn wrong(name: &str, value: &str, expected: impl Display) -> Error {
    Error::invalid(format!("option `{name}={value}`: expected {expected}"))
}

/// A finite number, or a fraction.
fn number(text: &str) -> Option<f64> {
    let plain = |text: &str| text.trim().parse::<f64>().ok();
    let value = match text.split_once('/') {
        None => plain(text)?,
        Some((over, under)) => plain(over)? / plain(under)?,
    };
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_what_they_are_not_is_told() {
        let options = Options::parse("scale=1/255&mean=0.5,1,-2&size=640x480&layout=nhwc").unwrap();
        assert_eq!(options.number("scale").unwrap(), Some(1.0 / 255.0));
        assert_eq!(options.numbers("mean", 3).unwrap(), Some(vec![0.5, 1.0, -2.0]));
        assert_eq!(options.numbers("scale", 3).unwrap(), Some(vec![1.0 / 255.0; 3]));
        assert_eq!(options.sizes("size").unwrap(), Some(vec![640, 480]));
        assert_eq!(options.word("layout", &[("nchw", 1), ("nhwc", 2)]).unwrap(), Some(2));
        assert_eq!((options.count("start").unwrap(), options.names().count()), (None, 4));
        let told = |text: &str, check: fn(&Options) -> Result<()>| {
            Options::parse(text).and_then(|options| check(&options)).unwrap_err().to_string()
        };
        assert!(told("scale", |_| Ok(())).contains("expected NAME=VALUE"));
        assert!(told("a=1&a=2", |_| Ok(())).contains("given twice"));
        assert!(told("scale=1/0", |o| o.number("scale").map(drop)).contains("a number such as"));
        assert!(told("mean=1,2", |o| o.numbers("mean", 3).map(drop)).contains("or 3 with commas"));
        assert!(told("size=4x", |o| o.sizes("size").map(drop)).contains("such as 640x480"));
        assert!(told("layout=up", |o| o.word("layout", &[("nchw", ())]).map(drop)).contains("one of nchw"));
        assert!(told("start=-1", |o| o.count("start").map(drop)).contains("from 0 on"));
        assert!(
            told("colour=1", |o| o.expect(&["scale"], "an image"))
                .contains("an image has no option `colour`")
        );
    }
}
