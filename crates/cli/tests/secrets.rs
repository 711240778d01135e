//! Tokens stay where they belong: in files that their owner alone reads, and out of words, messages and the wire.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Agent, stderr, tapml};

const SECRET: &str = "do-not-tell-0123456789";

#[test]
fn a_token_in_a_target_goes_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str], hub: Option<&str>| {
        let mut command = tapml(folder.path());
        command.args(arguments).args(["-v", "-v"]);
        if let Some(hub) = hub {
            command.env("TAPML_HUB", hub);
        }
        stderr(&mut command, 2)
    };
    let word = format!("ws://127.0.0.1:1/emulator?check=all&token={SECRET}");
    let twice = format!("{word}&token={SECRET}");
    let hub = format!("ws://127.0.0.1:1?token={SECRET}");
    let user = format!("ws://me:{SECRET}@127.0.0.1:1/emulator");
    let at_hub = format!("hub/emulator?hub={hub}");
    for (arguments, env) in [
        (["device", "check", &word], None),
        (["device", "list", &word], None),
        (["device", "check", &twice], None),
        (["device", "check", &user], None),
        (["device", "list", "hub"], Some(hub.as_str())),
        (["device", "check", &at_hub], None),
    ] {
        let text = said(&arguments, env);
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains("token-file") || text.contains("given twice"), "{text}");
    }
    let text = said(&["device", "serve", "--hub", &hub], None);
    assert!(!text.contains(SECRET) && text.contains("token-file"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_token_file_that_others_may_use_is_refused_at_both_ends() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, SECRET).unwrap();
    let allow = |mode| std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o600);
    let agent = Agent::start(folder.path(), &["--target", "emulator", "--token-file", "token"]);
    let place = format!("{}?token-file=token", agent.place);
    let list = |code| {
        let mut command = tapml(folder.path());
        stderr(command.args(["device", "list", &place]), code)
    };
    assert_eq!(list(0), "");
    for mode in [0o644, 0o640, 0o604, 0o620, 0o602] {
        allow(mode);
        let said = list(2);
        assert!(said.contains("`chmod 600 token`") && said.contains(&format!("mode {mode:04o}")), "{said}");
        assert!(!said.contains(SECRET), "{said}");
        for server in ["serve", "hub"] {
            let mut serve = tapml(folder.path());
            serve.args(["device", server, "--listen", "127.0.0.1:0", "--token-file", "token"]);
            assert!(stderr(&mut serve, 2).contains("`chmod 600 token`"), "{server} at {mode:o}");
        }
    }
    allow(0o400);
    assert_eq!(list(0), "");
}
