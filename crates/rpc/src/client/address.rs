//! Where a remote device is: `ws://host:port/NAME` or `wss://host:port/NAME`, and options of the connection.

use std::path::PathBuf;
use tapml_graph::{Error, Result};

/// Names of options that concern the connection; all others go to the device.
pub const OPTIONS: [&str; 6] = ["token-file", "ca", "insecure", "deadline", "trace", "answer-within"];

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection is TLS.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The device's name at the agent with options after `?`; empty asks for the list of devices.
    pub target: String,
    /// File that holds the agent's token, if not the variable `TAPML_TOKEN`.
    pub token_file: Option<PathBuf>,
    /// Certificates to trust beside the system's: authorities, or the agent's own.
    pub ca: Option<PathBuf>,
    /// Send a token in plain text to another machine.
    pub insecure: bool,
    /// Seconds that a request may run; 0 for the agent's limit.
    pub deadline: u64,
    /// Run commands one by one, so that a post-mortem names the one that was running.
    pub trace: bool,
    /// Seconds without any sign of life after which the agent is given up; 0 for 20.
    pub answer_within: u64,
}

impl Address {
    /// Whether a platform word is a remote one.
    pub fn is_remote(word: &str) -> bool {
        word.starts_with("ws://") || word.starts_with("wss://")
    }

    /// Reads a word such as `ws://localhost:7000/emulator` and its options.
    pub fn parse(word: &str, options: &[(String, String)]) -> Result<Address> {
        let hint = "remote devices look like `ws://host:port/NAME` or `wss://host:port/NAME`";
        let bad = |what: &str| Error::invalid(format!("`{word}`: {what}")).with_hint(hint);
        let (scheme, rest) = word.split_once("://").ok_or_else(|| bad("no remote device"))?;
        let tls = match scheme {
            "ws" => false,
            "wss" => true,
            _ => return Err(bad("expected ws:// or wss://")),
        };
        let (place, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => v6.split_once("]:").ok_or_else(|| bad("expected `[address]:port`"))?,
            None => place.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?,
        };
        let port = port.parse().map_err(|_| bad(&format!("`{port}` is no port")))?;
        if host.is_empty() || host.contains(['@', ' ']) {
            return Err(bad("expected a host name or address"));
        }
        let mut address = Address {
            tls,
            host: host.into(),
            port,
            target: name.into(),
            token_file: None,
            ca: None,
            insecure: false,
            deadline: 0,
            trace: false,
            answer_within: 0,
        };
        let mut forwarded = Vec::new();
        for (name, value) in options {
            let seconds =
                || value.parse().map_err(|_| bad(&format!("`{name}` is a number of seconds, not `{value}`")));
            match name.as_str() {
                "token-file" => address.token_file = Some(value.into()),
                "ca" => address.ca = Some(value.into()),
                "insecure" => address.insecure = on(value),
                "deadline" => address.deadline = seconds()?,
                "trace" => address.trace = on(value),
                "answer-within" => address.answer_within = seconds()?,
                _ => forwarded.push(format!("{name}={value}")),
            }
        }
        if !forwarded.is_empty() {
            address.target = format!("{name}?{}", forwarded.join("&"));
        }
        Ok(address)
    }

    /// `host:port`, with brackets where they are needed.
    pub fn place(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn on(value: &str) -> bool {
    !matches!(value, "off" | "no" | "0" | "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str, options: &[(&str, &str)]) -> Result<Address> {
        let options: Vec<_> = options.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Address::parse(word, &options)
    }

    #[test]
    fn words_name_host_port_and_device() {
        let plain = parse("ws://localhost:7000/vulkan:1", &[]).unwrap();
        assert_eq!(
            (plain.tls, plain.place().as_str(), plain.target.as_str()),
            (false, "localhost:7000", "vulkan:1")
        );
        let options = [("check", "all"), ("token-file", "t"), ("trace", "on"), ("profile", "mobile")];
        let other = parse("wss://[::1]:80/emulator", &options).unwrap();
        assert_eq!((other.tls, other.host.as_str(), other.place().as_str()), (true, "::1", "[::1]:80"));
        assert_eq!(other.target, "emulator?check=all&profile=mobile");
        assert_eq!((other.trace, other.token_file), (true, Some("t".into())));
    }

    #[test]
    fn bad_words_say_what_is_expected() {
        for bad in [
            "ws://",
            "ws://host",
            "ws://host:x/a",
            "ws://:1/a",
            "http://a:1/b",
            "ws://[::1:1/a",
            "ws://u@h:1/a",
        ] {
            let error = parse(bad, &[]).unwrap_err();
            assert!(error.hint().is_some_and(|h| h.contains("ws://host:port/NAME")), "{bad}: {error}");
        }
        assert!(parse("ws://h:1/a", &[("deadline", "soon")]).is_err());
    }
}
