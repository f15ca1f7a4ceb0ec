use std::string::ToString;

use super::{Percent, percent};

#[test]
fn a_share_has_up_to_four_decimals() {
    for (text, ppm) in [
        ("0%", Some(0)),
        ("80%", Some(800_000)),
        ("0.5%", Some(5_000)),
        ("12.3456%", Some(123_456)),
        ("100%", Some(1_000_000)),
        ("100.0001%", None),
        ("1.%", None),
        (".5%", None),
        ("1.00000%", None),
        ("1.2.3%", None),
        ("-1%", None),
        ("%", None),
        ("80", None),
    ] {
        let share = percent(text);
        assert_eq!(share.map(|share| share.ppm()), ppm, "{text}");
        assert!(share.is_none_or(|share| Percent(share).to_string() == text), "{text}");
    }
}
