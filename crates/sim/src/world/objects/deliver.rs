//! Questions and replies on their way, and what objects and nodes make of them.

use tidegate_gate::{Rule, Verdict};
use tidegate_tier::wire::{Delivered, Failure, Ignored, Outgoing};

use super::machine::{Asking, World};
use super::wiretap::{self, Answer, Name};
use crate::world::front::{Front, Run, id};
use crate::world::message::{Message, To};
use crate::world::replay::Undone;
use crate::world::violation::{Checked, Invariant, Seen, check};

impl World {
    /// A node sends the questions that it may send.
    pub(super) fn send(&mut self, node: usize) -> Checked {
        let at = self.nodes[node].front.at(self.now);
        loop {
            let question = self.nodes[node].outbox().poll_transmit(at);
            self.hear_answers(node, |question| question.is_none())?;
            let Some(question) = question else { return Ok(()) };
            let Some((name, (policy, asked))) = wiretap::question(&question.bytes) else {
                return Err(Seen(Invariant::Reason, format!("{question:?} is no question")));
            };
            let run = self.nodes[node].front.run;
            let is_new = name == (id(run), question.number) && !self.questions.contains_key(&name);
            check(is_new, Invariant::Once, || format!("{name:?} is not a new name of {run:?}"))?;
            let queue = (policy, question.to.group().into_owned());
            let mut operations = Vec::new();
            for (key, operation) in asked {
                let waiting = self.nodes[node].queues.get_mut(&queue);
                let Some(op) = waiting.and_then(|queue| queue.pop_front()) else {
                    return Err(Seen(Invariant::Once, format!("nobody asked for {operation:?}")));
                };
                if self.ops[op].is_own {
                    self.see(op, operation)?;
                }
                self.ops[op].question = Some(question.number);
                let own = &self.places.keys[self.ops[op].key].resolved;
                let is_same = own.written_key() == key && self.ops[op].operation == operation;
                check(is_same, Invariant::Order, || {
                    format!("asked for {operation:?} on {key}, expected {:?}", self.ops[op])
                })?;
                operations.push(op);
            }
            let to = To::Object(self.object_of(&self.places.keys[self.ops[operations[0]].key]));
            self.questions.insert(name, operations);
            let (number, bytes) = (question.number, question.bytes);
            self.messages.post(self.now, Message { to, run, number, bytes, is_corrupt: false });
        }
    }

    pub(super) fn deliver_nth(&mut self, index: usize) -> Checked {
        let (nodes, now) = (&self.nodes, self.now);
        let runs = |message: &Message| nodes[message.run.0].front.runs(now);
        let may = |message: &Message| message.to != To::Node || runs(message);
        let Some(message) = self.messages.take(index, may) else { return Ok(()) };
        match message.to {
            To::Object(object) => self.question(object, &message),
            To::Node => self.reply(&message),
        }
    }

    /// A question arrives.
    fn question(&mut self, object: usize, message: &Message) -> Checked {
        let (now, at) = self.clock(object);
        let decides = &mut self.objects[object];
        let before = (decides.authority.waiting(), decides.authority.overloaded());
        let policies = &decides.policies[decides.revision];
        let taken = decides.inbox.handle_question(
            (message.run, &message.bytes),
            policies,
            (now, at),
            &mut decides.authority,
        );
        let begun = decides.authority.waiting() - before.0;
        let overloaded = decides.authority.overloaded() - before.1;
        if let Err((run, error)) = taken {
            self.tally.add("a corrupt question arrived");
            let is_right = message.is_corrupt && run == message.run && begun == 0;
            check(is_right, Invariant::Reason, || format!("{message:?}: {error}"))?;
            return self.hear_replies(object);
        }
        check(!message.is_corrupt, Invariant::Reason, || format!("{message:?} was taken"))?;
        let name = (id(message.run), message.number);
        let operations = self.questions[&name].clone();
        if begun > 0 {
            check(begun == operations.len(), Invariant::Once, || {
                format!("{begun} operations were begun of {operations:?}")
            })?;
            self.begin(object, (name, message.run), &operations, overloaded)?;
        } else if self.objects[object].begun.contains(&name) {
            self.tally.add("a question came again");
        }
        self.hear_replies(object)
    }

    /// An object begins the operations of a question. Some of the last may be too many.
    fn begin(
        &mut self,
        object: usize,
        (name, run): (Name, Run),
        operations: &[usize],
        overloaded: u64,
    ) -> Checked {
        let is_first = self.objects[object].begun.insert(name);
        check(is_first, Invariant::Once, || format!("{name:?} was begun twice: {operations:?}"))?;
        let (now, at) = self.clock(object);
        let mut queued = Vec::new();
        for op in operations.iter().copied() {
            let key = self.key_at(object, op);
            let partition = self.places.keys[key].partition;
            let group = self.places.keys[key].group;
            let last = self.objects[object].last.insert((run, group), (op, name.1));
            check(last.is_none_or(|last| last < (op, name.1)), Invariant::Order, || {
                format!("number {op} was begun after {last:?}")
            })?;
            let begun = &mut self.ops[op];
            (begun.arrived, begun.at, begun.answer) = (now, at, None);
            (begun.may_fail, begun.is_late, begun.is_overloaded) = (false, false, false);
            begun.accepts.clear();
            if let Rule::Listed(decision) = self.places.keys[key].resolved.rule() {
                begun.accepts.push(Ok(Verdict::listed(now, decision)));
                self.tally.add("a listed key was asked about");
            } else {
                queued.push((op, partition));
            }
        }
        for _ in 0..overloaded {
            if let Some((op, _)) = queued.pop() {
                self.ops[op].is_overloaded = true;
                self.tally.add("an operation was one too many");
            }
        }
        for (op, partition) in queued {
            self.objects[object].partitions.entry(partition).or_default().waiting.push_back(op);
        }
        Ok(())
    }

    /// The replies of an object. Each answer must be one that plain words give.
    pub(super) fn hear_replies(&mut self, object: usize) -> Checked {
        let at = self.clock(object).1;
        loop {
            let decides = &mut self.objects[object];
            let Some((run, bytes)) = decides.inbox.poll_reply(at, &mut decides.authority) else {
                return Ok(());
            };
            let Some(((node, number), answers)) = wiretap::reply(&bytes) else {
                return Err(Seen(Invariant::Reason, format!("{bytes:?} is no reply")));
            };
            check(node == id(run), Invariant::Once, || {
                format!("{run:?} gets a reply to {node:?}")
            })?;
            let Some(operations) = self.questions.get(&(node, number)).cloned() else {
                return Err(Seen(Invariant::Once, format!("nobody asked question {number}")));
            };
            match answers {
                Ok(answers) => {
                    check(answers.len() == operations.len(), Invariant::Once, || {
                        format!("{operations:?} got {answers:?}")
                    })?;
                    for (op, answer) in operations.into_iter().zip(answers) {
                        self.emit(op, answer)?;
                    }
                }
                Err(failure) => {
                    self.check_refused(object, (run, number), &operations, &failure)?;
                    for op in operations {
                        self.ops[op].emitted.push(Err(failure.clone()));
                    }
                }
            }
            let (to, bytes) = (To::Node, bytes.to_vec());
            self.messages.post(self.now, Message { to, run, number, bytes, is_corrupt: false });
        }
    }

    /// An object answers an operation.
    fn emit(&mut self, op: usize, answer: Answer) -> Checked {
        let asking = &self.ops[op];
        if asking.answer.is_none() {
            let is_right = match &answer {
                Ok(said) => asking.accepts.iter().any(|accepted| accepted.as_ref() == Ok(said)),
                Err(Failure::TooLate) => asking.is_late,
                Err(Failure::Overloaded { most }) => {
                    asking.is_overloaded && usize::try_from(*most) == Ok(self.setup.most_waiting)
                }
                Err(Failure::Store(error)) => asking.may_fail && error == "no disk",
                Err(Failure::Transaction(text)) => asking.accepts.iter().any(|accepted| {
                    matches!(accepted, Err(Undone::Operation(error)) if error.to_string() == *text)
                }),
                Err(_) => false,
            };
            check(is_right, Invariant::Linearizable, || {
                format!("number {op} was answered with {answer:?}, expected of {asking:?}")
            })?;
        } else {
            self.tally.add("a reply was sent again");
        }
        let asking = &mut self.ops[op];
        check(
            asking.answer.as_ref().is_none_or(|first| *first == answer),
            Invariant::Once,
            || format!("number {op} was answered with {:?} and {answer:?}", asking.answer),
        )?;
        asking.answer = Some(answer.clone());
        asking.emitted.push(answer);
        Ok(())
    }

    /// An object does not begin a question, or has forgotten it.
    fn check_refused(
        &mut self,
        object: usize,
        (run, number): (Run, u64),
        operations: &[usize],
        failure: &Failure,
    ) -> Checked {
        let group = self.places.keys[self.key_at(object, operations[0])].group;
        let last = self.objects[object].last.get(&(run, group));
        let is_small = self.setup.bytes < 10_000;
        let is_right = match failure {
            Failure::TooLate => {
                self.tally.add("a question was overtaken");
                last.is_some_and(|(_, later)| *later > number)
            }
            Failure::Overloaded { most } => {
                self.tally.add("a question found no room");
                is_small && usize::try_from(*most) == Ok(self.setup.bytes)
            }
            Failure::Unknown => {
                self.tally.add("a reply was forgotten");
                is_small
            }
            _ => false,
        };
        check(is_right, Invariant::Reason, || format!("{operations:?} was refused: {failure:?}"))
    }

    /// A reply arrives.
    fn reply(&mut self, message: &Message) -> Checked {
        let Message { run, ref bytes, is_corrupt, number, .. } = *message;
        let node = run.0;
        if self.nodes[node].front.run != run {
            return Ok(());
        }
        let at = self.nodes[node].front.at(self.now);
        let handled = self.nodes[node].outbox().handle_reply(bytes, at);
        let waits = self.questions[&(id(run), number)].iter().any(|op| self.ops[*op].waits);
        let is_right = match handled {
            Ok(()) => waits && !is_corrupt,
            Err(Ignored::Late(_)) => !waits,
            Err(Ignored::Unreadable(_)) => is_corrupt,
            Err(_) => false,
        };
        self.tally.add(match handled {
            Ok(()) => "a reply arrived",
            Err(Ignored::Late(_)) => "a reply came too late or again",
            Err(_) => "a corrupt reply arrived",
        });
        check(is_right, Invariant::Once, || format!("{message:?}: {handled:?}, waits: {waits}"))?;
        self.hear_answers(node, |question| question == Some(number))
    }

    /// The answers at a node. Each must be the first to its operation, and one that an object has given. `is_in` says
    /// which questions have answers now; `None` stands for the operations that are in no question.
    pub(super) fn hear_answers(
        &mut self,
        node: usize,
        is_in: impl Fn(Option<u64>) -> bool,
    ) -> Checked {
        while let Some(answer) = self.nodes[node].asks.poll_answer() {
            let (run, token) = (self.nodes[node].front.run, answer.asked.token);
            let op = match token {
                Some(op) => op,
                None => self.own_of(node, &answer, &is_in)?,
            };
            let asking = &mut self.ops[op];
            check(asking.waits && asking.run == run, Invariant::Once, || {
                format!("number {op} is answered with {:?}: {asking:?}", answer.result)
            })?;
            asking.waits = false;
            let is_right = match &answer.result {
                Ok(_) => asking.emitted.contains(&answer.result),
                Err(Failure::Unknown | Failure::TooLate | Failure::Overloaded { .. }) => true,
                Err(_) => asking.emitted.contains(&answer.result),
            };
            check(is_right, Invariant::Once, || {
                format!("number {op} is answered with {:?}: {asking:?}", answer.result)
            })?;
            let late = answer.at.0.saturating_sub(asking.sent.0);
            let most = 2 * (self.setup.deadline + self.pause);
            check(late <= most || asking.was_stopped, Invariant::Live, || {
                format!("number {op} was answered {late} µs after it was asked")
            })?;
            let queues = self.nodes[node].queues.values_mut();
            queues.for_each(|queue| queue.retain(|other| *other != op));
            if let (Some(heard), Ok(said)) = (answer.verdict_of(), &answer.result) {
                let Asking { key, sent_at, .. } = self.ops[op];
                self.nodes[node].front.known.hears((key, sent_at), &heard);
                self.grants.note(key, heard.operation, said);
                self.grants.lending.lend(
                    (op, key),
                    heard.operation,
                    said,
                    (heard.sent, self.now),
                )?;
            }
        }
        Ok(())
    }

    /// The operation of the node itself that has this answer: one that waits, in such a question, or one too many, which
    /// never waited. Operations of the same moment on one key may be the same.
    fn own_of(
        &mut self,
        node: usize,
        answer: &Delivered<Option<usize>>,
        is_in: impl Fn(Option<u64>) -> bool,
    ) -> Result<usize, Seen> {
        let Outgoing { resolved, operation, at, .. } = &answer.asked;
        let Front { run, revision, .. } = self.nodes[node].front;
        let is_it = |own: &Asking| {
            let waits = own.is_own && own.waits && own.run == run && own.sent == *at;
            waits && is_in(own.question) && self.places.keys[own.key].resolved == *resolved
        };
        let found = match answer.result {
            Err(Failure::Overloaded { .. }) if is_in(None) => {
                let key = self.places.key_of(resolved, revision);
                key.map(|key| self.queue((node, key), *at, true))
            }
            _ => self.ops.iter().position(is_it),
        };
        let unknown = || Seen(Invariant::Once, format!("nobody asked for {answer:?}"));
        let op = found.ok_or_else(unknown)?;
        if self.ops[op].question.is_none() {
            self.see(op, *operation)?;
        }
        Ok(op)
    }
}
