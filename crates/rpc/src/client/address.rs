//! Where a remote device is: `ws://host:port/NAME`, `wss://host:port/NAME` or `hub/NAME`, and options of the connection.

use std::path::PathBuf;
use tapml_graph::{Error, Result};

/// Names of options that concern the connection; all others go to the device.
pub const OPTIONS: [&str; 10] = [
    "token-file",
    "ca",
    "insecure",
    "deadline",
    "trace",
    "answer-within",
    "reconnect",
    "hub",
    "priority",
    "wait",
];

/// Seconds for which a lost connection is tried again, unless the option says otherwise: an agent may need one minute to
/// notice that the old one is gone, and has no place before.
const RECONNECT: u64 = 180;

/// The hub, if neither the option `hub` nor the variable `TAPML_HUB` names one.
const HUB: &str = "ws://127.0.0.1:7071";

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
    /// Seconds for which a lost connection is tried again.
    pub reconnect: u64,
    /// Whether the word was `hub/NAME`.
    pub hub: bool,
    /// Other hubs to try when this one does not answer.
    pub also: Vec<Address>,
    /// At a hub: who waits for the same device is served by falling priority.
    pub priority: i32,
    /// At a hub: seconds to wait for a device; 0 for as long as one that suits is there.
    pub wait: u64,
}

impl Address {
    /// Whether a platform word is a remote one.
    pub fn is_remote(word: &str) -> bool {
        word.starts_with("ws://") || word.starts_with("wss://") || hub_name(word).is_some()
    }

    /// Reads a word such as `ws://localhost:7000/emulator` and its options.
    ///
    /// `hub/NAME` is NAME at the hub of the option `hub`, of the variable `TAPML_HUB`, or of this machine. Both may name
    /// several hubs, joined by commas, of which the first that answers is taken, and may have options of the connection after `?`; those of the word count more.
    pub fn parse(word: &str, options: &[(String, String)]) -> Result<Address> {
        let Some(name) = hub_name(word) else { return Address::direct(word, options) };
        let given = options.iter().find(|(n, _)| n == "hub").map(|(_, url)| url.clone());
        let hub = given.or_else(|| std::env::var("TAPML_HUB").ok().filter(|url| !url.is_empty()));
        let hubs = hub.as_deref().unwrap_or(HUB).split(',');
        let mut all = hubs.map(|hub| Address::at_hub(hub, name, options)).collect::<Result<Vec<_>>>()?;
        let first = all.remove(0);
        Ok(Address { also: all, ..first })
    }

    fn at_hub(hub: &str, name: &str, options: &[(String, String)]) -> Result<Address> {
        let (url, tail) = hub.split_once('?').map_or((hub, None), |(url, tail)| (url, Some(tail)));
        let mut all: Vec<_> = options.iter().filter(|(n, _)| n != "hub").cloned().collect();
        for part in tail.into_iter().flat_map(|t| t.split('&')) {
            let (name, value) = part.split_once('=').unwrap_or((part, "on"));
            if !all.iter().any(|(n, _)| n == name) {
                all.push((name.into(), value.into()));
            }
        }
        let address = Address::direct(&format!("{}/{name}", url.trim_end_matches('/')), &all);
        address
            .map(|address| Address { hub: true, ..address })
            .map_err(|e| e.context(format!("hub `{}`", without_secret(url))))
    }

    fn direct(word: &str, options: &[(String, String)]) -> Result<Address> {
        let hint = "remote devices look like `ws://host:port/NAME` or `wss://host:port/NAME`";
        let bad = |what: &str| Error::invalid(format!("`{}`: {what}", without_secret(word))).with_hint(hint);
        let (scheme, rest) = word.split_once("://").ok_or_else(|| bad("no remote device"))?;
        let tls = match scheme {
            "ws" => false,
            "wss" => true,
            _ => return Err(bad("expected ws:// or wss://")),
        };
        let (place, name) = rest.split_once('/').unwrap_or((rest, ""));
        if place.contains('@') {
            return Err(secret(&bad("a name and password stand before `@`")));
        }
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => v6.split_once("]:").ok_or_else(|| bad("expected `[address]:port`"))?,
            None => place.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?,
        };
        let port = port.parse().map_err(|_| bad(&format!("`{port}` is no port")))?;
        if host.is_empty() || host.contains(' ') {
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
            reconnect: RECONNECT,
            hub: false,
            also: Vec::new(),
            priority: 0,
            wait: 0,
        };
        let mut forwarded = Vec::new();
        for (name, value) in options {
            let seconds =
                || value.parse().map_err(|_| bad(&format!("`{name}` is a number of seconds, not `{value}`")));
            match name.as_str() {
                "token-file" => address.token_file = Some(value.into()),
                "ca" => address.ca = Some(value.into()),
                "insecure" => address.insecure = is_on(value),
                "deadline" => address.deadline = seconds()?,
                "trace" => address.trace = is_on(value),
                // It would go to the device with the other options, and be shown wherever the target is.
                "token" => return Err(secret(&bad("`token` is no option"))),
                "answer-within" => address.answer_within = seconds()?,
                "reconnect" => address.reconnect = seconds()?,
                "wait" => address.wait = seconds()?,
                "priority" => {
                    let number = value.parse();
                    address.priority = number.map_err(|_| bad(&format!("`{value}` is no priority")))?;
                }
                _ => forwarded.push(format!("{name}={value}")),
            }
        }
        if !forwarded.is_empty() {
            address.target = format!("{name}?{}", forwarded.join("&"));
        }
        Ok(address)
    }

    /// The same without a device: a list of devices is asked for, of whichever hub answers.
    pub(super) fn for_list(self) -> Address {
        let also = self.also.into_iter().map(Address::for_list).collect();
        Address { target: String::new(), also, ..self }
    }

    /// The same for this device, with the same options.
    pub(super) fn for_device(self, name: &str) -> Address {
        let also = self.also.into_iter().map(|other| other.for_device(name)).collect();
        let options = self.target.split_once('?').map_or(String::new(), |(_, options)| format!("?{options}"));
        Address { target: format!("{name}{options}"), also, ..self }
    }

    /// `host:port`, with brackets where they are needed.
    pub fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// The error of an address that holds what must not be in it.
fn secret(error: &Error) -> Error {
    Error::invalid(format!("{}: a word on the command line is no place for a secret", error.message()))
        .with_hint("write the token into a file and give `token-file=FILE`, or set the variable TAPML_TOKEN")
}

/// An address without what stands before `@`.
fn without_secret(word: &str) -> String {
    let (scheme, rest) = word.split_once("://").unwrap_or(("", word));
    let (place, name) = rest.split_once('/').map_or((rest, None), |(place, name)| (place, Some(name)));
    match place.rsplit_once('@') {
        Some((_, host)) => {
            format!("{scheme}://…@{host}{}", name.map_or(String::new(), |name| format!("/{name}")))
        }
        None => word.into(),
    }
}

/// The name in `hub/NAME`; empty in `hub`, which asks for the list of devices.
fn hub_name(word: &str) -> Option<&str> {
    if word == "hub" { Some("") } else { word.strip_prefix("hub/") }
}

fn is_on(value: &str) -> bool {
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
    fn a_hub_is_named_once_and_devices_by_name() {
        let at = parse(
            "hub/lab3/vulkan:1",
            &[("hub", "wss://lab:1?ca=x.pem&priority=3"), ("priority", "-2"), ("check", "all")],
        );
        let at = at.unwrap();
        assert_eq!((at.hub, at.tls, at.place().as_str()), (true, true, "lab:1"));
        assert_eq!(at.target, "lab3/vulkan:1?check=all");
        assert_eq!((at.priority, at.ca), (-2, Some("x.pem".into())));
        let all = parse("hub", &[("hub", "ws://lab:1/"), ("wait", "5")]).unwrap();
        assert_eq!((all.target.as_str(), all.wait), ("", 5));
        assert!(parse("hub/x", &[("hub", "lab")]).unwrap_err().to_string().contains("hub `lab`"));
        assert!(parse("hub/x", &[("hub", "ws://lab:1"), ("priority", "high")]).is_err());
        assert!(Address::is_remote("hub/x") && Address::is_remote("hub") && !Address::is_remote("hubs"));
    }

    #[test]
    fn bad_words_say_what_is_expected() {
        for bad in ["ws://", "ws://host", "ws://host:x/a", "ws://:1/a", "http://a:1/b", "ws://[::1:1/a"] {
            let error = parse(bad, &[]).unwrap_err();
            assert!(error.hint().is_some_and(|h| h.contains("ws://host:port/NAME")), "{bad}: {error}");
        }
        assert!(parse("ws://h:1/a", &[("deadline", "soon")]).is_err());
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for error in [parse("ws://h:1/a", &[("token", "S3CRET")]), parse("ws://u:S3CRET@h/a", &[])] {
            let error = error.unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("token-file=FILE")), "{error}");
            assert!(!format!("{error:?}").contains("S3CRET"), "{error:?}");
        }
    }
}
