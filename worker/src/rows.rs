//! The rows of an object: names, bytes, and the times at which they expire.

use js_sys::{Array, ArrayBuffer, JsString, Uint8Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsValue};
use worker::worker_sys::DurableObjectState;

/// A statement has at most 100 parameters, and a row takes three.
const MOST_ROWS: usize = 33;

thread_local! {
    static INSERT: JsString = insert(1).into();
}

// `worker::SqlStorage` makes an array of the values, which takes longer than to write a row
#[wasm_bindgen]
extern "C" {
    #[derive(Debug)]
    type Storage;

    #[wasm_bindgen(method, getter)]
    fn sql(this: &Storage) -> Sql;

    /// Calls the function, and undoes what it has written if it throws.
    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction(
        this: &Storage,
        call: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    #[derive(Debug)]
    type Sql;

    #[wasm_bindgen(method, catch)]
    fn exec(this: &Sql, statement: &str) -> Result<Cursor, JsValue>;

    #[wasm_bindgen(method, catch, js_name = exec)]
    fn exec_with_name(this: &Sql, statement: &str, name: &str) -> Result<Cursor, JsValue>;

    #[wasm_bindgen(method, catch, js_name = exec)]
    fn exec_with_row(
        this: &Sql,
        statement: &JsString,
        name: &str,
        bytes: &[u8],
        expires_ms: f64,
    ) -> Result<Cursor, JsValue>;

    #[wasm_bindgen(method, catch, variadic, js_name = exec)]
    fn exec_with_all(this: &Sql, statement: &str, values: &Array) -> Result<Cursor, JsValue>;

    type Cursor;

    #[wasm_bindgen(method, js_name = toArray)]
    fn to_array(this: &Cursor) -> Array;

    type Found;

    #[wasm_bindgen(method, getter)]
    fn blob(this: &Found) -> JsValue;
}

/// The rows of an object.
#[derive(Debug)]
pub(crate) struct Rows {
    storage: Storage,
    sql: Sql,
    /// Whether there is a table; `None` if that is not known.
    exists: Option<bool>,
    /// What the next write stores.
    added: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    bytes: Vec<u8>,
    expires_ms: f64,
}

impl Rows {
    pub(crate) fn new(object: &DurableObjectState) -> Result<Self, JsValue> {
        let storage: Storage = object.storage()?.unchecked_into();
        Ok(Self { sql: storage.sql(), storage, exists: None, added: Vec::new() })
    }

    /// Forgets whether there is a table.
    pub(crate) const fn forget(&mut self) {
        self.exists = None;
    }

    /// Whether there is a table. An object that is only looked at stores nothing, not even an empty table.
    pub(crate) fn exists(&mut self) -> Result<bool, JsValue> {
        if let Some(exists) = self.exists {
            return Ok(exists);
        }
        let found = self.sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'states'")?;
        Ok(*self.exists.insert(found.to_array().length() > 0))
    }

    /// The bytes under a name.
    pub(crate) fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, JsValue> {
        if !self.exists()? {
            return Ok(None);
        }
        let found = self.sql.exec_with_name("SELECT blob FROM states WHERE name = ?", name)?;
        let found = found.to_array().get(0);
        if found.is_undefined() {
            return Ok(None);
        }
        let blob = found.unchecked_into::<Found>().blob();
        let bytes = blob.dyn_ref::<ArrayBuffer>().map(|blob| Uint8Array::new(blob).to_vec());
        Ok(Some(bytes.unwrap_or_default())) // no state has no bytes
    }

    /// Adds a row to the next write. Without a time, the row keeps its time.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8], expires_ms: Option<f64>) {
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        self.added.push(Row { name, bytes, expires_ms: expires_ms.unwrap_or(0.0) });
    }

    /// Writes all rows that were added, or none. Returns whether that made the table.
    pub(crate) fn write(&mut self) -> Result<bool, JsValue> {
        let added = std::mem::take(&mut self.added);
        let is_new = !self.exists()?;
        if is_new {
            self.sql.exec(
                "CREATE TABLE states (name TEXT PRIMARY KEY, blob BLOB NOT NULL, expires_ms INTEGER NOT NULL) \
                 WITHOUT ROWID",
            )?;
            self.exists = Some(true);
        }
        match &*added {
            [Row { name, bytes, expires_ms }] => {
                INSERT.with(|insert| self.sql.exec_with_row(insert, name, bytes, *expires_ms))?;
            }
            added if added.len() <= MOST_ROWS => self.insert(added)?,
            added => {
                let mut insert = || {
                    added
                        .chunks(MOST_ROWS)
                        .try_for_each(|rows| self.insert(rows))
                        .map(|()| JsValue::UNDEFINED)
                };
                self.storage.transaction(&mut insert)?;
            }
        }
        Ok(is_new)
    }

    fn insert(&self, rows: &[Row]) -> Result<(), JsValue> {
        let values = Array::new();
        for Row { name, bytes, expires_ms } in rows {
            values.push(&name.into());
            values.push(&Uint8Array::from(&**bytes));
            values.push(&(*expires_ms).into());
        }
        self.sql.exec_with_all(&insert(rows.len()), &values).map(drop)
    }
}

/// The statement that writes so many rows.
fn insert(rows: usize) -> String {
    let values = vec!["(?, ?, ?)"; rows].join(", ");
    format!(
        "INSERT INTO states (name, blob, expires_ms) VALUES {values} ON CONFLICT (name) DO UPDATE \
         SET blob = excluded.blob, expires_ms = max(expires_ms, excluded.expires_ms)"
    )
}
