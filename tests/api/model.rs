//! A language model behind the gateway, whose API is that of OpenAI: it answers in JSON or streams events, with the usage at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::upstream::read_chunk;

/// What the model got, and what it said that it used.
#[derive(Clone, Debug)]
pub struct Call {
    /// The names are in lower case.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub total_tokens: u64,
}

impl Call {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }
}

pub struct Model {
    pub address: String,
    calls: Arc<Mutex<Vec<Call>>>,
    /// Lets a stream go on that waits in its middle.
    pub go: Sender<()>,
}

impl Model {
    /// A model whose answers use what `used` makes of the number of the call and its `max_tokens`.
    pub fn start(used: fn(u64, u64) -> u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (calls, (go, wait)) = (Arc::<Mutex<Vec<Call>>>::default(), channel());
        let (all, wait) = (Arc::clone(&calls), Arc::new(Mutex::new(wait)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, wait) = (Arc::clone(&all), Arc::clone(&wait));
                thread::spawn(move || drop(answer(stream.unwrap(), &all, &wait, used)));
            }
        });
        Self { address, calls, go }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// All tokens that it has said it used.
    pub fn used(&self) -> u64 {
        self.calls.lock().unwrap().iter().map(|call| call.total_tokens).sum()
    }
}

fn answer(
    mut stream: TcpStream,
    calls: &Mutex<Vec<Call>>,
    wait: &Mutex<Receiver<()>>,
    used: fn(u64, u64) -> u64,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = reader.by_ref().lines();
    lines.next(); // the line of the request
    let mut fields = Vec::new();
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
        fields.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut call = Call { fields, body: Vec::new(), total_tokens: 0 };
    call.body = body(&call, &mut reader)?;
    let asked: Value = serde_json::from_slice(&call.body).unwrap_or(Value::Null);
    let max_tokens = asked["max_tokens"].as_u64().unwrap_or(16);
    let total = {
        let mut calls = calls.lock().unwrap();
        call.total_tokens = used(u64::try_from(calls.len()).unwrap(), max_tokens);
        calls.push(call.clone());
        call.total_tokens
    };
    let usage = json!({ "prompt_tokens": total / 3, "completion_tokens": total - total / 3, "total_tokens": total });
    let what = asked["model"].as_str().unwrap_or_default();
    if what == "overloaded" {
        let text = r#"{"error":{"message":"overloaded"}}"#;
        return write!(stream, "HTTP/1.1 503 Overloaded\r\n{}", plain(text));
    }
    if asked["stream"] != true {
        let text = json!({ "choices": [{ "message": { "content": "\"usage\":{\"total_tokens\":1}" } }], "usage": usage });
        return write!(stream, "HTTP/1.1 200 OK\r\n{}", plain(&text.to_string()));
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n";
    write!(stream, "{head}connection: close\r\n\r\n")?;
    let word =
        json!({ "choices": [{ "delta": { "content": "\"total_tokens\":9" } }], "usage": null });
    let last = json!({ "choices": [], "usage": usage });
    event(&mut stream, &word.to_string(), 5)?;
    match what {
        "waits" => drop(wait.lock().unwrap().recv()),
        "breaks" => return write!(stream, "no length\r\n"),
        _ => {}
    }
    event(&mut stream, &word.to_string(), 1_000)?;
    event(&mut stream, &last.to_string(), 7)?;
    event(&mut stream, "[DONE]", 1_000)?;
    write!(stream, "0\r\n\r\n")
}

/// Sends an event in chunks of so many bytes.
fn event(stream: &mut TcpStream, data: &str, piece: usize) -> std::io::Result<()> {
    for piece in format!("data: {data}\n\n").as_bytes().chunks(piece) {
        write!(stream, "{:x}\r\n", piece.len())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
    }
    Ok(())
}

fn plain(text: &str) -> String {
    let length = text.len();
    format!(
        "content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}

fn body(call: &Call, reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    if let Some(length) = call.field("content-length") {
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body)?;
        return Ok(body);
    }
    let mut body = Vec::new();
    if call.field("transfer-encoding").is_some() {
        while let Some(chunk) = read_chunk(reader)? {
            body.extend(chunk);
        }
    }
    Ok(body)
}
