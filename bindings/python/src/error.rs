//! Errors as Python exceptions.

use pyo3::prelude::*;
use tapml::Error;
use tapml::shown::whole;

/// The exception for an error: `tapml._errors.make` chooses the class.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let details = error.details().iter().map(|(name, value)| (whole(name), whole(value)));
    let details: Vec<(String, String)> = details.collect();
    let arguments = (error.kind().name(), whole(&error.to_string()), error.hint().map(whole), details);
    let made = py.import("tapml._errors").and_then(|module| module.call_method1("make", arguments));
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(other) => other,
    }
}

/// Runs something that may take long without holding up other Python threads.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> tapml::Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| exception(py, &error))
}

/// As [`run`] for what is over at once.
pub fn result<T>(py: Python<'_>, result: tapml::Result<T>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}

/// The exception for wrong input.
pub fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, &Error::invalid(message))
}
