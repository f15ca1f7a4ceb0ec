//! One call of the script that compares and swaps the states of some partitions: the host's script, in the host's words.

use tidegate_tier::Authority;
use tidegate_tier::authority::{Swap, SwapOutcome};

use super::arguments::Arguments;
use super::reply::Reply;
use super::script::Script;

/// The words before the names: the command, the script and the number of names.
const BEFORE_NAMES: usize = 3;

/// The values for each name.
const VALUES: usize = 3;

pub(super) type Outcomes = Vec<SwapOutcome<String>>;

/// Partitions of a swap that share a call: of one slot, or of several slots of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The slot of the first partition, which leads to the master.
    pub(super) slot: u16,
    pub(super) is_across: bool,
    /// Which partitions of the swap they are.
    pub(super) partitions: Vec<usize>,
}

/// What follows a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next command is to be sent.
    Send,
    /// The call has ended: the outcome of each partition, or the error of the whole call.
    End(Result<Outcomes, String>),
    /// The call over several slots has ended by this error of the client, and nobody knows what is written. The slots are to be asked.
    Lost(String),
}

/// A call that has not ended. `swap.lua` says what its words mean, and `across.lua` those of a call over several slots.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) group: Group,
    script: &'static Script,
    /// The next command.
    command: Arguments,
    /// Whether the command has the whole script in place of its hash.
    has_script: bool,
    /// The command that swaps, and the error after which nobody knows whether it has: what is stored is then read.
    lost: Option<(Arguments, String)>,
    names: usize,
    /// The number of records of each partition.
    records: Vec<usize>,
}

impl Call {
    pub(super) fn new(
        (prefix, has_texts): (&str, bool),
        (authority, swap): (&mut Authority<usize, String>, &Swap),
        group: Group,
    ) -> Self {
        let script = if group.is_across { Script::across() } else { Script::of(has_texts) };
        let records: Vec<usize> =
            group.partitions.iter().map(|own| authority.records(swap, *own).count()).collect();
        let command = Arguments::default();
        let names = records.iter().sum();
        let mut call =
            Self { group, script, command, has_script: false, lost: None, names, records };
        call.command = call.begin("EVALSHA", &script.hash);
        for partition in &call.group.partitions {
            for record in authority.records(swap, *partition) {
                call.command.push_joined(prefix.as_bytes(), record.name.as_bytes());
            }
        }
        for partition in &call.group.partitions {
            for record in authority.records(swap, *partition) {
                call.command.push(&script.carried(record.found.unwrap_or_default()));
                call.command.push(&script.carried(record.becomes.unwrap_or_default()));
                let keep = record.ttl.map(|ttl| ttl.as_millis_ceil().to_string());
                call.command.push(keep.unwrap_or_default().as_bytes());
            }
        }
        call.push_records();
        call
    }

    /// The words before the names.
    fn begin(&self, command: &str, script: &str) -> Arguments {
        if !self.group.is_across {
            return Arguments::of_script(command, script, self.names);
        }
        let mut words = Arguments::of_script(command, script, 0); // the names are values
        words.push(self.names.to_string().as_bytes());
        words
    }

    /// Says how many records each partition has, unless each has one.
    fn push_records(&mut self) {
        if self.records.iter().any(|records| *records != 1) {
            let each = self.records.iter().map(ToString::to_string);
            each.for_each(|records| self.command.push(records.as_bytes()));
        }
    }

    pub(super) const fn command(&self) -> &Arguments {
        &self.command
    }

    /// The words from the first name on.
    fn names_and_rest(words: &Arguments, is_across: bool) -> impl Iterator<Item = &[u8]> {
        words.iter().skip(BEFORE_NAMES.saturating_add(usize::from(is_across)))
    }

    /// Takes the reply to the command.
    pub(super) fn reply(&mut self, reply: Reply) -> Step {
        match (reply, self.lost.take()) {
            (Reply::Error(error), lost) if is_unknown_script(&error) && !self.has_script => {
                (self.has_script, self.lost) = (true, lost);
                self.with_whole_script();
                Step::Send
            }
            (Reply::Error(error), _) if is_of_server(&error) => Step::End(Err(error)),
            (Reply::Error(error), None) if self.group.is_across => Step::Lost(error),
            (Reply::Error(error), None) => {
                self.read_after(error);
                Step::Send
            }
            (Reply::Error(error), Some(_)) => Step::End(Err(error)),
            (reply, None) => Step::End(self.outcomes(reply)),
            (reply, Some((swapped, error))) => {
                Step::End(self.outcomes(reply).map(|read| self.after_loss(read, &swapped, &error)))
            }
        }
    }

    fn with_whole_script(&mut self) {
        let mut whole = self.begin("EVAL", &self.script.source);
        Self::names_and_rest(&self.command, self.group.is_across).for_each(|word| whole.push(word));
        self.command = whole;
    }

    /// Nobody knows what is written, because of this error: asks for the bytes that are stored. The script finds them if it expects
    /// nothing, and writes nothing.
    pub(super) fn read_after(&mut self, error: String) {
        let mut reads = self.begin("EVALSHA", &self.script.hash);
        let rest = Self::names_and_rest(&self.command, self.group.is_across);
        rest.take(self.names).for_each(|name| reads.push(name));
        (0..self.names * VALUES).for_each(|_| reads.push(&[]));
        self.has_script = false;
        self.lost = Some((core::mem::replace(&mut self.command, reads), error));
        self.push_records();
    }

    /// The outcomes of a swap, given what was read after it. A partition whose records are all as expected is not written, so its
    /// operations can be done again. Otherwise nobody knows who wrote.
    fn after_loss(&self, read: Outcomes, swapped: &Arguments, error: &str) -> Outcomes {
        let rest = Self::names_and_rest(swapped, self.group.is_across);
        let mut expected = rest.skip(self.names).step_by(VALUES);
        let outcome = |(read, records): (SwapOutcome<String>, &usize)| {
            let expected: Vec<&[u8]> = expected.by_ref().take(*records).collect();
            let found = match read {
                SwapOutcome::Swapped => vec![None; *records], // nothing is stored
                SwapOutcome::Found(found) => found,
                other => return other,
            };
            let bytes = found.iter().map(|found| found.as_deref().unwrap_or_default());
            match bytes.map(|bytes| self.script.carried(bytes)).eq(expected) {
                true => SwapOutcome::Found(found),
                false => SwapOutcome::Refused(found, error.to_owned()),
            }
        };
        read.into_iter().zip(&self.records).map(outcome).collect()
    }

    fn outcomes(&self, reply: Reply) -> Result<Outcomes, String> {
        match reply {
            Reply::Zero => Ok(self.records.iter().map(|_| SwapOutcome::Swapped).collect()),
            Reply::List(told) if told.len() == self.records.len() => {
                let each = told.into_iter().zip(&self.records);
                Ok(each.map(|(told, records)| outcome(told, *records)).collect())
            }
            _ => Err(UNEXPECTED.to_owned()),
        }
    }
}

const UNEXPECTED: &str = "the script returned something else than it can";

fn outcome(told: Reply, records: usize) -> SwapOutcome<String> {
    let unexpected = || SwapOutcome::Failed(UNEXPECTED.to_owned());
    let told = match told {
        Reply::Zero => return SwapOutcome::Swapped,
        Reply::List(told) => told,
        _ => return unexpected(),
    };
    let (mut error, mut found) = (None, Vec::with_capacity(records));
    for value in told {
        match value {
            Reply::Nil => found.push(None),
            Reply::Bytes(bytes) => found.push(Some(bytes)),
            Reply::Error(server) if error.is_none() => error = Some(server),
            _ => return unexpected(),
        }
    }
    match error {
        None if found.len() == records => SwapOutcome::Found(found),
        Some(error) if found.len() == records => SwapOutcome::Refused(found, error),
        Some(error) if is_of_another_type(&error) => SwapOutcome::Unreadable(error),
        Some(error) => SwapOutcome::Failed(error),
        None => unexpected(),
    }
}

/// Whether a name holds another type of Redis than states have.
pub(super) fn is_of_another_type(error: &str) -> bool {
    error.starts_with("WRONGTYPE")
}

fn is_unknown_script(error: &str) -> bool {
    error.starts_with("NOSCRIPT")
}

/// Whether Redis said this, and not the client: an error of Redis begins with a word in capitals, such as `READONLY`.
pub(super) fn is_of_server(error: &str) -> bool {
    let word = error.split(' ').next().unwrap_or_default();
    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_gate::{Micros, Policy, Resolved, Timestamp};
    use tidegate_tier::authority::{Options, Queued};

    use super::*;

    /// A call that writes one record of each of two keys.
    fn call_of(is_across: bool) -> Call {
        let policy = r#"{"limits":[{"algorithm":"fixed_window","limit":2,"period":"1m"}]}"#;
        let policy = Arc::new(Policy::parse("login", policy).unwrap());
        let mut authority = Authority::new(Options::default());
        for (token, key) in ["a", "b"].into_iter().enumerate() {
            let (resolved, now) = (Resolved::new(&policy, key).unwrap(), Timestamp(7));
            authority.ask(Queued { resolved, now, operation: 1.into(), at: Micros(0), token });
        }
        let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
        let group = Group { slot: 0, is_across, partitions: vec![0, 1] };
        Call::new(("p:", false), (&mut authority, &swap), group)
    }

    fn call() -> Call {
        call_of(false)
    }

    fn words(call: &Call) -> Vec<String> {
        call.command().iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn a_call_names_the_script_by_its_hash_and_then_sends_it() {
        let mut call = call();
        let by_hash = words(&call);
        assert_eq!(by_hash[..3], ["EVALSHA", &*call.script.hash, "2"]);
        assert!(by_hash[3].starts_with("p:") && by_hash[4].starts_with("p:"), "{by_hash:?}");
        assert_eq!(by_hash.len(), 3 + 2 + 6);
        assert_eq!(call.reply(Reply::Error("NOSCRIPT No matching script.".into())), Step::Send);
        let whole = words(&call);
        assert_eq!(whole[..3], ["EVAL", &*call.script.source, "2"]);
        assert_eq!(whole[3..], by_hash[3..]);
        let both = vec![SwapOutcome::Swapped, SwapOutcome::Swapped];
        assert_eq!(call.reply(Reply::Zero), Step::End(Ok(both)));
    }

    #[test]
    fn after_a_broken_connection_only_what_is_unwritten_is_done_again() {
        let mut call = call();
        assert_eq!(call.reply(Reply::Error("Connection is closed.".into())), Step::Send);
        assert_eq!(words(&call)[5..], ["", "", "", "", "", ""]);
        let other = || Some(b"other".to_vec());
        let found = Reply::List(vec![Reply::Bytes(b"other".to_vec())]);
        let outcomes = vec![
            SwapOutcome::Found(vec![None]),
            SwapOutcome::Refused(vec![other()], "Connection is closed.".into()),
        ];
        assert_eq!(call.reply(Reply::List(vec![Reply::Zero, found])), Step::End(Ok(outcomes)));
    }

    #[test]
    fn a_call_over_several_slots_has_its_names_among_the_values() {
        let (mut across, one) = (call_of(true), words(&call()));
        let by_hash = words(&across);
        assert_eq!(by_hash[..4], ["EVALSHA", &*across.script.hash, "0", "2"]);
        assert_eq!(by_hash[4..], one[3..]);
        assert_eq!(across.reply(Reply::Error("NOSCRIPT No matching script.".into())), Step::Send);
        let whole = words(&across);
        assert!(whole[1].starts_with("#!lua flags=allow-cross-slot-keys\n"), "{whole:?}");
        assert_eq!((&*whole[0], &whole[2..]), ("EVAL", &by_hash[2..]));
        let lost = across.reply(Reply::Error("Connection is closed.".into()));
        assert_eq!(lost, Step::Lost("Connection is closed.".into()));
    }

    #[test]
    fn a_second_broken_connection_ends_the_call() {
        let mut call = call();
        assert_eq!(call.reply(Reply::Error("Connection is closed.".into())), Step::Send);
        let again = call.reply(Reply::Error("Connection is closed.".into()));
        assert_eq!(again, Step::End(Err("Connection is closed.".into())));
    }

    #[test]
    fn a_reply_that_the_script_cannot_make_swaps_nothing() {
        let one = |told: Reply| match call().reply(Reply::List(vec![Reply::Zero, told])) {
            Step::End(Ok(outcomes)) => outcomes[1].clone(),
            other => panic!("{other:?}"),
        };
        let error = || Reply::Error("READONLY replica".into());
        for told in [Reply::Nil, Reply::Other, Reply::Bytes(vec![]), error(), Reply::List(vec![])] {
            assert!(matches!(one(told), SwapOutcome::Failed(_)));
        }
        let wrong =
            || "WRONGTYPE Operation against a key holding the wrong kind of value".to_owned();
        let unreadable = one(Reply::List(vec![Reply::Error(wrong())]));
        assert_eq!(unreadable, SwapOutcome::Unreadable(wrong()));
        let told = Reply::List(vec![error(), Reply::Nil]);
        assert_eq!(one(told), SwapOutcome::Refused(vec![None], "READONLY replica".into()));
        for told in [Reply::Nil, Reply::Other, Reply::List(vec![Reply::Zero]), error()] {
            assert!(matches!(call().reply(told), Step::End(Err(_))));
        }
    }
}
