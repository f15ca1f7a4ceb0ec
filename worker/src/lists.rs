//! Who is limited, from isolates to the object of the revisions and back, in fields.

use tidegate_gate::Timestamp;
use tidegate_gate::top::{Counted, Top};
use tidegate_http::{Hour, Limited, List};

use crate::fields::{Fields, Reader};

/// The version of the fields. An object may run another version than an isolate while a Worker is being deployed.
const VERSION: u64 = 1;

/// What an isolate hands over. What may not have arrived is handed over again, under the same number.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The number of the isolate, which is random.
    isolate: u64,
    number: u64,
    text: Option<String>,
}

/// What was handed over.
pub(crate) struct Handed {
    /// The number of the isolate, and how often it has handed something over.
    pub(crate) of: (u64, u64),
    pub(crate) lists: Vec<List>,
}

impl Handover {
    pub(crate) const fn new(isolate: u64) -> Self {
        Self { isolate, number: 0, text: None }
    }

    /// What to hand over, and its number: the last text until it has [arrived](Self::arrived), and otherwise what was counted since.
    /// `None` if nothing was counted.
    pub(crate) fn next(&mut self, limited: &mut Limited) -> Option<(u64, String)> {
        if self.text.is_none() {
            let lists = limited.take();
            if lists.is_empty() {
                return None;
            }
            self.number = self.number.saturating_add(1);
            let mut fields = Fields::default();
            fields.number(VERSION).number(self.isolate).number(self.number);
            self.text = Some(write_lists(fields, &lists));
        }
        Some((self.number, self.text.clone()?))
    }

    /// Takes note that the text of this number has arrived.
    pub(crate) fn arrived(&mut self, number: Option<u64>) {
        if number == Some(self.number) {
            self.text = None;
        }
    }
}

/// Reads what [`Handover::next`] wrote; `None` of anything else.
pub(crate) fn read_handed(text: &str) -> Option<Handed> {
    let mut fields = Whole::new(text);
    let of = (fields.number(), fields.number());
    Some(Handed { of, lists: fields.lists()? })
}

/// Lists in fields.
pub(crate) fn write(lists: &[List]) -> String {
    let mut fields = Fields::default();
    fields.number(VERSION);
    write_lists(fields, lists)
}

/// Reads what [`write`] wrote; `None` of anything else.
pub(crate) fn read(text: &str) -> Option<Vec<List>> {
    Whole::new(text).lists()
}

fn write_lists(mut fields: Fields, lists: &[List]) -> String {
    let length = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    for List { policy, limit, refusals, hours } in lists {
        // a list without the name of a limit has an empty one, which no limit has
        fields.text(policy).text(limit.as_deref().unwrap_or_default());
        fields.number(*refusals).number(length(hours.len()));
        for Hour { since, keys } in hours {
            fields.number(since.0).number(keys.total()).number(length(keys.iter().count()));
            for Counted { item, count, error } in keys.iter() {
                fields.text(item).number(*count).number(*error);
            }
        }
    }
    fields.into_text()
}

/// Fields that are read to their end.
struct Whole<'a> {
    fields: Reader<'a>,
    /// Whether all fields were what was expected of them. Those that were not have been read as nothing.
    is_whole: bool,
}

impl<'a> Whole<'a> {
    fn new(text: &'a str) -> Self {
        let mut fields = Reader::new(text);
        let is_whole = fields.number() == Some(VERSION);
        Self { fields, is_whole }
    }

    fn number(&mut self) -> u64 {
        let number = self.fields.number();
        self.is_whole &= number.is_some();
        number.unwrap_or_default()
    }

    fn text(&mut self) -> &'a str {
        let text = self.fields.text();
        self.is_whole &= text.is_some();
        text.unwrap_or_default()
    }

    fn lists(mut self) -> Option<Vec<List>> {
        let mut lists = Vec::new();
        while self.is_whole && !self.fields.is_empty() {
            let (policy, limit) = (self.text().to_owned(), self.text());
            let limit = Some(limit.to_owned()).filter(|name| !name.is_empty());
            let (refusals, mut left) = (self.number(), self.number());
            let mut hours = Vec::new();
            while self.is_whole && left > 0 {
                left -= 1;
                let since = Timestamp(self.number());
                let (total, places) = (self.number(), self.number());
                let counted = (0..places).map(|_| Counted {
                    item: self.text().into(),
                    count: self.number(),
                    error: self.number(),
                });
                // a place that was read as nothing is refused
                let keys = Top::of_places(total, counted, |own, other| own == other)?;
                hours.push(Hour { since, keys: keys.into() });
            }
            lists.push(List { policy, limit, refusals, hours });
        }
        self.is_whole.then_some(lists)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_gate::Timestamp;
    use tidegate_gate::top::Top;
    use tidegate_http::{Hour, Limited, List};

    use super::{Handover, read, read_handed, write};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn list(limit: Option<&str>, keys: &[&str]) -> List {
        let mut counted: Box<Top<Box<str>, 32>> = Box::default();
        keys.iter().for_each(|key| counted.count(|own| **own == **key, || (*key).into()));
        let hours = vec![Hour { since: NOW, keys: counted }];
        let refusals = u64::try_from(keys.len()).unwrap();
        List { policy: "api".to_owned(), limit: limit.map(str::to_owned), refusals, hours }
    }

    /// What a node has that has counted these lists.
    fn limited(lists: &[List]) -> Limited {
        Limited::default().among(lists.to_vec(), NOW)
    }

    fn lists() -> Vec<List> {
        let many: Vec<String> = (0..40).map(|key| format!("user:{key}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let gone = List { hours: Vec::new(), ..list(Some("gone"), &["k"]) };
        vec![
            list(None, &["blocked"]),
            gone,
            list(Some("minute"), &many),
            list(Some("ü"), &["\u{1f30a}", "ü"]),
        ]
    }

    #[test]
    fn all_lists_come_back() {
        let text = write(&lists());
        let found = read(&text).unwrap();
        assert_eq!(format!("{found:?}"), format!("{:?}", lists()));
        assert!(read(&write(&[])).unwrap().is_empty());
    }

    #[test]
    fn a_text_that_holds_no_lists_is_refused() {
        let (_, text) = Handover::new(u64::MAX).next(&mut limited(&lists())).unwrap();
        let handed = read_handed(&text).unwrap();
        assert_eq!((handed.of, handed.lists.len()), ((u64::MAX, 1), 4));
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            // what ends with a list is whole
            let lists = read_handed(&text[..end]).map(|handed| handed.lists.len());
            assert!(lists.is_none_or(|lists| lists < 4), "{end}");
        }
        assert!(read_handed(&format!("\u{2}{}", &text[1..])).is_none(), "another version");
        assert!(read_handed(&format!("{text}\u{1}")).is_none(), "half a list");
        assert!(read_handed("").is_none());
        let with = |places: &str| format!("\u{1}\u{1}a\u{1}b\u{2}\u{1}\u{3}{places}");
        assert!(read(&with("\u{2}\u{1}\u{1}k\u{2}\u{0}")).is_some());
        assert!(read(&with("\u{2}\u{1}\u{1}k\u{3}\u{0}")).is_none(), "more than all");
        assert!(read(&with("\u{2}\u{1}\u{1}k\u{2}\u{2}")).is_none(), "more errors than counts");
        let most = "\u{4f}".to_owned() + &"\u{7f}".repeat(9) + "\u{3f}";
        assert!(read(&with(&format!("\u{2}{most}"))).is_none(), "too many places");
        assert!(read(&format!("\u{1}\u{1}a\u{1}b\u{2}{most}")).is_none(), "too many hours");
    }

    #[test]
    fn a_text_is_handed_over_until_it_arrives_and_later_counts_have_the_next_number() {
        let (mut handover, mut node) = (Handover::new(7), limited(&[]));
        assert!(handover.next(&mut node).is_none(), "nothing was counted");
        let mut node = limited(&[list(None, &["first"])]);
        let first = handover.next(&mut node).unwrap();
        let mut node = limited(&[list(None, &["second"])]);
        assert_eq!(handover.next(&mut node), Some(first.clone()), "it may not have arrived");
        handover.arrived(Some(first.0));
        let second = handover.next(&mut node).unwrap();
        assert_eq!(read_handed(&second.1).unwrap().of, (7, 2));
        assert!(second.1.contains("second") && !second.1.contains("first"));
        handover.arrived(Some(first.0)); // a call that took long
        handover.arrived(None);
        assert_eq!(handover.next(&mut node), Some(second.clone()));
        handover.arrived(Some(second.0));
        assert!(handover.next(&mut node).is_none());
    }
}
