//! The wire's own rules, checked on any agent with messages that a client would not send: what an author of an agent cannot
//! see through [`crate::RemoteDevice`], which refuses wrong calls itself. The commands of a device have a suite of their
//! own, [`tapml_device::conformance`].

mod commands;
mod raw;
mod session;

use crate::Address;
use raw::{Check, Problem};
use tapml_device::conformance::Outcome;

/// One rule of the wire.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// What the schema asks for, in a sentence.
    pub text: &'static str,
    body: fn(&Address) -> Check,
}

impl Rule {
    /// Checks the rule on the device that the address names, on connections of its own.
    pub fn check(&self, address: &Address) -> Outcome {
        match (self.body)(address) {
            Ok(()) => Outcome::Passed,
            Err(Problem::Failed(text)) => Outcome::Failed(text),
            Err(Problem::Skipped(reason)) => Outcome::Skipped(reason),
        }
    }
}

/// All rules.
pub fn rules() -> &'static [Rule] {
    RULES
}

const RULES: &[Rule] = &[
    Rule {
        name: "wire_welcome",
        text: "a hello of version 1 is answered by a welcome with version 1, limits and a device",
        body: session::welcome,
    },
    Rule {
        name: "wire_other_version",
        text: "a hello of other versions is answered by a failure of kind unsupported",
        body: session::other_version,
    },
    Rule {
        name: "wire_wrong_token",
        text: "an agent with a token refuses any other",
        body: session::wrong_token,
    },
    Rule {
        name: "wire_list_of_devices",
        text: "a hello without a device is answered by the list of devices, which holds this one",
        body: session::list_of_devices,
    },
    Rule {
        name: "wire_unknown_device",
        text: "a hello for a device that does not exist is answered by a failure",
        body: session::unknown_device,
    },
    Rule {
        name: "wire_hello_first",
        text: "nothing but a hello is answered first; the agent serves on",
        body: session::hello_first,
    },
    Rule { name: "wire_ping", text: "a ping is answered by a pong of its number", body: session::ping },
    Rule {
        name: "wire_numbers_rise",
        text: "a request whose number does not rise ends the connection; the agent serves on",
        body: session::numbers_rise,
    },
    Rule {
        name: "wire_garbage",
        text: "bytes that are no message end the connection; the agent serves on",
        body: session::garbage,
    },
    Rule {
        name: "wire_claims",
        text: "a field and a frame that claim a terabyte end the connection; the agent serves on",
        body: session::claims,
    },
    Rule {
        name: "wire_two_sessions",
        text: "two clients that use the same handles do not see each other's buffers",
        body: session::two_sessions,
    },
    Rule {
        name: "wire_unknown_handles",
        text: "requests for handles that do not exist fail with kind invalid_input, and the session goes on",
        body: commands::unknown_handles,
    },
    Rule {
        name: "wire_deferred_errors",
        text: "the first error of unanswered requests is the answer to the next wait, once",
        body: commands::deferred_errors,
    },
    Rule {
        name: "wire_handles_twice",
        text: "a handle that exists is not made again",
        body: commands::handles_twice,
    },
    Rule {
        name: "wire_reads_in_pieces",
        text: "a long read is answered by pieces in order, the last one marked",
        body: commands::reads_in_pieces,
    },
    Rule {
        name: "wire_read_beyond",
        text: "a read beyond a buffer fails with kind invalid_input, however much it claims",
        body: commands::read_beyond,
    },
    Rule {
        name: "wire_credit",
        text: "a client that sends many unanswered requests gets credit before it waits",
        body: commands::credit,
    },
    Rule {
        name: "wire_blobs",
        text: "a blob that was put is held, and is written as it was put",
        body: commands::blobs,
    },
    Rule {
        name: "wire_steps",
        text: "a step writes, runs and reads; after a failed one the session goes on",
        body: commands::steps,
    },
    Rule {
        name: "wire_turns",
        text: "turns of one message write, run and are read as single steps are",
        body: commands::turns,
    },
];
