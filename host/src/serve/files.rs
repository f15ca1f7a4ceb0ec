//! The policy file in force, and the revisions of it that were put in force while the server runs.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tempfile::NamedTempFile;
use tidegate_gate::{Policies, TimedOverride, TimedPolicies, Timestamp};
use tidegate_http::{
    self as http, Access, Changed, Metrics, Origin, PolicyCall, Response, RevisionTag, Revisions,
    Source,
};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::calendar::{Calendar, calendars};
use crate::store::{Store, TooLittleMemory};
use crate::{clock, file};

/// The policy file that the server was started with, and the files that callers have put over it.
///
/// Whoever has changed the policies last wins, a caller or the file: an edit of the file is a revision like a `PUT`. The revisions
/// remember which file was read last, so that an edit made while no server ran is known at the next start.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The policy file as it was read last.
    read_last: String,
    /// When it was read.
    read_at: Timestamp,
    revisions: Revisions,
    kept_in: Option<PathBuf>,
    read_from: Option<PathBuf>,
}

impl Files {
    /// The file that the server is started with. What callers put over it lasts until the server ends.
    #[must_use]
    pub fn new(started_with: String) -> Self {
        Self { read_last: started_with, read_at: clock::now(), ..Self::default() }
    }

    /// The server reads the policy file again when it changes, and at [`Reload::again`](super::Reload::again).
    #[must_use]
    pub fn read_from(self, path: PathBuf) -> Self {
        Self { read_from: Some(path), ..self }
    }

    /// Reads the revisions that are kept in a file. There need not be such a file. If the policy file has changed since the
    /// revisions were kept, the policy file is in force.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or holds something else.
    pub fn kept_in(self, path: PathBuf) -> io::Result<Self> {
        let mut revisions = match file::read(&path).and_then(file::text) {
            Ok(stored) => Revisions::read(&stored).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Revisions::default(),
            Err(error) => return Err(error),
        };
        if !revisions.are_over(&self.read_last) {
            // a file that is wrong changes nothing here, and the server does not start
            let _ = revisions.edit(None, &self.read_last, self.read_at);
        }
        Ok(Self { revisions, kept_in: Some(path), ..self })
    }

    /// The file in force.
    #[must_use]
    pub fn in_force(&self) -> &str {
        self.revisions.file(&Revisions::hash(&self.read_last)).unwrap_or(&self.read_last)
    }

    /// The revision in force.
    #[must_use]
    pub fn tag(&self) -> RevisionTag {
        let RevisionTag { version, hash, origin } =
            self.revisions.tag(&Revisions::hash(&self.read_last));
        let (source, at, by) = (Source::File, self.read_at, "deployment".to_owned());
        RevisionTag { version, hash, origin: origin.or(Some(Origin { source, at, by })) }
    }
}

impl Files {
    /// Stores the revisions, if there are any and a place for them.
    async fn store(&self) -> Result<(), String> {
        let Some(path) = self.kept_in.clone().filter(|_| self.revisions != Revisions::default())
        else {
            return Ok(());
        };
        keep(path.clone(), self.revisions.write()).await.map_err(|error| {
            format!(
                "{}: the revisions cannot be stored: {error}; after a restart an earlier PUT may be in force again",
                path.display()
            )
        })
    }
}

/// What requests are answered by. A request under way keeps what it began with.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policies: Arc<Policies>,
    pub(super) access: Access,
    pub(super) store: Store,
    pub(super) tag: RevisionTag,
    pub(super) metrics: Metrics,
    pub(super) calendars: Vec<Calendar>,
    /// The earliest time at which an override of one key ends.
    ends: Option<Timestamp>,
}

impl InForce {
    /// The same under other policies.
    fn with(&self, timed: TimedPolicies, tag: RevisionTag) -> Result<Self, TooLittleMemory> {
        let TimedPolicies { policies, ends, .. } = timed;
        let policies = Arc::new(policies.sharing(&self.policies));
        let store = self.store.edited(&policies)?;
        let access = self.access.under(&policies);
        let metrics = Metrics::new(&policies, Some(&self.metrics));
        let calendars = calendars(&policies);
        Ok(Self { policies, access, store, tag, metrics, calendars, ends })
    }
}

/// What is in force, and its files.
#[derive(Debug)]
pub(super) struct Swap {
    in_force: RwLock<Arc<InForce>>,
    files: Mutex<Files>,
}

impl Swap {
    pub(super) fn new(
        (policies, access, store): (Arc<Policies>, Access, Store),
        files: Files,
    ) -> Self {
        // the first request reads them
        let has_overrides = !TimedOverride::split(files.in_force()).1.is_empty();
        let ends = has_overrides.then_some(Timestamp::EPOCH);
        let (tag, metrics) = (files.tag(), Metrics::new(&policies, None));
        let calendars = calendars(&policies);
        let in_force = InForce { policies, access, store, tag, metrics, calendars, ends };
        Self { in_force: RwLock::new(Arc::new(in_force)), files: Mutex::new(files) }
    }

    pub(super) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in force at a time: without the overrides of one key that have ended.
    pub(super) async fn at(&self, now: Timestamp, log: impl Fn(&dyn Display)) -> Arc<InForce> {
        let has_ended = |in_force: &InForce| in_force.ends.is_some_and(|end| end <= now);
        let in_force = self.in_force();
        if !has_ended(&in_force) {
            return in_force;
        }
        let files = self.files.lock().await; // after a change that is under way
        let in_force = self.in_force();
        if !has_ended(&in_force) {
            return in_force;
        }
        let read = TimedPolicies::parse(files.in_force(), now).map_err(|error| error.to_string());
        let next = read
            .and_then(|timed| in_force.with(timed, files.tag()).map_err(|error| error.to_string()));
        match next {
            Ok(next) => {
                next.store.take_over(&in_force.store, now);
                self.put(next)
            }
            Err(error) => {
                log(&format_args!("an override that has ended stays in force: {error}"));
                in_force
            }
        }
    }

    fn put(&self, next: InForce) -> Arc<InForce> {
        let next = Arc::new(next);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        next
    }

    /// Answers a call about the revisions. One change comes after another.
    pub(super) async fn handle(&self, call: &PolicyCall, log: impl Fn(&dyn Display)) -> Response {
        let mut files = self.files.lock().await;
        let mut next = files.clone();
        let Changed { response, policies } =
            next.revisions.handle(call.clone(), &files.read_last, clock::now());
        let Some(policies) = policies else { return response };
        let now = self.in_force();
        if let Err(reason) = accepts(&policies.policies) {
            return http::invalid_policies(reason);
        }
        let in_force = match now.with(policies, next.tag()) {
            Ok(in_force) => in_force,
            Err(error) => return http::invalid_policies(error.to_string()),
        };
        if let Some(path) = next.kept_in.clone()
            && let Err(error) = keep(path.clone(), next.revisions.write()).await
        {
            log(&format_args!("{}: the policies cannot be stored: {error}", path.display()));
            let detail = "the new policies could not be stored, so the earlier ones stay in force";
            return http::internal_error(detail.to_owned());
        }
        in_force.store.take_over(&now.store, clock::now());
        self.put(in_force);
        *files = next;
        response
    }

    /// The policy file that the server reads again.
    pub(super) async fn policy_file(&self) -> Option<PathBuf> {
        self.files.lock().await.read_from.clone()
    }

    /// Whether the server has read this text last.
    pub(super) async fn has_read(&self, text: &str) -> bool {
        self.files.lock().await.read_last == text
    }

    /// Takes an edit of the policy file. Returns the revision in force, and a warning if it could not be stored.
    ///
    /// # Errors
    /// Returns why the file is refused. Nothing changes then.
    pub(super) async fn reread(
        &self,
        text: String,
    ) -> Result<(RevisionTag, Option<String>), String> {
        let mut files = self.files.lock().await;
        let mut next = files.clone();
        let parsed = Policies::parse(&text).map_err(|error| error.to_string())?;
        accepts(&parsed)?;
        let now = clock::now();
        let Changed { policies, response } =
            next.revisions.edit(Some(&files.read_last), &text, now);
        if response.status != 200 {
            return Err(response.body);
        }
        (next.read_last, next.read_at) = (text, now);
        let in_force = self.in_force();
        if let Some(policies) = policies {
            let next = in_force.with(policies, next.tag()).map_err(|error| error.to_string())?;
            next.store.take_over(&in_force.store, now);
            self.put(next);
        }
        let warning = next.store().await.err();
        *files = next;
        Ok((files.tag(), warning))
    }

    /// Stores the revisions, if an edit of the file has made one at the start.
    pub(super) async fn store(&self) -> Result<(), String> {
        self.files.lock().await.store().await
    }
}

/// Whether this server can do what the policies say.
///
/// # Errors
/// Returns what the server cannot do, and where the policies say it.
pub fn accepts(policies: &Policies) -> Result<(), String> {
    match policies.needs_verification() {
        None => Ok(()),
        Some(policy) => Err(format!(
            "policies.{}.key: expected sources that this server can read, found a source `jwt:`; only the Worker \
             verifies tokens",
            policy.name()
        )),
    }
}

/// Replaces a file, so that a reader finds either the earlier text or the new one.
async fn keep(path: PathBuf, text: String) -> io::Result<()> {
    let write = move || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path).map(drop).map_err(|error| error.error)
    };
    spawn_blocking(write).await.map_err(io::Error::other)?
}
