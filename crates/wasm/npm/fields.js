// The form in which WebAssembly hands several values to JavaScript at once. `src/fields.rs` writes it, and describes it.

/** The fields of a text, read one after another in the order in which they were written. */
export class Fields {
  /** @param {string} text */
  constructor(text) {
    this.all = text;
    this.at = 0;
  }

  /** @returns {number} */
  number() {
    let number = 0;
    let digit = this.all.charCodeAt(this.at++);
    for (; digit >= 64; digit = this.all.charCodeAt(this.at++)) number = number * 64 + digit - 64;
    return number * 64 + digit;
  }

  /** @returns {string} */
  text() {
    const length = this.number();
    const start = this.at;
    this.at += length;
    return this.all.slice(start, this.at);
  }
}
