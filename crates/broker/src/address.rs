//! Where a broker is, and what it is shown: `nats://[user:password@]host[:port][?options]`, or `tls://…`.
//!
//! Secrets never reach messages or `url`: a parse error shows the address without what stands before the
//! `@`.

use async_nats::ConnectOptions;
use std::path::PathBuf;
use tapml_graph::{Error, Result};
use tapml_rpc::{secret, tls};

/// Larger files hold no credentials, bytes.
///
/// A wrong path must not be read into memory as a whole.
const LONGEST: u64 = 64 << 10;

/// What a broker is shown.
/// One at most: two would hide a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Login {
    Nothing,
    Token(String),
    Password {
        user: String,
        password: String,
    },
    TokenFile(PathBuf),
    /// A user's JWT and seed, as NATS' tools write them.
    Credentials(PathBuf),
    /// The seed of a user's key.
    Nkey(PathBuf),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection must be TLS; else it is if the server wants it.
    tls: bool,
    host: String,
    port: u16,
    login: Login,
    /// Certificates to trust beside the system's.
    ca: Option<PathBuf>,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// If scheme, host, port or an option is wrong, or several logins are given.
    pub fn parse(text: &str) -> Result<Address> {
        let bad = |what: &str| {
            Error::invalid(format!("broker `{}`: {what}", without_secret(text)))
                .with_hint("a broker's address looks like nats://host:4222 or tls://host:4222?ca=FILE")
        };
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("", text));
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(bad("expected nats:// or tls://")),
        };
        // The last `@`: a password may hold one.
        let (secret, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.trim_end_matches('/');
        // An IPv6 address stands in brackets and has colons of its own.
        let (host, port) = match place.rsplit_once(':').filter(|_| !place.ends_with(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| bad(&format!("`{port}` is no port")))?),
            None => (place, 4222),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/#[]".contains(c)) {
            return Err(bad("expected a host name or address"));
        }
        let login = match secret.split_once(':') {
            _ if secret.is_empty() => Login::Nothing,
            Some((user, password)) => Login::Password { user: user.into(), password: password.into() },
            None => Login::Token(secret.into()),
        };
        let mut address = Address { tls, host: host.into(), port, login, ca: None };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, file) =
                option.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or_else(|| {
                    bad(&format!("expected NAME=FILE after `?`, found `{}`", option.escape_debug()))
                })?;
            let login = match name {
                "ca" => {
                    address.ca = Some(file.into());
                    continue;
                }
                "token-file" => Login::TokenFile(file.into()),
                "creds" => Login::Credentials(file.into()),
                "nkey" => Login::Nkey(file.into()),
                _ => {
                    return Err(bad(&format!(
                        "there is no option `{}`, only ca, creds, nkey and token-file",
                        name.escape_debug()
                    )));
                }
            };
            if address.login != Login::Nothing {
                return Err(bad("expected one of a password, a token, creds, nkey and token-file"));
            }
            address.login = login;
        }
        Ok(address)
    }

    /// The address without what the broker is shown.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "tls" } else { "nats" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// What a connection shows, and what it trusts. Files are read anew each time: credentials are renewed.
    ///
    /// # Errors
    /// If a file cannot be read, is readable by others, or holds no credentials.
    pub fn options(&self) -> Result<ConnectOptions> {
        let options = ConnectOptions::new().tls_client_config((*tls::client(self.ca.as_deref())?).clone());
        Ok(match &self.login {
            Login::Nothing => options,
            Login::Token(token) => options.token(token.clone()),
            Login::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
            Login::TokenFile(file) => options.token(secret::read(file)?),
            Login::Nkey(file) => options.nkey(secret::read_secret(file, LONGEST, "a seed")?),
            Login::Credentials(file) => {
                let text = secret::read_secret(file, LONGEST, "credentials")?;
                // They end with a line.
                options.credentials(&format!("{text}\n")).map_err(|e| {
                    Error::invalid(format!("{}: {e}", file.display()))
                        .with_hint("expected a user's JWT and seed, as `nsc generate creds` writes them")
                })?
            }
        })
    }
}

/// An address without its secret.
fn without_secret(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_host_port_and_secret() {
        let one = Address::parse("nats://u:p:q@lab:1/").unwrap();
        let login = Login::Password { user: "u".into(), password: "p:q".into() };
        assert_eq!(one, Address { tls: false, host: "lab".into(), port: 1, login, ca: None });
        assert_eq!(Address::parse("nats://s3cret@lab").unwrap().login, Login::Token("s3cret".into()));
        let six = Address::parse("tls://[::1]?ca=ca.pem&nkey=user.nk").unwrap();
        assert_eq!((six.url().as_str(), six.ca), ("tls://[::1]:4222", Some("ca.pem".into())));
        assert_eq!(six.login, Login::Nkey("user.nk".into()));
        let file = |option: &str| Address::parse(&format!("nats://lab:1?{option}=f")).unwrap().login;
        assert_eq!(file("creds"), Login::Credentials("f".into()));
        assert_eq!(file("token-file"), Login::TokenFile("f".into()));
    }

    #[test]
    fn what_is_no_address_is_refused_without_telling_a_secret() {
        for bad in [
            "lab",
            "nats://",
            "nats://h:x",
            "nats://h:99999",
            "ws://h",
            "nats://a b",
            "nats://h?ca",
            "nats://h?ca=",
            "nats://h?shade=1",
            "nats://u:p@h?creds=f",
            "nats://h?creds=f&nkey=g",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        for bad in ["x://secret@h", "nats://u:secret@h:x"] {
            assert!(!Address::parse(bad).unwrap_err().to_string().contains("secret"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_of_secrets_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("user.creds");
        std::fs::write(&file, "no credentials").unwrap();
        let options = |option: &str| {
            Address::parse(&format!("nats://h?{option}={}", file.display())).unwrap().options()
        };
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        for option in ["creds", "nkey", "token-file"] {
            assert!(options(option).unwrap_err().to_string().contains("other users"), "{option}");
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(options("token-file").is_ok());
        let error = options("creds").unwrap_err();
        assert!(error.to_string().contains("user JWT") && error.hint().is_some(), "{error}");
        assert!(options("ca").is_err(), "it holds no certificates");
    }
}
