//! Bounds the depth of a statement, from its tokens, before any recursive function sees it.
//!
//! Parsing, planning and dropping a tree recurse once for each level, and a stack is finite. The parser bounds
//! parentheses; a chain (`a + b + c`, `… UNION …`) is as deep as it is long.
//!
//! The recursive protection of sqlparser and DataFusion cannot replace this check: it grows the stack only
//! while a statement is parsed and planned. Dropping a tree recurses too, and a point read drops its tree on
//! the 2 MiB stack of its caller.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit as _, Visitor};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Error;
use crate::limits::{MAX_DEPTH, MAX_RELATIONS};

/// The depth of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Levels of operators, those around each pair of parentheses included.
    operators: usize,
    /// Number of set operations, such as `UNION`, in a chain.
    branches: usize,
    /// Parentheses and `CASE`s that are open at one time.
    open: usize,
}

/// Bounds of a statement that a thread of the pool plans.
pub(crate) const PLANNED: Depth =
    Depth { operators: MAX_DEPTH, branches: MAX_DEPTH, open: MAX_DEPTH };

/// Bounds of a statement that any thread may parse, for a point read. Branches take stack only while the tree
/// is dropped; the paper's resource query for more than a thousand nodes needs them. An open parenthesis takes
/// the parser some 100 KiB in a debug build.
pub(crate) const POINT: Depth = Depth { operators: 24, branches: 3000, open: 8 };

/// Counts of one level: between a pair of parentheses, or outside of all.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Number of `AND` and `OR` in the current expression.
    logic: usize,
    /// Number of operators in the current operand.
    operators: usize,
    /// Number of set operations.
    branches: usize,
}

/// Refuses a statement that is deeper than `most`.
pub(crate) fn check(tokens: &[TokenWithSpan], most: Depth) -> Result<(), Error> {
    let depth = depth(tokens);
    let is_within = depth.operators <= most.operators
        && depth.branches <= most.branches
        && depth.open <= most.open;
    if is_within { Ok(()) } else { Err(Error::TooDeep) }
}

/// The open levels at one token, with their sums: to add them up at each token would be quadratic.
#[derive(Default)]
struct Levels {
    top: Level,
    below: Vec<Level>,
    /// Operators and branches of the levels below the top.
    operators: usize,
    branches: usize,
}

impl Levels {
    fn open(&mut self) {
        let below = std::mem::take(&mut self.top);
        self.operators += below.operators();
        self.branches += below.branches;
        self.below.push(below);
    }

    fn close(&mut self) {
        self.top = self.below.pop().unwrap_or_default();
        self.operators -= self.top.operators();
        self.branches -= self.top.branches;
    }
}

impl Level {
    /// Returns the operators of the level, which counts as one itself.
    fn operators(&self) -> usize {
        self.logic + self.operators + 1
    }
}

fn depth(tokens: &[TokenWithSpan]) -> Depth {
    let mut levels = Levels::default();
    let mut deepest = Depth::default();
    for token in tokens {
        let is_inner = !levels.below.is_empty();
        let top = &mut levels.top;
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => levels.open(),
            Token::RParen | Token::RBracket | Token::RBrace if is_inner => levels.close(),
            Token::Comma | Token::SemiColon => (top.logic, top.operators) = (0, 0),
            Token::Word(word) => match word.keyword {
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    *top = Level { branches: top.branches + 1, ..Level::default() };
                }
                Keyword::SELECT | Keyword::FROM | Keyword::WHERE | Keyword::HAVING => {
                    (top.logic, top.operators) = (0, 0);
                }
                Keyword::AND | Keyword::OR => (top.logic, top.operators) = (top.logic + 1, 0),
                // `CASE` ends with `END`, like a parenthesis; `EXPLAIN` may explain another `EXPLAIN`.
                Keyword::CASE | Keyword::EXPLAIN | Keyword::DESCRIBE | Keyword::DESC => {
                    levels.open();
                }
                Keyword::END if is_inner => levels.close(),
                Keyword::JOIN
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::IN
                | Keyword::BETWEEN
                | Keyword::COLLATE
                | Keyword::AT => top.operators += 1,
                _ => {}
            },
            Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::RParen
            | Token::RBracket
            | Token::RBrace => {}
            _ => top.operators += 1,
        }
        deepest = Depth {
            operators: deepest.operators.max(levels.operators + levels.top.operators()),
            branches: deepest.branches.max(levels.branches + levels.top.branches),
            open: deepest.open.max(levels.below.len()),
        };
    }
    deepest
}

/// Refuses a statement whose plan would be too large. The planner plans a table of a `WITH` again for each
/// use, so a few tables that each use the previous one twice make a plan of any size.
pub(crate) fn check_relations(statement: &Parsed) -> Result<(), Error> {
    let Parsed::Statement(statement) = statement else { return Ok(()) };
    let mut relations = Relations { open: vec![Open::default()], ..Relations::default() };
    let _ = statement.visit(&mut relations);
    match relations.open.first().is_none_or(|all| all.count <= MAX_RELATIONS) {
        true => Ok(()),
        false => Err(Error::TooManyTables),
    }
}

/// Counts the tables of a statement.
#[derive(Default)]
struct Relations {
    open: Vec<Open>,
    /// Number of tables in each table that a `WITH` has named so far.
    sizes: HashMap<String, usize>,
}

/// A query that the visitor is in.
#[derive(Default)]
struct Open {
    count: usize,
    /// Address and name of each query of its `WITH`.
    named: Vec<(*const Query, String)>,
}

impl Visitor for Relations {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let named = query
            .with
            .iter()
            .flat_map(|with| &with.cte_tables)
            .map(|cte| (std::ptr::from_ref(&*cte.query), cte.alias.name.value.to_lowercase()));
        self.open.push(Open { count: 0, named: named.collect() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let count = self.open.pop().map_or(0, |open| open.count);
        let Some(around) = self.open.last_mut() else { return ControlFlow::Continue(()) };
        match around.named.iter().find(|(of, _)| std::ptr::eq(*of, query)) {
            // If two have one name, the larger one counts.
            Some((_, name)) => {
                let size = self.sizes.entry(name.clone()).or_default();
                *size = count.saturating_add(1).max(*size);
            }
            None => around.count = around.count.saturating_add(count),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = relation.0.last().and_then(|part| part.as_ident());
        let size = name.and_then(|name| self.sizes.get(&name.value.to_lowercase()));
        if let Some(open) = self.open.last_mut() {
            open.count = open.count.saturating_add(size.copied().unwrap_or(1));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn chains_and_parentheses_are_levels() {
        for (sql, expected) in [
            ("SELECT 1", [1, 0, 0]),
            ("SELECT 1 + 2 + 3, 4 + 5", [3, 0, 0]),
            ("SELECT 1 + (2 + (3))", [5, 0, 2]),
            ("SELECT a FROM b WHERE c = 1 AND d = 2 AND e = 3", [4, 0, 0]),
            ("SELECT 1 UNION SELECT 2 UNION ALL SELECT 3", [1, 2, 0]),
            ("SELECT CASE WHEN 1 + 1 THEN 2 ELSE 3 END + 4", [3, 0, 1]),
            ("SELECT 'a + b' || \"c + d\" -- + 1", [2, 0, 0]),
            ("EXPLAIN EXPLAIN SELECT 1", [3, 0, 2]),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
            let Depth { operators, branches, open } = depth(&tokens.expect("tokens"));
            assert_eq!([operators, branches, open], expected, "{sql}");
        }
    }
}
