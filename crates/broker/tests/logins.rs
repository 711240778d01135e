//! What a server wants to be shown: passwords, tokens, keys, credentials, and that the connection is TLS.
#![allow(clippy::unwrap_used)]

mod common;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::Server;
use nkeys::KeyPair;
use std::path::{Path, PathBuf};
use tapml_broker::Client;
use tapml_testing::write_secret;

fn local(secret: &str, options: &str) -> impl Fn(u16) -> String {
    let (secret, options) = (secret.to_string(), options.to_string());
    move |port| format!("nats://{secret}127.0.0.1:{port}{options}")
}

/// The server is used by who shows what it wants, and by nobody else.
fn expect_only(server: &Server, wrong: &[&str]) {
    let client = server.client();
    assert!(client.publish("a", b"x").is_ok() && client.is_connected());
    let (_, port) = server.url.split_once("127.0.0.1:").unwrap();
    let port = port.split('?').next().unwrap();
    for secret in wrong {
        let (before, after) = secret.split_once(' ').unwrap_or((secret, ""));
        let refused = Client::connect(&format!("nats://{before}127.0.0.1:{port}{after}"));
        let text = refused.err().unwrap().to_string();
        assert!(text.contains("authorization violation"), "{text}");
        assert!(!text.contains("wrong"), "{text}");
    }
}

#[test]
fn passwords_and_tokens_are_shown_from_the_address_or_a_file() {
    let users = "authorization { users: [{ user: u, password: \"p:q\" }] }";
    let Some(server) = Server::start(users, local("u:p:q@", "")) else { return };
    expect_only(&server, &["", "u:wrong@", "wrong@"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write_secret(&file, "t0ken\n").unwrap();
    let options = format!("?token-file={}", file.display());
    let server = Server::start("authorization { token: t0ken }", local("", &options)).unwrap();
    expect_only(&server, &["", "wrong@"]);
    assert!(Client::connect(&server.url.replace("//", "//t0ken@").replace(&options, "")).is_ok());
}

#[test]
fn a_key_signs_what_the_server_says() {
    let (own, other) = (KeyPair::new_user(), KeyPair::new_user());
    let folder = tempfile::tempdir().unwrap();
    let seed = |name: &str, key: &KeyPair| {
        let file = folder.path().join(name);
        write_secret(&file, &key.seed().unwrap()).unwrap();
        format!("?nkey={}", file.display())
    };
    let settings = format!("authorization {{ users: [{{ nkey: {} }}] }}", own.public_key());
    let Some(server) = Server::start(&settings, local("", &seed("own", &own))) else { return };
    expect_only(&server, &["", &format!(" {}", seed("other", &other))]);
}

/// A JWT as NATS has it.
fn jwt(issuer: &KeyPair, subject: &KeyPair, kind: &str, more: &str) -> String {
    let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
    let head = encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#.into());
    let claims = format!(
        r#"{{"jti":"1","iat":1,"iss":"{}","name":"{kind}","sub":"{}","nats":{{{more}"type":"{kind}","version":2}}}}"#,
        issuer.public_key(),
        subject.public_key(),
    );
    let text = format!("{head}.{}", encode(claims));
    let signed = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed))
}

fn credentials(folder: &Path, name: &str, issuer: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(issuer, &user, "user", r#""subs":-1,"data":-1,"payload":-1,"#),
        user.seed().unwrap(),
    );
    let file = folder.join(name);
    write_secret(&file, &text).unwrap();
    format!("?creds={}", file.display())
}

#[test]
fn credentials_of_a_user_are_shown() {
    let (operator, account, stranger) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let folder = tempfile::tempdir().unwrap();
    let limits = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1},"#;
    let system = KeyPair::new_account();
    let settings = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n",
        jwt(&operator, &operator, "operator", ""),
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, "account", limits),
        account.public_key(),
        jwt(&operator, &account, "account", limits),
    );
    let own = credentials(folder.path(), "own", &account);
    let other = credentials(folder.path(), "other", &stranger);
    let Some(server) = Server::start(&settings, local("", &own)) else { return };
    expect_only(&server, &["", &format!(" {other}")]);
}

#[test]
fn a_server_is_trusted_by_its_certificate() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rpc/tests/data");
    let file = |name: &str| -> PathBuf { data.join(name) };
    let settings = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", file("cert.pem"), file("key.pem"));
    let ca = format!("?ca={}", file("cert.pem").display());
    let address = |port: u16| format!("tls://127.0.0.1:{port}{ca}");
    let Some(server) = Server::start(&settings, address) else { return };
    assert!(server.client().publish("a", b"x").is_ok());
    assert!(Client::connect(&server.url.replace("tls:", "nats:")).is_ok(), "the server wants TLS");
    let unknown = Client::connect(&server.url.replace(&ca, "")).err().unwrap();
    assert!(unknown.to_string().contains("certificate"), "{unknown}");
    let plain = Server::plain().unwrap();
    assert!(Client::connect(&plain.url.replace("nats:", "tls:")).is_err(), "no TLS, no connection");
}
