use super::super::contract::Catalogue;
use super::super::filter::{Filter, Visibility};

/// Opens an empty catalogue.
pub type Open<'o> = &'o dyn Fn() -> Box<dyn Catalogue>;

pub(super) fn dump(catalogue: &dyn Catalogue) -> String {
    let mut out = Vec::new();
    catalogue.dump(&mut out).expect("a dump");
    String::from_utf8(out).expect("text")
}

pub(super) fn everything() -> Filter {
    Filter::new(Visibility::Everything)
}
