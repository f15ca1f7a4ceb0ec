// The SQL of an object that each grant needs. Out of WebAssembly a statement takes longer.

/** A statement has at most 100 parameters, and a row takes three. */
const MOST_PARAMETERS = 99;

/** The rows of an object: names, bytes, and the times at which they expire. */
export class Rows {
  constructor(storage) {
    this.storage = storage;
    this.sql = storage.sql;
    this.made = false;
    /** What the next write stores: of each row the name, the bytes and the time. */
    this.values = /** @type {any[]} */ ([]);
  }

  /** Forgets what was added, and that there is a table. */
  forget() {
    [this.made, this.values] = [false, []];
  }

  /** An object that is only looked at stores nothing, not even an empty table. */
  exists() {
    this.made ||= this.sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'states'").toArray().length > 0;
    return this.made;
  }

  read(name) {
    if (!this.exists()) return undefined;
    const [row] = this.sql.exec("SELECT blob FROM states WHERE name = ?", name).toArray();
    if (row === undefined) return undefined;
    return new Uint8Array(row.blob instanceof ArrayBuffer ? row.blob : 0); // a number would be a length
  }

  /** Without a time, a row keeps its time. */
  add(name, bytes, expires) {
    this.values.push(name, bytes, expires ?? 0);
  }

  /** Either all rows are stored or none. */
  write() {
    const values = this.values;
    this.values = [];
    if (!this.exists()) {
      this.sql.exec(
        "CREATE TABLE states (name TEXT PRIMARY KEY, blob BLOB NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID",
      );
      this.made = true;
    }
    if (values.length <= MOST_PARAMETERS) return this.insert(values);
    this.storage.transactionSync(() => {
      for (let at = 0; at < values.length; at += MOST_PARAMETERS) {
        this.insert(values.slice(at, at + MOST_PARAMETERS));
      }
    });
  }

  insert(values) {
    this.sql.exec(
      `INSERT INTO states (name, blob, expires_ms) VALUES ${Array(values.length / 3).fill("(?, ?, ?)")} ` +
        "ON CONFLICT (name) DO UPDATE SET blob = excluded.blob, expires_ms = max(expires_ms, excluded.expires_ms)",
      ...values,
    );
  }
}
