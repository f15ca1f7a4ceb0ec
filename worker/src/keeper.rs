//! The object that keeps the revisions of the policy file. JavaScript brings what is stored, and stores what is returned.

use tidegate_http::{Changed, PolicyCall, RevisionTag, Revisions};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::clock::timestamp;
use crate::isolate::text;
use crate::tell::log_error;

/// The functions that JavaScript calls in the object of the revisions.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Keeper;

/// The answer to a call, and what must be stored before it is sent.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Handled {
    response: String,
    stored: Option<String>,
}

#[wasm_bindgen]
impl Handled {
    /// The response, as of `Isolate.finish`. Can be taken once.
    #[must_use]
    pub fn response(&mut self) -> String {
        std::mem::take(&mut self.response)
    }

    /// The revisions to store, if they have changed. Can be taken once.
    #[must_use]
    pub fn stored(&mut self) -> Option<String> {
        self.stored.take()
    }
}

#[wasm_bindgen]
impl Keeper {
    /// The revision in force over the deployed file with this hash: its version and its hash, each on a line, and the
    /// file unless it is the deployed one. `undefined` if it begins with `known`.
    #[must_use]
    pub fn in_force(stored: Option<String>, deployed: &str, known: &str) -> Option<String> {
        let revisions = read(stored);
        let RevisionTag { version, hash } = revisions.tag(deployed);
        let told = format!("{version}\n{hash}");
        (told != known).then(|| match revisions.file(deployed) {
            Some(file) => format!("{told}\n{file}"),
            None => told,
        })
    }

    /// The file with this hash, if it is kept.
    #[must_use]
    pub fn file(stored: Option<String>, hash: &str) -> Option<String> {
        read(stored).file_of(hash).map(str::to_owned)
    }

    /// Answers a call of `Isolate.policy_call`.
    ///
    /// # Errors
    /// Throws an `Error` if the text is no such call.
    pub fn handle(
        stored: Option<String>,
        call: &str,
        deployed: &str,
        now_ms: f64,
    ) -> Result<Handled, JsError> {
        let call =
            PolicyCall::read(call).ok_or_else(|| JsError::new("a call of another version"))?;
        let mut revisions = read(stored);
        let Changed { response, policies } = revisions.handle(call, deployed, timestamp(now_ms));
        let stored = policies.map(|_| revisions.write());
        Ok(Handled { response: text(&response), stored })
    }
}

/// Revisions that cannot be read must not stop the Worker, so they count as none.
fn read(stored: Option<String>) -> Revisions {
    let Some(stored) = stored else { return Revisions::default() };
    Revisions::read(&stored).unwrap_or_else(|error| {
        log_error("the stored policies are ignored", &error.to_string().into());
        Revisions::default()
    })
}
