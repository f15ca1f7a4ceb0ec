//! Costs that only the answer tells.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::{FieldPath, IfUnknown, Metering, Summed, TermSource};

fn metering(json: &str) -> Metering {
    Metering::parse(json).unwrap().unwrap()
}

#[test]
fn a_sum_adds_up_what_was_found_of_its_terms() {
    let terms = r#"[3, {"header":"X-A","weight":2,"otherwise":0}, {"field":["a.b","c"],"otherwise":5,"times":["n","best_of"]}, {"bytes":1000}]"#;
    let metering = metering(&std::format!(r#"{{"estimate":{terms},"actual":1}}"#));
    let sum = metering.estimate().unwrap();
    let largest = (1 << 53) - 1;
    for (found, units, is_whole) in [
        (&[None, Some(4), Some(6), Some(1000)][..], 3 + 8 + 6 + 1, true),
        (&[Some(9), Some(4), None, Some(1001)], 3 + 8 + 5 + 2, true),
        (&[None, None, None, Some(1), None, None, Some(0)], 3 + 5 + 1, true),
        (&[None, None, Some(6), Some(1), None, None, Some(128)], 3 + 6 * 128 + 1, true),
        (&[None, None, None, Some(1), None, None, Some(128)], 3 + 5 * 128 + 1, true),
        (&[], 3 + 5, false),
        (&[None, Some(largest), None, Some(1)], largest, true),
    ] {
        assert_eq!(sum.of(found), Summed { units, is_whole }, "{found:?}");
    }
    let sources: Vec<_> = sum.terms().iter().map(|term| term.source()).collect();
    let [fixed, header, TermSource::Field(paths), bytes] = &sources[..] else {
        panic!("{sources:?}")
    };
    assert_eq!((*fixed, *bytes), (&TermSource::Fixed(3), &TermSource::Bytes(1000)));
    assert_eq!(**header, TermSource::Header("x-a".into()));
    let names = |path: &FieldPath| [0, 1, 2].map(|depth| path.name(depth).map(str::to_string));
    let name = |name: &str| Some(name.to_string());
    assert_eq!(
        paths.iter().map(names).collect::<Vec<_>>(),
        [[name("a"), name("b"), None], [name("c"), None, None]]
    );
}

#[test]
fn an_answer_counts_by_a_header() {
    let header = |name: &str| (name == "x-hit").then(|| String::from("no"));
    for (count_if, counts) in [
        (r#"{"header":"X-Hit"}"#, true),
        (r#"{"header":"x-hit","value":"no"}"#, true),
        (r#"{"header":"x-hit","value":"yes"}"#, false),
        (r#"{"header":"x-miss"}"#, false),
    ] {
        let metering = metering(&std::format!(r#"{{"count_if":{count_if}}}"#));
        assert_eq!(metering.count_if().unwrap().includes(200, &header), counts, "{count_if}");
    }
}

#[test]
fn metering_says_what_is_committed() {
    for (json, words, if_unknown) in [
        (r#"{"actual":1}"#, "at the cost that its answer tells", IfUnknown::Estimate),
        (
            r#"{"actual":1,"if_unknown":"seen","count_if":{"status":401}}"#,
            "at the cost that its answer tells if the answer counts",
            IfUnknown::Seen,
        ),
        (r#"{"count_if":{"status":401}}"#, "at its cost if the answer counts", IfUnknown::Estimate),
    ] {
        let metering = metering(json);
        assert_eq!((metering.to_string().as_str(), metering.if_unknown()), (words, if_unknown));
    }
}
