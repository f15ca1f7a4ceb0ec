//! The built Worker in workerd, over HTTP. It does not show the states of its objects.

use serde_json::{Value, json};
use tidegate::local::{Workerd, WorkerdOptions};
use tidegate_tests::vectors::{Backend, Step, Vectors, error, without_policy};
use tidegate_tests::{Api, Reply};

pub struct Worker {
    api: Api,
    _server: Workerd,
}

impl Worker {
    pub fn start(all: &[Vectors]) -> Self {
        let server = Workerd::start(&WorkerdOptions {
            policies: Vectors::policy_file(all),
            trust_caller_time: true,
            ..WorkerdOptions::default()
        });
        let server = server.unwrap();
        Self { api: Api::new(server.url(), None), _server: server }
    }

    fn ask(&self, policy: &str, step: &Step) -> Reply {
        let (name, mut fields) = step.asked();
        let lease = match name.as_str() {
            "renew" | "release" => fields["lease"].take(),
            "commit" => fields["id"].take(),
            _ => Value::Null,
        };
        let lease = lease.as_str().unwrap_or_default();
        if name == "release" {
            let (key, at) = (&step.key, step.at_us);
            let target = format!("/v1/leases/{lease}?policy={policy}&key={key}&now_us={at}");
            return self.api.delete(&target);
        }
        let mut body = json!({ "policy": policy, "key": step.key, "now_us": step.at_us });
        for (field, value) in fields.as_object().unwrap() {
            if !value.is_null() {
                body[field] = value.clone();
            }
        }
        let of_key = format!("/v1/keys/{policy}/{}", step.key);
        let at = step.at_us;
        if name == "block" {
            let body = json!({ "for": body["for"], "now_us": at });
            return self.api.post(&format!("{of_key}/block"), body.to_string());
        }
        let cost = fields["cost"].as_u64().unwrap_or(0);
        let body = body.to_string();
        match name.as_str() {
            "peek" => self.api.get(&format!("{of_key}?cost={cost}&now_us={at}"), &[]),
            "reset" => self.api.delete(&format!("{of_key}?now_us={at}")),
            "renew" => self.api.put(&format!("/v1/leases/{lease}"), body),
            "reserve" => self.api.post("/v1/reservations", body),
            "commit" => self.api.post(&format!("/v1/reservations/{lease}/commit"), body),
            call => self.api.post(&format!("/v1/{call}"), body),
        }
    }
}

impl Backend for Worker {
    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        let reply = self.ask(&vectors.name, step);
        match reply.status {
            200 => without_policy(&vectors.policy, &reply.text),
            400 => error(&reply.get("type")),
            _ => panic!("{}: {reply:?}", vectors.name),
        }
    }

    fn states(&mut self, _: &Vectors, _: &str) -> Option<Vec<String>> {
        None
    }
}
