//! A client of the decision API, for every server.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::http::Response;
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder};

#[derive(Debug)]
pub struct Api {
    agent: Agent,
    url: String,
    token: Option<String>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
    }

    /// The body; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A field of the body.
    pub fn get(&self, field: &str) -> Value {
        self.json()[field].clone()
    }
}

impl Api {
    pub fn new(url: &str, token: Option<&str>) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_age(Duration::from_secs(2)) // workerd closes a connection that is idle for 5 s
            .build()
            .into();
        Self { agent, url: url.to_owned(), token: token.map(str::to_owned) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same server with another token.
    pub fn with(&self, token: Option<&str>) -> Self {
        Self::new(&self.url, token)
    }

    pub fn get(&self, target: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = self.agent.get(format!("{}{target}", self.url));
        for (name, value) in self.authorized(headers) {
            request = request.header(name, value);
        }
        reply(request.call().expect("a response"))
    }

    pub fn post(&self, target: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send(self.agent.post(format!("{}{target}", self.url)), body.as_ref())
    }

    pub fn put(&self, target: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send(self.agent.put(format!("{}{target}", self.url)), body.as_ref())
    }

    /// Sends any request.
    pub fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("{}{target}", self.url));
        for (name, value) in self.authorized(headers) {
            request = request.header(name, value);
        }
        let request = request.body(body.to_owned()).expect("a request");
        reply(self.agent.run(request).expect("a response"))
    }

    /// Puts a policy file in force, whatever it replaces.
    pub fn put_policies(&self, file: &str) -> Reply {
        self.put_with("/v1/policies", &[("if-match", "*")], file)
    }

    pub fn put_with(&self, target: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send_with(self.agent.put(format!("{}{target}", self.url)), headers, body.as_bytes())
    }

    pub fn post_with(&self, target: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send_with(self.agent.post(format!("{}{target}", self.url)), headers, body.as_bytes())
    }

    pub fn delete(&self, target: &str) -> Reply {
        let mut request = self.agent.delete(format!("{}{target}", self.url));
        for (name, value) in self.authorized(&[]) {
            request = request.header(name, value);
        }
        reply(request.call().expect("a response"))
    }

    fn send(&self, request: RequestBuilder<WithBody>, body: &[u8]) -> Reply {
        self.send_with(request, &[], body)
    }

    fn send_with(
        &self,
        mut request: RequestBuilder<WithBody>,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        for (name, value) in self.authorized(headers) {
            request = request.header(name, value);
        }
        reply(request.send(body).expect("a response"))
    }

    /// Sends a check of the key by the policy, with the caller's time if one is given.
    pub fn check(&self, policy: &str, key: &str, cost: u64, now_us: Option<u64>) -> Reply {
        let body = json!({ "policy": policy, "key": key, "cost": cost, "now_us": now_us });
        self.post("/v1/check", body.to_string())
    }

    /// The same as `post`; `None` if the server gives no answer, for example because it stopped.
    pub fn try_post(&self, target: &str, body: impl AsRef<[u8]>) -> Option<Reply> {
        let mut request = self.agent.post(format!("{}{target}", self.url));
        for (name, value) in self.authorized(&[]) {
            request = request.header(name, value);
        }
        Some(reply(request.send(body.as_ref()).ok()?))
    }

    fn authorized<'a>(&self, headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, String)> {
        let token = self.token.iter().map(|token| ("authorization", format!("Bearer {token}")));
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).chain(token).collect()
    }
}

fn reply(mut response: Response<ureq::Body>) -> Reply {
    let headers = response.headers().iter().map(|(name, value)| {
        (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned())
    });
    let headers = headers.collect();
    let status = response.status().as_u16();
    Reply { status, headers, text: response.body_mut().read_to_string().unwrap_or_default() }
}
