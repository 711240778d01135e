//! NATS' text protocol: what a server says, read within bounds.

use std::io::{self, BufRead, Read};

/// Longest line of a server, bytes.
const LINE: u64 = 64 << 10;

/// Longest message, bytes.
const MESSAGE: usize = 8 << 20;

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A message for a subscription.
    Message {
        /// The subscription.
        sid: u64,
        /// Where it was published.
        subject: String,
        /// Where an answer goes; empty if none is wanted.
        reply: String,
        /// Headers with their status line.
        headers: String,
        /// The message.
        payload: Vec<u8>,
    },
    /// Answer with a pong.
    Ping,
    /// Everything before the ping has been seen.
    Pong,
    /// Who the server is, as JSON.
    Info(String),
    /// Something was wrong.
    Error(String),
    /// Nothing to act on.
    Ok,
}

/// Reads what the server says next.
pub fn read(from: &mut impl BufRead) -> io::Result<Said> {
    let mut line = String::new();
    if from.take(LINE).read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb.to_ascii_uppercase().as_str() {
        "MSG" => message(from, rest, false),
        "HMSG" => message(from, rest, true),
        "PING" => Ok(Said::Ping),
        "PONG" => Ok(Said::Pong),
        "INFO" => Ok(Said::Info(rest.into())),
        "-ERR" => Ok(Said::Error(rest.trim_matches('\'').into())),
        "+OK" => Ok(Said::Ok),
        _ => Err(bad(line)),
    }
}

/// `subject sid [reply] [bytes of headers] bytes`, then the bytes.
fn message(from: &mut impl BufRead, rest: &str, headed: bool) -> io::Result<Said> {
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let numbers = if headed { 2 } else { 1 };
    let (reply, sizes) = match words.len() {
        n if n == 2 + numbers => ("", &words[2..]),
        n if n == 3 + numbers => (words[2], &words[3..]),
        _ => return Err(bad(rest)),
    };
    let sid = words[1].parse().map_err(|_| bad(rest))?;
    let sizes: Vec<usize> =
        sizes.iter().map(|s| s.parse().map_err(|_| bad(rest))).collect::<io::Result<_>>()?;
    let (head, all) = if headed { (sizes[0], sizes[1]) } else { (0, sizes[0]) };
    if head > all || all > MESSAGE {
        return Err(bad(rest));
    }
    let mut bytes = Vec::with_capacity(all + 2);
    from.take(all as u64 + 2).read_to_end(&mut bytes)?;
    if bytes.len() != all + 2 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(all);
    let payload = bytes.split_off(head);
    let headers = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said::Message { sid, subject: words[0].into(), reply: reply.into(), headers, payload })
}

fn bad(what: &str) -> io::Error {
    let what: String = what.escape_debug().take(100).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("the broker says `{what}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_messages_are_read_within_bounds() {
        let read_one = |text: &str| read(&mut text.as_bytes());
        assert_eq!(read_one("PING\r\n").unwrap(), Said::Ping);
        assert_eq!(read_one("-ERR 'no'\r\n").unwrap(), Said::Error("no".into()));
        let Said::Message { sid, reply, payload, .. } = read_one("MSG a.b 7 in 5\r\nhello\r\n").unwrap()
        else {
            panic!()
        };
        assert_eq!((sid, reply.as_str(), payload.as_slice()), (7, "in", b"hello".as_slice()));
        let text = "HMSG a 1 12 14\r\nNATS/1.0 404hi\r\n";
        let Said::Message { headers, payload, .. } = read_one(text).unwrap() else { panic!() };
        assert_eq!((headers.as_str(), payload.as_slice()), ("NATS/1.0 404", b"hi".as_slice()));
        for bad in [
            "",
            "NONSENSE\r\n",
            "MSG a\r\n",
            "MSG a x 1\r\n1\r\n",
            "MSG a 1 99999999999\r\n",
            "HMSG a 1 9 3\r\nabc\r\n",
        ] {
            assert!(read_one(bad).is_err(), "{bad}");
        }
        assert!(read_one("MSG a 1 10\r\nshort").is_err());
        assert!(read(&mut "x".repeat(1 << 20).as_bytes()).is_err());
    }
}
