//! The revisions of a policy file: each file that was put in force, with its time and its actor.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};
use tidegate_gate::{Policies, Quoted, TimedOverride, TimedPolicies, Timestamp};

use super::tag::{Origin, RevisionTag, Source};
use super::{Change, ChangeTo, PolicyCall, text};
use crate::answer::json::{Written, object};
use crate::answer::problem::{self, Problem, answer_json};
use crate::api::call;
use crate::response::Response;

/// The most revisions that are kept.
const MOST_REVISIONS: usize = 20;

/// The most bytes of all files that are kept, so that a value of a Durable Object (2 MB) has room for them. The revision
/// in force and the one before are always kept.
pub(super) const MOST_BYTES: usize = 768 << 10;

/// The actor of a revision that is the policy file itself.
const DEPLOYMENT: &str = "deployment";

/// After this time no node goes by a revision that is no longer in force.
const HOUR_US: u64 = 3_600_000_000;

/// The first line of the stored form.
const FORMAT: &str = "tidegate-revisions 1";

/// The files that were put in force one after another, in a bounded number.
///
/// A file is put over the file that was *deployed*: the one that the server was started or deployed with. It holds
/// until another file is deployed.
///
/// ```
/// use tidegate_http::Revisions;
/// let revisions = Revisions::default();
/// let deployed = "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
/// let deployed = Revisions::hash(deployed);
/// assert_eq!(revisions.tag(&deployed).version, 1);
/// assert_eq!(revisions.file(&deployed), None); // the deployed file is in force
/// assert_eq!(Revisions::read(&revisions.write()), Ok(revisions));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revisions(VecDeque<Revision>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Revision {
    version: u64,
    at_us: u64,
    by: String,
    /// The hash of the deployed file that the revision was put over.
    over: String,
    /// The version whose file it has again.
    restores: Option<u64>,
    file: String,
}

/// The answer to a call, and what must happen before it is sent.
#[derive(Debug)]
pub struct Changed {
    /// The response.
    pub response: Response,
    /// The policies to put in force, once the revisions are stored. `None` if nothing has changed.
    pub policies: Option<TimedPolicies>,
}

/// The stored revisions cannot be read: the first line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRevisions(String);

impl fmt::Display for InvalidRevisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found) = self;
        write!(f, "expected the revisions of a policy file, found {}", Quoted(found))
    }
}

impl core::error::Error for InvalidRevisions {}

impl Revisions {
    /// A hash of a policy file, by which files are told apart.
    #[must_use]
    pub fn hash(file: &str) -> String {
        let digest = Sha256::digest(file.as_bytes());
        let first = digest.first_chunk().copied().unwrap_or_default();
        alloc::format!("{:016x}", u64::from_be_bytes(first))
    }

    /// Reads what [`write`](Self::write) has written.
    ///
    /// # Errors
    /// Fails with [`InvalidRevisions`] if the text is something else.
    pub fn read(stored: &str) -> Result<Self, InvalidRevisions> {
        let (first, mut rest) = stored.split_once('\n').unwrap_or((stored, ""));
        if first != FORMAT {
            return Err(InvalidRevisions(first.to_owned()));
        }
        let mut revisions = VecDeque::new();
        while let Some((line, after)) = rest.split_once('\n') {
            let read = Revision::read(line, after);
            let (revision, after) = read.ok_or_else(|| InvalidRevisions(line.to_owned()))?;
            revisions.push_back(revision);
            rest = after;
        }
        if rest.is_empty() { Ok(Self(revisions)) } else { Err(InvalidRevisions(rest.to_owned())) }
    }

    /// The revisions as text, to be stored: a line that names the form, and for each revision a line about it and its
    /// file.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = alloc::format!("{FORMAT}\n");
        for Revision { version, at_us, by, over, restores, file } in &self.0 {
            let (restores, bytes) = (restores.unwrap_or(0), file.len());
            text.push_str(&alloc::format!("{version} {at_us} {over} {restores} {bytes} {by}\n"));
            text.push_str(file);
            text.push('\n');
        }
        text
    }

    /// The file that was put over the deployed file with this hash, if there is one.
    #[must_use]
    pub fn file(&self, deployed: &str) -> Option<&str> {
        self.over(deployed).last().map(|revision| revision.file.as_str())
    }

    /// The file with this hash, if it is kept.
    #[must_use]
    pub fn file_of(&self, wanted: &str) -> Option<&str> {
        self.0.iter().map(|revision| revision.file.as_str()).find(|file| Self::hash(file) == wanted)
    }

    /// The revision in force over the deployed file with this hash.
    #[must_use]
    pub fn tag(&self, deployed: &str) -> RevisionTag {
        match self.over(deployed).last() {
            Some(revision) => revision.tag(),
            None => RevisionTag { version: self.next(), hash: deployed.to_owned(), origin: None },
        }
    }

    /// Takes an edit of the policy file by a server that reads the file again: `file` is in force from now on, as after a `PUT`,
    /// until somebody changes the policies again. All revisions are then over this file, so that a later start with the same file
    /// finds what was put since. `earlier` is the file that was read before, if it is known.
    #[must_use]
    pub fn edit(&mut self, earlier: Option<&str>, file: &str, now: Timestamp) -> Changed {
        let mut next = self.clone();
        let is_first = next.0.is_empty();
        let deployed = earlier.filter(|_| is_first).unwrap_or(file);
        let hash = Self::hash(file);
        if !is_first {
            next.rebase(&hash);
        }
        let to = ChangeTo::File(file.to_owned());
        let change = Change { by: DEPLOYMENT.to_owned(), if_match: Some("*".to_owned()), to };
        let changed = next.handle(PolicyCall::Change(change), deployed, now);
        if changed.response.status == 200 {
            next.rebase(&hash);
            *self = next;
        }
        changed
    }

    /// Whether a file is the one that was read last, as far as the revisions know.
    #[must_use]
    pub fn are_over(&self, file: &str) -> bool {
        self.0.back().is_none_or(|last| last.over == Self::hash(file))
    }

    fn rebase(&mut self, over: &str) {
        for revision in &mut self.0 {
            over.clone_into(&mut revision.over);
        }
    }

    /// Answers a call. What has changed is in force once the adapter has stored the revisions.
    #[must_use]
    pub fn handle(&mut self, call: PolicyCall, deployed: &str, now: Timestamp) -> Changed {
        let response = match call {
            PolicyCall::History => self.history(&Self::hash(deployed)),
            PolicyCall::File(version) => self.show_file(version, deployed),
            PolicyCall::Overrides => self.overrides(deployed, now),
            PolicyCall::Change(change) => {
                return self
                    .change(change, deployed, now)
                    .unwrap_or_else(|response| Changed { response, policies: None });
            }
        };
        Changed { response, policies: None }
    }

    fn over(&self, deployed: &str) -> impl DoubleEndedIterator<Item = &Revision> {
        self.0.iter().filter(move |revision| revision.over == deployed)
    }

    fn next(&self) -> u64 {
        self.0.back().map_or(1, |revision| revision.version.saturating_add(1))
    }

    fn history(&self, deployed: &str) -> Response {
        let in_force = self.tag(deployed);
        let history = object(|it| {
            it.objects("versions", self.0.iter().rev(), |revision, it| {
                it.field("version", revision.version);
                it.field("hash", Self::hash(&revision.file).as_str());
                it.field("at_us", revision.at_us);
                it.field("by", revision.by.as_str());
                it.some("restores", revision.restores);
                it.field("bytes", revision.file.len());
                it.field("in_force", revision.version == in_force.version);
            });
        });
        in_force.on(answer_json(200, history))
    }

    fn show_file(&self, version: Option<u64>, deployed: &str) -> Response {
        let own = Self::hash(deployed);
        let in_force = self.tag(&own);
        match version {
            Some(version) if version != in_force.version => match self.find(version) {
                Ok(revision) => text(revision.without_overrides(), &revision.tag()),
                Err(response) => response,
            },
            _ => text(self.parts(deployed).0, &in_force),
        }
    }

    /// The file in force, and the overrides beside it, also those that have ended.
    fn parts<'a>(&'a self, deployed: &'a str) -> (&'a str, Vec<TimedOverride>) {
        match self.file(&Self::hash(deployed)) {
            Some(text) => TimedOverride::split(text),
            None => (deployed, Vec::new()),
        }
    }

    /// `GET /v1/overrides`
    fn overrides(&self, deployed: &str, now: Timestamp) -> Response {
        let (_, all) = self.parts(deployed);
        let live = all.iter().filter(|own| own.until > now);
        let listed = object(|it| {
            it.objects("overrides", live, |own, it| {
                it.field("policy", own.policy.as_str());
                it.field("key", own.key.as_str());
                it.field("until_us", own.until.0);
                it.field("by", own.by.as_str());
                it.field("override", Written(&own.fields));
            });
        });
        self.tag(&Self::hash(deployed)).on(answer_json(200, listed))
    }

    fn find(&self, version: u64) -> Result<&Revision, Response> {
        self.0.iter().find(|revision| revision.version == version).ok_or_else(|| {
            let kept: Vec<_> = self.0.iter().map(|revision| revision.version.to_string()).collect();
            let detail = match kept.as_slice() {
                [] => "no other file was in force".to_string(),
                kept => {
                    alloc::format!(
                        "`version`: expected one of {}; found {version}",
                        kept.join(", ")
                    )
                }
            };
            Problem::NotFound.response(detail)
        })
    }

    /// The file to put in force, and the version whose file it is.
    fn wanted(
        &self,
        to: ChangeTo,
        (over, file): (&str, &str),
    ) -> Result<(String, Option<u64>), Response> {
        let version = match to {
            ChangeTo::File(file) => return Ok((file, None)),
            ChangeTo::Version(version) => version,
            ChangeTo::Override { .. } => return Ok((file.to_owned(), None)), // never: `text_after` answers it
        };
        let revision = match version {
            Some(version) => self.find(version)?,
            None => {
                let mut earlier = self.over(over).rev();
                earlier.find(|revision| revision.without_overrides() != file).ok_or_else(|| {
                    Problem::NotFound.response("no other file was in force before".to_string())
                })?
            }
        };
        Ok((revision.without_overrides().to_owned(), Some(revision.version)))
    }

    /// The text in force after a change: a file with the overrides that hold beside it. Also returns the version whose file it is.
    fn text_after(
        &self,
        to: ChangeTo,
        deployed: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<(String, Option<u64>), Response> {
        let (in_force, mut overrides) = self.parts(deployed);
        overrides.retain(|own| own.until > now);
        if let ChangeTo::Override { policy, key, fields } = to {
            let policies = parsed(in_force)?;
            let fields = (fields.as_deref(), by);
            edit_overrides(&mut overrides, &policies, (&policy, &key), fields, now)?;
            return Ok((TimedOverride::join(in_force, &overrides), None));
        }
        let (file, restores) = self.wanted(to, (&Self::hash(deployed), in_force))?;
        let file = TimedOverride::file_of(&file); // of a text that has overrides, only the file is meant
        let policies = parsed(file)?;
        overrides.retain(|own| policies.get(&own.policy).is_some());
        Ok((TimedOverride::join(file, &overrides), restores))
    }

    fn change(
        &mut self,
        Change { to, if_match, by }: Change,
        deployed: &str,
        now: Timestamp,
    ) -> Result<Changed, Response> {
        let over = Self::hash(deployed);
        let current = self.tag(&over);
        let is_override = matches!(to, ChangeTo::Override { .. });
        if !is_override || if_match.is_some() {
            // an override changes one key alone, so it overwrites nothing that its caller has not seen
            matches(if_match.as_deref(), &current)?;
        }
        let (file, restores) = self.text_after(to, deployed, &by, now)?;
        let policies = TimedPolicies::parse(&file, now).map_err(|error| {
            // the file alone is valid
            let field = Some(error.path).filter(|path| !path.is_empty());
            let at = field.map_or_else(String::new, |path| alloc::format!("{path}: "));
            Problem::InvalidRequest.response(alloc::format!("the override: {at}{}", error.message))
        })?;
        if Self::hash(&file) == current.hash {
            return Ok(Changed { response: current.answer(current.version), policies: None });
        }
        let revision = |version, by: String, restores, file| Revision {
            version,
            at_us: now.0,
            by,
            over: over.clone(),
            restores,
            file,
        };
        if self.over(&over).next().is_none() {
            let first = revision(current.version, DEPLOYMENT.to_owned(), None, deployed.to_owned());
            self.0.push_back(first);
        }
        let new = revision(self.next(), by, restores, file);
        let tag = new.tag();
        self.0.push_back(new);
        self.forget(now);
        Ok(Changed { response: tag.answer(current.version), policies: Some(policies) })
    }

    /// Forgets the oldest revisions beyond the bounds. Those that differ from the one before in their overrides alone go first, and
    /// in any case once no node asks by them any more.
    fn forget(&mut self, now: Timestamp) {
        let bytes = |all: &VecDeque<Revision>| -> usize {
            all.iter().map(|revision| revision.file.len()).fold(0, usize::saturating_add)
        };
        let hour_ago = now.0.saturating_sub(HOUR_US);
        loop {
            let is_full =
                self.0.len() > MOST_REVISIONS || (self.0.len() > 2 && bytes(&self.0) > MOST_BYTES);
            let place = match self.spare(if is_full { u64::MAX } else { hour_ago }) {
                None if is_full => 0,
                None => return,
                Some(place) => place,
            };
            self.0.remove(place);
        }
    }

    /// The place of the oldest revision that was replaced before this time and differs from the one before it in its overrides
    /// alone.
    fn spare(&self, time_us: u64) -> Option<usize> {
        let next = self.0.iter().skip(1);
        let mut each = (1..).zip(self.0.iter().zip(next.clone()).zip(next.skip(1)));
        let is_spare = |((before, own), next): &((&Revision, &Revision), &Revision)| {
            next.at_us < time_us && before.without_overrides() == own.without_overrides()
        };
        each.find(|(_, three)| is_spare(three)).map(|(place, _)| place)
    }
}

impl Revision {
    /// Reads a revision out of its line and the text after it. Returns the rest of the text.
    fn read<'a>(line: &str, after: &'a str) -> Option<(Self, &'a str)> {
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next();
        let (version, at_us, over, restores) = (word()?, word()?, word()?, word()?);
        let (bytes, by) = (word()?, word()?);
        let (file, rest) = after.split_at_checked(bytes.parse().ok()?)?;
        let revision = Self {
            version: version.parse().ok()?,
            at_us: at_us.parse().ok()?,
            by: by.to_owned(),
            over: over.to_owned(),
            restores: Some(restores.parse().ok()?).filter(|restores| *restores > 0),
            file: file.to_owned(),
        };
        Some((revision, rest.strip_prefix('\n')?))
    }

    fn without_overrides(&self) -> &str {
        TimedOverride::file_of(&self.file)
    }

    fn tag(&self) -> RevisionTag {
        let hash = Revisions::hash(&self.file);
        let source = match self.restores {
            Some(_) => Source::Restored,
            None if self.by == DEPLOYMENT => Source::File,
            None => Source::Put,
        };
        let origin = Origin { source, at: Timestamp(self.at_us), by: self.by.clone() };
        RevisionTag { version: self.version, hash, origin: Some(origin) }
    }
}

impl RevisionTag {
    fn answer(&self, previous: u64) -> Response {
        let answer = object(|it| {
            it.field("version", self.version);
            it.field("hash", self.hash.as_str());
            it.field("previous", previous);
        });
        self.on(answer_json(200, answer))
    }
}

fn parsed(file: &str) -> Result<Policies, Response> {
    Policies::parse(file).map_err(|error| problem::wrong_policies(&error))
}

/// Puts the override of a key beside others, or deletes it if there are no `fields`.
fn edit_overrides(
    overrides: &mut Vec<TimedOverride>,
    policies: &Policies,
    (policy, key): (&str, &str),
    (fields, by): (Option<&str>, &str),
    now: Timestamp,
) -> Result<(), Response> {
    call::find(policies, policy, "")?;
    let invalid = |detail: String| Problem::InvalidRequest.response(detail);
    let Some(fields) = fields else {
        let before = overrides.len();
        let any = "{\"limit\":1,\"until_us\":1}"; // the key is what counts
        let own = TimedOverride::new(policy, key, by, any).map_err(invalid)?;
        overrides.retain(|other| (&other.policy, &other.key) != (&own.policy, &own.key));
        return match overrides.len() < before {
            true => Ok(()),
            false => {
                let detail = "the key has no override that a caller put and that has not ended";
                Err(Problem::NotFound.response(detail.to_string()))
            }
        };
    };
    let own = TimedOverride::new(policy, key, by, fields).map_err(invalid)?;
    if own.until <= now {
        let (now, found) = (now.0, own.until.0);
        return Err(invalid(alloc::format!(
            "`until_us`: expected a time after {now}, found {found}"
        )));
    }
    own.put(overrides).map_err(invalid)
}

/// Whether the caller has seen the file in force (RFC 9110 §13.1.1). Two callers who change the same file would
/// otherwise overwrite each other's change without knowing it.
fn matches(if_match: Option<&str>, current: &RevisionTag) -> Result<(), Response> {
    let Some(if_match) = if_match else {
        let detail = "expected the header `If-Match` with the `ETag` of GET /v1/policies, or `*` to put the file in \
                      force whatever it replaces; found no such header";
        return Err(Problem::PreconditionRequired.response(detail.to_string()));
    };
    let is = |tag: &str| {
        let tag = tag.trim();
        tag == "*" || tag.trim_matches('"') == current.hash
    };
    if if_match.split(',').any(is) {
        return Ok(());
    }
    let RevisionTag { version, hash, .. } = current;
    let detail = alloc::format!(
        "another file is in force: expected `If-Match: \"{hash}\"` for version {version}, found another tag"
    );
    Err(current.on(Problem::PoliciesChanged.response(detail)))
}
