//! What each message says about itself, in one place beside the others of its subject: the bounds of its values, its words in
//! a journal, and whether it is answered. The structs themselves are generated.

mod blobs;
mod bounds;
mod buffers;
mod hub;
mod kernels;
mod lists;
mod names;
mod operators;
mod programs;
mod session;

pub use names::{MEMBERS, Names, Note};

use super::{AgentWord, Reply, Request, ToAgent, ToClient};
use bounds::integer;
use tapml_graph::{Error, Result};

/// Whether a request is answered.
///
/// Requests are performed in order, whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It is not. If it fails, the next request that is answered [`Answered::AfterFailures`] tells so.
    Never,
    /// It is, whatever became of those before it.
    Always,
    /// It is. If an unanswered one before it has failed, that is the answer, and it is not performed.
    AfterFailures,
}

/// What a request says about itself.
pub trait RequestMessage {
    /// Whether it is answered.
    const ANSWERED: Answered;

    /// Fails if a value is beyond its bounds.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The request for a journal, told by the names of what it refers to.
    /// It is made before the request is remembered, so that names of what it frees are still known.
    fn note(&self, names: &Names) -> Note;

    /// Enters what the request makes, and strikes what it frees. Its message has `len` bytes.
    fn remember(&self, names: &mut Names, len: usize) {
        // Most requests neither make nor free anything.
        let _ = (names, len);
    }
}

/// What a reply says about itself.
pub trait ReplyMessage {
    /// Fails if a value is beyond its bounds.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The reply in a few words, with an article where there is one.
    fn words(&self) -> String;
}

/// What a message of an agent to its hub says about itself.
pub trait AgentMessage {
    /// Fails if a value is beyond its bounds.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Request {
    /// Whether the request is answered.
    pub(crate) fn answer_kind(&self) -> Answered {
        // A constant of a trait needs the type of the message, which is inferred here.
        fn kind_of<M: RequestMessage>(_: &M) -> Answered {
            M::ANSWERED
        }
        with_to_agent!(self, message => kind_of(message))
    }

    /// See [`RequestMessage::note`].
    pub(crate) fn note(&self, names: &Names) -> Note {
        with_to_agent!(self, message => message.note(names))
    }

    /// See [`RequestMessage::remember`].
    pub(crate) fn remember(&self, names: &mut Names, len: usize) {
        with_to_agent!(self, message => message.remember(names, len))
    }
}

impl Reply {
    /// See [`ReplyMessage::words`].
    pub(crate) fn words(&self) -> String {
        with_to_client!(self, message => message.words())
    }
}

/// Checks what a client sent.
pub fn check_request(message: &ToAgent) -> Result<()> {
    // Whether the number rises is a matter of the session.
    integer("seq", message.seq)?;
    let request = message.request.as_ref().ok_or_else(|| Error::invalid("the message holds no request"))?;
    with_to_agent!(request, message => message.check())
}

/// Checks what an agent sent.
/// A client does not trust an agent either: both may be of another make.
pub fn check_reply(message: &ToClient) -> Result<()> {
    integer("seq", message.seq)?;
    let reply = message.reply.as_ref().ok_or_else(|| Error::invalid("the message holds no reply"))?;
    with_to_client!(reply, message => message.check())
}

/// Checks what an agent says to a hub.
pub fn check_agent_word(word: &AgentWord) -> Result<()> {
    with_agent_to_hub!(word, message => message.check())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use std::collections::BTreeSet;

    /// Every request, with its name and no values.
    fn requests() -> Vec<(String, Request)> {
        let numbered = |number: u8| {
            let key =
                if number < 16 { vec![number << 3 | 2] } else { vec![(number << 3 | 2) | 0x80, number >> 4] };
            let request = ToAgent::decode([key, vec![0]].concat().as_slice()).unwrap().request?;
            let name = format!("{request:?}").split('(').next().unwrap().to_string();
            Some((name, request))
        };
        (2..100).filter_map(numbered).collect()
    }

    #[test]
    fn the_schema_says_which_requests_are_answered() {
        let schema = include_str!("../../../proto/tapml.proto").replace("\n//", "");
        let listed = |before: &str| {
            let (_, list) = schema.split_once(before).unwrap();
            let (list, _) = list.split_once(')').unwrap();
            list.split(',').map(|name| name.trim().to_string()).collect::<BTreeSet<_>>()
        };
        let all = requests();
        assert!(all.len() >= 26, "{}", all.len());
        let declared = |which: &dyn Fn(Answered) -> bool| {
            let named = all.iter().filter(|(_, request)| which(request.answer_kind()));
            named.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(listed("Some are answered ("), declared(&|answered| answered != Answered::Never));
        assert_eq!(listed("of some ("), declared(&|answered| answered == Answered::AfterFailures));
    }

    #[test]
    fn every_request_has_words_of_its_own() {
        let names = Names::of_session();
        let told: BTreeSet<String> =
            requests().iter().map(|(_, r)| r.note(&names).describe(&names, 0)).collect();
        // A step is told as the run of its list.
        assert_eq!(told.len(), requests().len() - 2, "{told:?}");
    }

    #[test]
    fn what_was_made_is_told_by_name_until_it_is_freed() {
        let mut names = Names::of_session();
        let label = "weights".to_string();
        let create = Request::CreateBuffer(crate::wire::CreateBuffer { buffer: 3, label, size: 16 });
        let destroy = Request::DestroyBuffer(crate::wire::DestroyBuffer { buffer: 3 });
        create.remember(&mut names, 20);
        assert_eq!(names.memory(), 16);
        assert_eq!(destroy.note(&names).describe(&names, 0), "destroy buffer 3 `weights` of 16 bytes");
        destroy.remember(&mut names, 4);
        assert_eq!((names.memory(), names.buffer(3)), (0, "buffer 3, which does not exist".into()));
        assert_eq!(Names::default().buffer(3), "buffer 3");
    }
}
