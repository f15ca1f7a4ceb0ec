//! The words of a command of Redis, in one block that JavaScript takes at once.

/// The words of a command.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    bytes: Vec<u8>,
    /// Where each word ends; below zero if the word is of ASCII, so that a client may carry it as a text, which takes it less time.
    ends: Vec<i32>,
}

impl Arguments {
    pub(super) fn of(words: &[&str]) -> Self {
        let mut own = Self::default();
        words.iter().for_each(|word| own.push(word.as_bytes()));
        own
    }

    /// A call of a script: its command, the script or its hash, and the number of names.
    pub(super) fn of_script(command: &str, script: &str, names: usize) -> Self {
        Self::of(&[command, script, &names.to_string()])
    }

    pub(super) fn push(&mut self, word: &[u8]) {
        self.push_joined(&[], word);
    }

    /// Adds one word, which has two parts.
    pub(super) fn push_joined(&mut self, first: &[u8], rest: &[u8]) {
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(rest);
        let end = i32::try_from(self.bytes.len()).unwrap_or(i32::MAX); // never: a module has less memory
        let is_text = first.is_ascii() && rest.is_ascii();
        self.ends.push(if is_text { end.saturating_neg() } else { end });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |end| {
            let to = usize::try_from(end.unsigned_abs()).unwrap_or(usize::MAX);
            let word = self.bytes.get(from..to).unwrap_or_default();
            from = to;
            word
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn ends(&self) -> &[i32] {
        &self.ends
    }
}

#[test]
fn words_keep_their_borders() {
    let mut words = Arguments::of_script("EVAL", "return 0", 2);
    words.push_joined(b"a:", b"b");
    words.push(b"");
    words.push(&[0, 255]);
    let all: Vec<&[u8]> = words.iter().collect();
    assert_eq!(all, [&b"EVAL"[..], b"return 0", b"2", b"a:b", b"", &[0, 255]]);
    assert_eq!(words.ends(), [-4, -12, -13, -16, -16, 18]);
}
