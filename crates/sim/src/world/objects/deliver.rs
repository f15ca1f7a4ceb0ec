//! Questions and replies on their way, and what objects and nodes make of them.

use tidegate_gate::{Effect, Micros, Operation, Rule, Verdict};
use tidegate_tier::wire::{Failure, Ignored};

use super::super::replay::Undone;
use super::super::violation::{Checked, Invariant, Seen, check};
use super::machine::{Lent, World};
use super::node::{Run, id};
use super::wiretap::{self, Answer, Name};

/// The most messages under way.
const MOST_MESSAGES: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) to: To,
    /// The node that asked.
    pub(super) run: Run,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) sent: u64,
    pub(super) is_corrupt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Object(usize),
    Node,
}

impl World {
    pub(super) fn post(&mut self, message: Message) {
        if self.messages.len() < MOST_MESSAGES {
            self.messages.push(message);
        }
    }

    /// A node sends the questions that it may send.
    pub(super) fn send(&mut self, node: usize) -> Checked {
        let at = self.nodes[node].at(self.now);
        loop {
            let question = self.nodes[node].flights.poll_transmit(at);
            self.hear_answers(node)?;
            let Some(question) = question else { return Ok(()) };
            let Some((name, (policy, asked))) = wiretap::question(&question.bytes) else {
                return Err(Seen(Invariant::Reason, format!("{question:?} is no question")));
            };
            let run = self.nodes[node].run;
            let is_new = name == (id(run), question.number) && !self.questions.contains_key(&name);
            check(is_new, Invariant::Once, || format!("{name:?} is not a new name of {run:?}"))?;
            let queue = (policy, question.to.group().into_owned());
            let mut operations = Vec::new();
            for (key, operation) in asked {
                let waiting = self.nodes[node].queues.get_mut(&queue);
                let Some(op) = waiting.and_then(|queue| queue.pop_front()) else {
                    return Err(Seen(Invariant::Once, format!("nobody asked for {operation:?}")));
                };
                let own = &self.places.keys[self.ops[op].key].resolved;
                let is_same = own.written_key() == key && self.ops[op].operation == operation;
                check(is_same, Invariant::Order, || {
                    format!("asked for {operation:?} on {key}, expected {:?}", self.ops[op])
                })?;
                operations.push(op);
            }
            let to = To::Object(self.object_of(&self.places.keys[self.ops[operations[0]].key]));
            self.questions.insert(name, operations);
            let (number, bytes, sent) = (question.number, question.bytes, self.now);
            self.post(Message { to, run, number, bytes, sent, is_corrupt: false });
        }
    }

    pub(super) fn deliver_nth(&mut self, index: usize) -> Checked {
        let Some(index) = index.checked_rem(self.messages.len()) else { return Ok(()) };
        let is_stopped = !self.runs(self.messages[index].run.0);
        if self.messages[index].to == To::Node && is_stopped {
            return Ok(());
        }
        let message = self.messages.remove(index);
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
            let last = self.objects[object].last.insert((run, partition), (op, name.1));
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
            let (bytes, sent) = (bytes.to_vec(), self.now);
            self.post(Message { to: To::Node, run, number, bytes, sent, is_corrupt: false });
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
                    asking.is_overloaded && *most == self.setup.most_waiting
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
            let lent = lent(&answer).filter(|_| matches!(asking.operation, Operation::Budget(_)));
            if let (Some(granted), Ok(said)) = (lent, &answer) {
                self.lent.push(Lent { op, granted_at: said.at, granted, spent: 0 });
            }
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
        let partition = self.places.keys[self.key_at(object, operations[0])].partition;
        let last = self.objects[object].last.get(&(run, partition));
        let is_small = self.setup.bytes < 10_000;
        let is_right = match failure {
            Failure::TooLate => {
                self.tally.add("a question was overtaken");
                last.is_some_and(|(_, later)| *later > number)
            }
            Failure::Overloaded { most } => {
                self.tally.add("a question found no room");
                is_small && *most == self.setup.bytes
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
        if self.nodes[node].run != run {
            return Ok(());
        }
        let at = self.nodes[node].at(self.now);
        let handled = self.nodes[node].flights.handle_reply(bytes, at);
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
        self.hear_answers(node)
    }

    /// The answers at a node. Each must be the first to its operation, and one that an object has given.
    pub(super) fn hear_answers(&mut self, node: usize) -> Checked {
        while let Some(answer) = self.nodes[node].flights.poll_answer() {
            let (op, run) = (answer.asked.token, self.nodes[node].run);
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
            if let Some(heard) = answer.verdict_of() {
                self.nodes[node].local.handle_verdict(&heard);
            }
            if let Ok(said) = &answer.result {
                self.remember(node, op, said);
            }
        }
        Ok(())
    }

    fn remember(&mut self, node: usize, op: usize, said: &Verdict) {
        let (key, sent) = (self.ops[op].key, self.ops[op].sent);
        if let Operation::Decide(request) = self.ops[op].operation {
            if said.decision.is_allowed() && request.cost > 0 && !said.limits.is_empty() {
                self.note_grant(key, said.at, request.cost);
            } else if !said.decision.is_allowed() {
                self.nodes[node].refusals.push((key, request.cost, sent, said.clone()));
            }
        }
    }

    /// A node has answered by itself: it repeats a refusal, or spends units.
    pub(super) fn answered_by_node(
        &mut self,
        (node, key): (usize, usize),
        operation: &Operation,
        said: &Verdict,
    ) -> Checked {
        let own = &self.places.keys[key].resolved;
        if let Rule::Listed(_) = own.rule() {
            return Ok(());
        }
        let (Operation::Decide(request) | Operation::Peek(request)) = operation else {
            return Err(Seen(Invariant::Reason, format!("a node answered {operation:?}")));
        };
        let at = self.nodes[node].at(self.now);
        if !said.decision.is_allowed() {
            let remember = own.policy().remember().unwrap_or_default().0;
            let wait = said.decision.retry_after().0;
            let is_heard = self.nodes[node].refusals.iter().any(|(of, cost, sent, heard)| {
                let passed = at.0 - sent.0;
                *of == key
                    && *cost <= request.cost
                    && passed < remember
                    && heard.decision.retry_after().0 == wait + passed
            });
            self.tally.add("a node repeated a refusal");
            return check(is_heard, Invariant::Remembered, || format!("{operation:?}: {said:?}"));
        }
        self.tally.add("a node spent units");
        let time =
            own.policy().local().map_or(0, |budget| tidegate_gate::Limiter::period(budget).0);
        let (run, ops) = (self.nodes[node].run, &self.ops);
        let lent = self.lent.iter_mut().rev().find(|lent| {
            let op = &ops[lent.op];
            op.run == run && op.key == key && lent.granted_at == said.at
        });
        let Some(lent) = lent else {
            return Err(Seen(Invariant::Conserved, format!("{said:?} is out of no grant")));
        };
        lent.spent += request.cost;
        let is_in_time = at < Micros(ops[lent.op].sent.0 + time);
        check(lent.spent <= lent.granted && is_in_time, Invariant::Conserved, || {
            format!("{said:?} at {at:?} is out of {lent:?}")
        })?;
        self.note_grant(key, said.at, request.cost);
        Ok(())
    }
}

fn lent(answer: &Answer) -> Option<u64> {
    match answer.as_ref().ok()?.effect {
        Effect::Budget { allowance, .. } if allowance.left > 0 => Some(allowance.left),
        _ => None,
    }
}
