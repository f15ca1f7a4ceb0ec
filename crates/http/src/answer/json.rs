//! JSON as answers write it.

use alloc::string::String;
use core::fmt::Write;
use core::ops::Range;

/// Writes an object.
pub(crate) fn object(write: impl FnOnce(&mut Object<'_>)) -> String {
    let mut text = String::with_capacity(512); // most answers
    Object::write(&mut text, write);
    text
}

/// An object that is being written.
pub(crate) struct Object<'t> {
    text: &'t mut String,
    is_empty: bool,
}

impl Object<'_> {
    fn write(text: &mut String, write: impl FnOnce(&mut Object<'_>)) {
        text.push('{');
        write(&mut Object { text, is_empty: true });
        text.push('}');
    }

    /// Writes a field.
    #[cfg_attr(not(target_arch = "wasm32"), inline(always))] // see `name`
    pub(crate) fn field(&mut self, name: &str, value: impl Value) {
        self.name(name);
        value.write(self.text);
    }

    /// Writes a field if it has a value.
    pub(crate) fn some(&mut self, name: &str, value: Option<impl Value>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Writes a field that is an object.
    pub(crate) fn object(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) {
        self.name(name);
        Object::write(self.text, write);
    }

    /// Writes a field that is an array of objects.
    pub(crate) fn objects<T>(
        &mut self,
        name: &str,
        all: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut Object<'_>),
    ) {
        self.name(name);
        array(self.text, all, |one, text| Object::write(text, |object| write(one, object)));
    }

    /// The place at which the next field begins.
    pub(crate) fn next(&self) -> usize {
        let comma = usize::from(!self.is_empty);
        self.text.len().saturating_add(comma)
    }

    /// The place at which the last field ends.
    pub(crate) const fn end(&self) -> usize {
        self.text.len()
    }

    /// Writes fields again, which stand at these places.
    pub(crate) fn again(&mut self, fields: Range<usize>) {
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        self.text.extend_from_within(fields);
    }

    // where it is inlined, a name takes a few instructions in place of some calls of `memcpy`
    #[cfg_attr(not(target_arch = "wasm32"), inline(always))]
    fn name(&mut self, name: &str) {
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        self.text.push('"');
        self.text.push_str(name); // names are ours, and need no escapes
        self.text.push_str("\":");
    }
}

fn array<T>(
    text: &mut String,
    all: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut String),
) {
    text.push('[');
    for (place, one) in all.into_iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        write(one, text);
    }
    text.push(']');
}

/// A value that is no object.
pub(crate) trait Value {
    fn write(self, text: &mut String);
}

impl Value for &str {
    fn write(self, text: &mut String) {
        text.push('"');
        if self.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            self.chars().for_each(|char| escape(char, text));
        } else {
            text.push_str(self); // at once, because most texts have nothing to escape
        }
        text.push('"');
    }
}

fn escape(char: char, text: &mut String) {
    match char {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '\u{8}' => text.push_str("\\b"),
        '\u{c}' => text.push_str("\\f"),
        '\0'..' ' => {
            let _ = write!(text, "\\u{:04x}", u32::from(char)); // writing to a string cannot fail
        }
        _ => text.push(char),
    }
}

/// A text without a character that needs an escape, such as the name of a policy or limit.
pub(crate) struct Plain<'t>(pub(crate) &'t str);

impl Value for Plain<'_> {
    fn write(self, text: &mut String) {
        text.push('"');
        text.push_str(self.0);
        text.push('"');
    }
}

/// A value that is JSON already.
pub(crate) struct Written<'t>(pub(crate) &'t str);

impl Value for Written<'_> {
    fn write(self, text: &mut String) {
        text.push_str(self.0);
    }
}

impl Value for u64 {
    fn write(self, text: &mut String) {
        text.push_str(itoa::Buffer::new().format(self));
    }
}

impl Value for usize {
    fn write(self, text: &mut String) {
        text.push_str(itoa::Buffer::new().format(self));
    }
}

impl Value for bool {
    fn write(self, text: &mut String) {
        text.push_str(if self { "true" } else { "false" });
    }
}

impl Value for &[&str] {
    fn write(self, text: &mut String) {
        array(text, self, |one, text| one.write(text));
    }
}

impl<V: Value> Value for Option<V> {
    fn write(self, text: &mut String) {
        match self {
            Some(value) => value.write(text),
            None => text.push_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString};

    use proptest::prelude::*;
    use serde_json::json;

    use super::{Value, object};

    #[test]
    fn an_object_has_its_fields_in_order() {
        let written = object(|it| {
            it.field("a", 18_446_744_073_709_551_615_u64);
            it.some("left out", None::<u64>);
            it.field("null", None::<&str>);
            it.object("none", |_| ());
            it.objects("all", [1_usize, 2], |number, it| it.field("n", number));
            it.field("texts", &["x", "\"\\"][..]);
            it.field("yes", true);
        });
        let expected = r#"{"a":18446744073709551615,"null":null,"none":{},"all":[{"n":1},{"n":2}],"texts":["x","\"\\"],"yes":true}"#;
        assert_eq!(written, expected);
    }

    proptest! {
        #[test]
        fn a_text_is_written_as_serde_json_writes_it(text: String) {
            prop_assert_eq!(written(&text), json!(text).to_string());
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        for char in '\0'..='\u{a0}' {
            for text in [format!("a{char}b"), char.to_string()] {
                assert_eq!(written(&text), json!(text).to_string());
            }
        }
    }

    fn written(text: &str) -> String {
        let mut written = String::new();
        text.write(&mut written);
        written
    }
}
