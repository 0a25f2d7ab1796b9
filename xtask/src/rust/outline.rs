//! The items, imports and paths of a file: the part of its syntax that says which module uses which.
//!
//! Items under `#[cfg(test)]` are left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Spacing, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, UseTree, Visibility};

use super::words::has_test;

/// The scopes of one file. The first is the file itself, the others are its inline modules.
pub(crate) struct Outline {
    pub(crate) scopes: Vec<Scope>,
}

/// One module as far as this file has it.
#[derive(Default)]
pub(crate) struct Scope {
    /// Names of the inline modules around it, outermost first.
    pub(crate) path: Vec<String>,
    /// Names that it defines, modules excepted.
    pub(crate) items: BTreeSet<String>,
    /// Modules with files of their own, by name: the text of their `#[path]` if they have one.
    pub(crate) files: BTreeMap<String, Option<String>>,
    pub(crate) imports: Vec<Import>,
    /// Every path outside of imports with the line of its first use.
    pub(crate) paths: BTreeMap<Vec<String>, usize>,
}

/// One leaf of a `use`.
#[derive(Clone)]
pub(crate) struct Import {
    /// The name under which it is known here; `*` for all names of a module.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    /// Whether other modules may import it from here.
    pub(crate) public: bool,
    pub(crate) line: usize,
}

impl Default for Outline {
    fn default() -> Self {
        Self { scopes: vec![Scope::default()] }
    }
}

impl Outline {
    /// Parses a file; an outline without anything in it if that fails.
    pub(super) fn new(tokens: TokenStream) -> Self {
        let mut visitor = Visitor { scopes: vec![Scope::default()], open: vec![0] };
        if let Ok(file) = syn::parse2::<syn::File>(tokens)
            && !file.attrs.iter().any(is_test)
        {
            visitor.items(&file.items);
            file.attrs.iter().for_each(|a| visitor.visit_attribute(a));
        }
        Self { scopes: visitor.scopes }
    }
}

struct Visitor {
    scopes: Vec<Scope>,
    /// Positions of the scopes around the present place.
    open: Vec<usize>,
}

impl Visitor {
    fn scope(&mut self) -> &mut Scope {
        let at = self.open.last().copied().unwrap_or(0);
        &mut self.scopes[at]
    }

    /// Visits the items of a module, whose names other modules can use.
    fn items(&mut self, items: &[Item]) {
        for item in items.iter().filter(|item| !attributes(item).iter().any(is_test)) {
            if let Some(name) = name(item) {
                self.scope().items.insert(name);
            }
            self.visit_item(item);
        }
    }

    fn path(&mut self, segments: Vec<String>, span: Span) {
        let line = || span.start().line.saturating_sub(1);
        self.scope().paths.entry(segments).or_insert_with(line);
    }

    fn import(&mut self, tree: &UseTree, prefix: &mut Vec<String>, public: bool) {
        let (name, last, span) = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, public);
                prefix.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix, public));
                return;
            }
            UseTree::Glob(glob) => ("*".to_owned(), None, glob.star_token.spans[0]),
            UseTree::Name(name) => {
                let text = name.ident.to_string();
                (text.clone(), Some(text), name.ident.span())
            }
            UseTree::Rename(rename) => {
                let original = rename.ident.to_string();
                (rename.rename.to_string(), Some(original), rename.ident.span())
            }
        };
        let mut path = prefix.clone();
        path.extend(last.filter(|last| last != "self"));
        // `use a::{self}` is known as `a`.
        let name = if name == "self" { path.last().cloned().unwrap_or(name) } else { name };
        let line = span.start().line.saturating_sub(1);
        self.scope().imports.push(Import { name, path, public, line });
    }

    /// Notes the paths in the arguments of a macro or an attribute, which have no syntax tree.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        for tree in tokens {
            match &tree {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path, start);
                        start = ident.span();
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(p) if p.as_char() == ':' => {
                    let joined = p.spacing() == Spacing::Joint || colons == 1;
                    colons = if joined && !path.is_empty() { colons + 1 } else { 3 };
                }
                _ => {
                    self.end(&mut path, start);
                    colons = 0;
                }
            }
            if let TokenTree::Group(group) = tree {
                self.tokens(group.stream());
            }
        }
        self.end(&mut path, start);
    }

    fn end(&mut self, path: &mut Vec<String>, start: Span) {
        if !path.is_empty() {
            self.path(std::mem::take(path), start);
        }
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_test) {
            return;
        }
        let Item::Mod(module) = item else { return visit::visit_item(self, item) };
        let name = module.ident.to_string();
        let Some((_, items)) = &module.content else {
            let path = module.attrs.iter().find_map(path_attribute);
            self.scope().files.insert(name, path);
            return;
        };
        let mut path = self.scope().path.clone();
        path.push(name);
        self.scopes.push(Scope { path, ..Scope::default() });
        self.open.push(self.scopes.len() - 1);
        self.items(items);
        self.open.pop();
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Fn(function) => &function.attrs,
            ImplItem::Const(constant) => &constant.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_test) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // `use ::std::…` leads out of the crate.
        if item.leading_colon.is_none() {
            let public = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, &mut Vec::new(), public);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first().filter(|_| path.leading_colon.is_none()) {
            let segments = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.path(segments, first.ident.span());
        }
        visit::visit_path(self, path);
    }

    /// `pub(in crate::a)` uses nothing of `a`.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}

fn is_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => has_test(list.tokens.clone()),
        meta => meta.path().is_ident("test"),
    }
}

/// The text of `#[path = "…"]`.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })
            if pair.path.is_ident("path") =>
        {
            Some(text.value())
        }
        _ => None,
    }
}

/// The name under which other modules can use an item. Modules and imports have places of their own.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::TraitAlias(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(text: &str) -> Outline {
        Outline::new(text.parse().expect("tokens"))
    }

    fn paths(text: &str) -> Vec<String> {
        let scope = &outline(text).scopes[0];
        scope.paths.iter().map(|(path, line)| format!("{line} {}", path.join("::"))).collect()
    }

    #[test]
    fn every_leaf_of_a_use_is_an_import() {
        let text =
            "use crate::a::{self, B, c::{D as E, *}};\npub(crate) use self::f::G;\nuse ::std::x;\n";
        let found: Vec<String> = outline(text).scopes[0]
            .imports
            .iter()
            .map(|i| format!("{} {} {} {}", i.line, i.name, i.path.join("::"), i.public))
            .collect();
        assert_eq!(
            found,
            [
                "0 a crate::a false",
                "0 B crate::a::B false",
                "0 E crate::a::c::D false",
                "0 * crate::a::c false",
                "1 G self::f::G true",
            ]
        );
    }

    #[test]
    fn paths_are_found_in_code_macros_and_attributes() {
        let text = "#[arg(value_parser = crate::a::parse)]\npub(in crate::z) struct S(b::C<super::D>);\n\
                    macro_rules! m { () => { $crate::e::F }; }\n\
                    fn f() { vec![crate::g::H::new(1)]; a(x: ::std::y); }\n";
        assert_eq!(paths("fn f(x: b::C<super::D>) {}"), ["0 b::C", "0 super::D"]);
        let found = paths(&text.replace("a(x: ::std::y);", "m!(x: ::std::y);"));
        for wanted in
            ["0 crate::a::parse", "1 b::C", "1 super::D", "2 crate::e::F", "3 crate::g::H::new"]
        {
            assert!(found.iter().any(|path| path == wanted), "{wanted}: {found:?}");
        }
        assert!(!found.iter().any(|path| path.contains("crate::z")));
    }

    #[test]
    fn tests_are_left_out_and_inline_modules_are_scopes() {
        let outline = outline(
            "mod a;\n#[path = \"x.rs\"]\nmod b;\n#[cfg(test)]\nmod t;\n#[cfg(test)]\nuse crate::q;\n\
             mod inner { pub fn g() { crate::h::i() } }\nstruct S;\nimpl S {\n    #[cfg(test)]\n    \
             fn u() { crate::v::w() }\n}\nfn k() { fn local() {} }\n",
        );
        let file = &outline.scopes[0];
        assert_eq!(file.files.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(file.files["b"].as_deref(), Some("x.rs"));
        assert!(file.imports.is_empty());
        assert_eq!(file.items.iter().collect::<Vec<_>>(), ["S", "k"]);
        assert!(!file.paths.keys().any(|path| path[0] == "crate"));
        let inner = &outline.scopes[1];
        assert_eq!((inner.path.join("::"), inner.paths.len()), ("inner".to_owned(), 1));
        assert!(inner.items.contains("g"));
    }
}
