//! What the requests of a connection of HTTP/2 hold: bodies that are read, and answers that the client has not taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// How many bytes of bodies a connection holds, and about how many bytes of answers. Further requests wait.
const MOST: usize = 4 << 20;

/// About how many bytes of an answer come for each byte of a batch, and for a request without a body.
const ANSWER_PER_BYTE: usize = 64;
const LEAST_ANSWER: usize = 32_768;

/// The room of a connection.
#[derive(Debug)]
pub(super) struct Room {
    bodies: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// When each answer began to wait for the client, in this order.
    waiting: Mutex<BTreeMap<u64, Instant>>,
}

/// The part of a request. Without a room nothing waits: a connection of HTTP/1 has one request at a time.
#[derive(Debug)]
pub(super) struct Part {
    room: Option<Arc<Room>>,
    body: Option<OwnedSemaphorePermit>,
    answer: Option<OwnedSemaphorePermit>,
}

/// An answer that holds its part until the client has taken all of it.
struct Waiting {
    text: Box<str>,
    number: u64,
    room: Arc<Room>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new() -> Self {
        let [bodies, answers] = [0; 2].map(|_| Arc::new(Semaphore::new(MOST)));
        Self { bodies, answers, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the client has left an answer waiting for this long.
    pub(super) async fn overdue(&self, longest: Duration) {
        loop {
            let now = Instant::now();
            let oldest = self.waiting().first_key_value().map(|(_, since)| *since);
            let waited = oldest.map_or(Duration::ZERO, |since| now.duration_since(since));
            match longest.checked_sub(waited).filter(|left| !left.is_zero()) {
                Some(left) => sleep_until(now + left).await,
                None => return,
            }
        }
    }
}

impl Part {
    pub(super) const fn new(room: Option<Arc<Room>>) -> Self {
        Self { room, body: None, answer: None }
    }

    /// Waits for room for so many more bytes of the body.
    pub(super) async fn body(&mut self, bytes: usize) {
        if let Some(room) = &self.room {
            join(&mut self.body, take(&room.bodies, bytes).await);
        }
    }

    /// Waits for room for the answer to a body of so many bytes.
    pub(super) async fn answer(&mut self, body: usize) {
        if let Some(room) = &self.room {
            let bytes = body.saturating_mul(ANSWER_PER_BYTE).saturating_add(LEAST_ANSWER);
            self.answer = take(&room.answers, bytes).await;
        }
    }

    /// The bytes of an answer, which hold what they need of the room until they are sent.
    pub(super) fn hold(self, text: String) -> Bytes {
        let Some(room) = self.room.filter(|_| !text.is_empty()) else { return text.into() };
        let mut permit = self.answer;
        let has = permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = text.len().saturating_sub(has);
        if more > 0 {
            // without waiting, so that no two answers wait for each other
            join(&mut permit, Arc::clone(&room.answers).try_acquire_many_owned(permits(more)).ok());
        } else if let Some(permit) = &mut permit {
            drop(permit.split(has.saturating_sub(text.len())));
        }
        let number = {
            let mut waiting = room.waiting();
            let number = waiting.last_key_value().map_or(0, |(last, _)| last.wrapping_add(1));
            waiting.insert(number, Instant::now());
            number
        };
        Bytes::from_owner(Waiting { text: text.into(), number, room, _permit: permit })
    }
}

async fn take(of: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(of).acquire_many_owned(permits(bytes)).await.ok() // it is never closed
}

fn join(to: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (to.as_mut(), more) {
        (Some(to), Some(more)) => to.merge(more),
        (None, more) => *to = more,
        (Some(_), None) => {}
    }
}

/// What is longer than the room has all of it.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MOST)).unwrap_or(0)
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.room.waiting().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bodies_wait_for_room_and_an_answer_that_nobody_takes_is_overdue() {
        let room = Arc::new(Room::new());
        let part = || Part::new(Some(Arc::clone(&room)));
        let mut bodies: Vec<_> = (0..16).map(|_| part()).collect();
        for body in &mut bodies {
            body.body(262_144).await;
        }
        let mut late = part();
        assert!(late.body(1).now_or_never().is_none(), "16 bodies of 256 KiB take all of the room");
        bodies.pop();
        assert!(late.body(1).now_or_never().is_some());

        let mut first = part();
        first.answer(70_000).await;
        assert!(part().answer(0).now_or_never().is_none(), "the answer may take all of the room");
        let first = first.hold("a".repeat(100_000));
        let mut second = part();
        second.answer(0).now_or_never().expect("the answer takes less");
        let second = second.hold("b".to_owned());
        let (began, longest) = (Instant::now(), Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(first);
        let third = part().hold("c".to_owned());
        room.overdue(longest).await;
        assert_eq!(began.elapsed().as_secs(), 30);
        drop(second);
        room.overdue(longest).await;
        assert_eq!(began.elapsed().as_secs(), 40);
        drop(third);
        assert!(room.waiting().is_empty());
    }
}
