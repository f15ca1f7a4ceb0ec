// The module of WebAssembly as text, because every bundler carries text. Each byte is one character, or two if it is rare;
// base64 would be larger, and a server would compress it worse. `crates/xtask/src/build/npm.rs` writes the text.

// Every printable character of ASCII but those that a string or a page would have to escape.
const ALPHABET = Array.from({ length: 95 }, (_, place) => 32 + place).filter((code) => !'"<\\'.includes(String.fromCharCode(code)));
const SINGLES = ALPHABET.length - 2;
const PLACES = new Uint8Array(128);
ALPHABET.forEach((code, place) => { PLACES[code] = place; });

/**
 * `order` has all bytes, the most frequent first. The last two characters of the alphabet choose a rarer set of bytes.
 *
 * @type {(text: string, order: number[], length: number) => Uint8Array<ArrayBuffer>}
 */
export function decode(text, order, length) {
  const bytes = new Uint8Array(length);
  for (let from = 0, at = 0, set = 0; from < text.length; from++) {
    const place = PLACES[text.charCodeAt(from)];
    if (place < SINGLES) {
      bytes[at++] = order[set + place];
      set = 0;
    } else {
      set = (place - SINGLES + 1) * SINGLES;
    }
  }
  return bytes;
}
