use skopos_score::insight::{MAX_TIERS, Tiers};

#[test]
fn a_good_file() {
    let tiers = Tiers::parse(
        r#"
        [[tier]]
        name = "nvme"
        mounts = ["/scratch", "/"]

        [[tier]]
        name = "disk-2.old"
        mounts = ["/archive"]

        [[device]]
        name = "cciss!c0d0"
        replication = 2
        "#,
    )
    .expect("good");
    assert_eq!(tiers.tiers().len(), 2);
    assert_eq!(tiers.tier("nvme").expect("there").mounts, ["/scratch", "/"]);
    assert_eq!(tiers.replication("cciss%21c0d0"), Some(2));
    assert_eq!(tiers.replication("vda"), None);
    assert_eq!(Tiers::parse(""), Ok(Tiers::default()));
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let tier =
        |name: &str, mounts: &str| format!("[[tier]]\nname = \"{name}\"\nmounts = {mounts}\n");
    let device = |name: &str, copies: &str| {
        format!("[[device]]\nname = \"{name}\"\nreplication = {copies}\n")
    };
    for (text, error) in [
        ("[[tier]\n".to_owned(), "line 1: unclosed array table, expected `]`"),
        ("[[tier]]\nmounts = [\"/\"]\n".to_owned(), "line 1: missing field `name`"),
        ("[[tier]]\nname = \"a\"\n".to_owned(), "line 1: missing field `mounts`"),
        (
            tier("a", "[\"/\"]\nmount = 1"),
            "line 4: unknown field `mount`, expected `name` or `mounts`",
        ),
        ("tiers = []".to_owned(), "line 1: unknown field `tiers`, expected `tier` or `device`"),
        (tier("a", "\"/\""), "line 3: invalid type: string \"/\", expected a sequence"),
        (tier("Fast", "[\"/\"]"), "`Fast` is not a valid name of a tier"),
        (tier("", "[\"/\"]"), "`` is not a valid name of a tier"),
        (tier("a/b", "[\"/\"]"), "`a/b` is not a valid name of a tier"),
        (tier("a", "[\"/\"]") + &tier("a", "[\"/b\"]"), "two tiers have the name `a`"),
        (tier("a", "[]"), "the tier `a` has no mounts"),
        (tier("a", "[\"scratch\"]"), "tier `a`: `scratch` is not a mount point"),
        (tier("a", "[\"/a/../b\"]"), "tier `a`: `/a/../b` is not a mount point"),
        (tier("a", "[\"/a/\"]"), "tier `a`: `/a/` is not a mount point"),
        (tier("a", "[\"/\", \"/\"]"), "`/` is in `a` and in `a`"),
        (tier("a", "[\"/x\"]") + &tier("b", "[\"/x\"]"), "`/x` is in `a` and in `b`"),
        (device("/dev/vda", "2"), "`/dev/vda` is not a name of a device"),
        (device("vda", "2") + &device("vda", "3"), "two devices have the name `vda`"),
        (device("vda", "0"), "device `vda`: a replication of 0 is not possible"),
        (device("vda", "9999"), "device `vda`: a replication of 9999 is not possible"),
        (device("vda", "-1"), "line 3: invalid value: integer `-1`, expected u32"),
    ] {
        let found = Tiers::parse(&text).expect_err(&text);
        assert_eq!(found.to_string(), error, "{text}");
        assert!(!found.hint().is_empty());
    }
    let many: String =
        (0..=MAX_TIERS).map(|i| tier(&format!("t{i}"), &format!("[\"/{i}\"]"))).collect();
    let error = Tiers::parse(&many).expect_err("too many");
    assert_eq!(error.to_string(), "tiers: 33, but at most 32 are allowed");
}
