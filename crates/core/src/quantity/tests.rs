use super::saturating_product;

#[test]
fn a_product_is_exact_or_the_largest_number() {
    const WORD: u64 = 1 << 32;
    for (one, other, expected) in [
        (WORD - 1, WORD - 1, 0xffff_fffe_0000_0001),
        (WORD, 3, 3 * WORD),
        (WORD, WORD - 1, u64::MAX - (WORD - 1)),
        (WORD, WORD, u64::MAX),
        (1 << 63, 2, u64::MAX),
        (u64::MAX, 0, 0),
    ] {
        assert_eq!(saturating_product(one, other), expected, "{one} × {other}");
        assert_eq!(saturating_product(other, one), expected, "{other} × {one}");
    }
}
