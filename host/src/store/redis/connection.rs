//! The connection to Redis. This file decides where it leads, when the store opens it, when it counts as dead, and how long an answer
//! may take.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncCommands, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisResult,
    ServerErrorKind,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::dialer::{Dialer, Open, no_handshake};
use super::named::with_address;
use super::sentinel::Sentinels;
use crate::store::error::StoreError;

/// A connection on which this many questions in a row missed the deadline counts as dead.
pub(super) const MOST_MISSED: u32 = 2;

/// A dead connection is replaced once it is at least this old. So the store connects no more often than
/// this to a Redis that stays unreachable or read-only.
const REPLACED_AFTER: Duration = Duration::from_millis(100);

/// A connection on which Redis has answered nothing for this long may be closed: `timeout` in redis.conf is a
/// second or more.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// What a connection leads to, and who asks it.
pub(super) struct Destination {
    pub(super) dialer: Dialer,
    pub(super) login: RedisConnectionInfo,
    pub(super) to: To,
}

pub(super) enum To {
    Server(ConnectionAddr),
    /// Whatever server is the master when the connection opens.
    Master(Sentinels),
}

impl Destination {
    pub(super) async fn connect(&self, in_handshake: &AtomicBool) -> RedisResult<Open> {
        let Self { dialer, login, to } = self;
        match to {
            To::Server(server) => dialer.connect(server, login, in_handshake).await,
            To::Master(sentinels) => sentinels.connect(dialer, login, in_handshake).await,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Master(sentinels) => write!(f, "the master {:?}", sentinels.master),
        }
    }
}

/// One connection for all callers. It is replaced when it is dead or leads to a server that is not the
/// master.
pub(super) struct Connection {
    destination: Arc<Destination>,
    /// What an error calls the server.
    pub(super) server: Arc<str>,
    deadline: Duration,
    /// Opened at the first use, because a connection needs a runtime to live in.
    current: Mutex<Option<Arc<Attempt>>>,
}

/// An attempt to connect, and the connection once it is open.
struct Attempt {
    began: Instant,
    /// When the last answer arrived.
    heard: Mutex<Instant>,
    /// `None` until the attempt has succeeded or failed.
    connected: watch::Receiver<Option<RedisResult<Open>>>,
    /// The number of questions in a row that missed the deadline.
    missed: AtomicU32,
    /// The server was reached, and TLS is being agreed upon.
    in_handshake: AtomicBool,
    is_dead: AtomicBool,
}

impl Connection {
    /// A connection that leads there. It connects at the first question.
    pub(super) fn new(destination: Destination) -> Self {
        let deadline = destination.dialer.deadline;
        let server = destination.to.to_string().into();
        Self { destination: Arc::new(destination), server, deadline, current: Mutex::new(None) }
    }

    /// Asks Redis whether it is there if the connection was idle, because Redis closes idle connections. After a
    /// question that changes something, nobody could know whether a closed connection has delivered it.
    pub(super) async fn wake(&self) -> Result<(), StoreError> {
        let is_idle = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.as_ref().is_some_and(|attempt| attempt.last_answer().elapsed() >= IDLE_AFTER)
        };
        match is_idle {
            true => self.read(|mut connection| async move { connection.ping().await }).await,
            false => Ok(()),
        }
    }

    /// Asks Redis a question that changes nothing. Redis closes connections that are idle for long, and the
    /// store may learn of it only by asking, so it asks once more on a new connection.
    pub(super) async fn read<T, F: Future<Output = RedisResult<T>>>(
        &self,
        question: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError> {
        match self.ask(&question).await {
            Err(StoreError::Redis(error)) if error.is_connection_dropped() => {
                self.ask(question).await
            }
            answer => answer,
        }
    }

    /// Asks Redis, and waits for the answer until Redis has been silent for a whole deadline. Redis
    /// answers the questions on a connection in their order, so each answer to an earlier question starts
    /// the deadline anew. The first deadline includes connecting.
    pub(super) async fn ask<T, F: Future<Output = RedisResult<T>>>(
        &self,
        question: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError> {
        let attempt = self.attempt();
        let mut answer = pin!(async {
            let connection = attempt.connection().await.inspect_err(|_| attempt.end())?;
            question(connection).await.map_err(|error| with_address(error, &self.server))
        });
        let mut since = Instant::now();
        loop {
            if let Ok(answer) = timeout_at(since + self.deadline, answer.as_mut()).await {
                attempt.answered(answer.as_ref().err());
                return Ok(answer?);
            }
            let heard = attempt.last_answer();
            if heard <= since {
                attempt.missed();
                return Err(match attempt.in_handshake.load(Ordering::Relaxed) {
                    true => with_address(no_handshake(self.deadline), &self.server).into(),
                    false => StoreError::Deadline {
                        within: self.deadline,
                        server: Some(Arc::clone(&self.server)),
                    },
                });
            }
            since = heard;
        }
    }

    /// Replaces the connection if it is of no more use after this error.
    pub(super) fn doubt(&self, error: &RedisError) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &*current
            && is_final(error)
        {
            attempt.end();
        }
    }

    /// The current attempt, or a new one if the current one is dead and old enough.
    fn attempt(&self) -> Arc<Attempt> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(attempt) if !attempt.is_to_be_replaced() => Arc::clone(attempt),
            _ => Arc::clone(current.insert(self.begin())),
        }
    }

    /// Connects in its own task, so a caller that goes away does not end the attempt.
    fn begin(&self) -> Arc<Attempt> {
        let (sender, connected) = watch::channel(None);
        let attempt = Arc::new(Attempt {
            began: Instant::now(),
            heard: Mutex::new(Instant::now()),
            connected,
            missed: AtomicU32::new(0),
            in_handshake: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
        });
        let connecting = Arc::clone(&attempt);
        let destination = Arc::clone(&self.destination);
        tokio::spawn(async move {
            let connection = destination.connect(&connecting.in_handshake).await;
            if connection.is_err() {
                connecting.end(); // its error answers nobody who asks later
            }
            let _ = sender.send(Some(connection)); // the attempt may have been replaced
        });
        attempt
    }
}

impl Attempt {
    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut connected = self.connected.clone();
        match connected.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(open)) => open.clone().map(|open| open.connection),
            _ => Err(RedisError::from((ErrorKind::Client, "the runtime of the connection ended"))),
        }
    }

    fn answered(&self, error: Option<&RedisError>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.missed.store(0, Ordering::Relaxed);
        if error.is_some_and(is_final) {
            self.end();
        }
    }

    fn last_answer(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self) {
        if self.missed.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_MISSED {
            self.end();
        }
    }

    fn end(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    fn is_to_be_replaced(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed) && self.began.elapsed() >= REPLACED_AFTER
    }
}

/// Whether a connection is of no more use after this error: it broke, or its server takes no writes. The
/// same name or address may lead to the new master by now.
fn is_final(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::BusyLoading
            )
        )
}
