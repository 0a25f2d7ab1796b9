//! Tests of text columns.

use std::str::FromStr;

use skopos_model::{Kind, Topic, Unit};
use sqlparser::ast::{Expr, ValueWithSpan};

use crate::error::Error;
use crate::expression::{Comparison, Condition};
use crate::like::{Like, Piece};
use crate::parse::compiler::{Compiler, Scope};
use crate::parse::condition::{negate, unnested};
use crate::parse::literal;
use crate::program::{Test, TextColumn, TextTest};

impl Compiler<'_> {
    /// Returns the text column that `expression` names, if any.
    pub(super) fn text_column(&self, expression: &Expr) -> Option<TextColumn> {
        Some(match self.column_name(unnested(expression))?.as_str() {
            "topic" => TextColumn::Topic,
            "node" => TextColumn::Node,
            "unit" => TextColumn::Unit,
            "kind" => TextColumn::Kind,
            _ => return None,
        })
    }

    pub(super) fn compare_text(
        &mut self,
        column: TextColumn,
        comparison: Comparison,
        text: &Expr,
        scope: Scope,
    ) -> Result<Condition, Error> {
        let negated = match comparison {
            Comparison::Equal => false,
            Comparison::NotEqual => true,
            _ => {
                return Err(self.refused(
                    "comparing the order of texts",
                    "texts are tested with =, <>, IN, LIKE and NOT LIKE",
                ));
            }
        };
        let found = self.text_in(column, std::slice::from_ref(text), scope)?;
        Ok(negate(negated, found))
    }

    pub(super) fn text_in(
        &mut self,
        column: TextColumn,
        list: &[Expr],
        scope: Scope,
    ) -> Result<Condition, Error> {
        self.about_a_row(scope)?;
        let mut texts: Vec<Box<str>> = Vec::new();
        for item in list {
            self.look_at(item);
            let Some(text) = literal::text(item) else {
                return Err(self.meaningless(
                    "expected a text in single quotes",
                    "compare a text with a text: `topic = 'n01/mem/available_bytes'`",
                ));
            };
            self.check_text(column, text)?;
            texts.push(text.into());
        }
        texts.sort_unstable();
        texts.dedup();
        self.add_text(TextTest { column, test: Test::In(texts) })
    }

    pub(super) fn like(
        &mut self,
        expression: &Expr,
        pattern: &Expr,
        escape: Option<&ValueWithSpan>,
        scope: Scope,
    ) -> Result<Condition, Error> {
        let Some(column) = self.text_column(expression) else {
            return Err(self.meaningless(
                "LIKE does not test numbers",
                "LIKE tests topic, node, unit and kind",
            ));
        };
        self.about_a_row(scope)?;
        self.look_at(pattern);
        let escape = match escape.map(|escape| escape.value.clone().into_string()) {
            None => Some('\\'),
            Some(Some(text)) if text.chars().count() <= 1 => text.chars().next(),
            Some(_) => return Err(self.meaningless("ESCAPE needs one character", "ESCAPE '\\'")),
        };
        let Some(like) = literal::text(pattern).and_then(|text| Like::new(text, escape)) else {
            return Err(self.meaningless(
                "expected a pattern for LIKE",
                "a pattern is a text in single quotes, with `%` for any characters and `_` for one",
            ));
        };
        self.check_like(column, &like)?;
        self.add_text(TextTest { column, test: Test::Like(like) })
    }

    fn about_a_row(&self, scope: Scope) -> Result<(), Error> {
        match scope {
            Scope::Row => Ok(()),
            Scope::Output => Err(self.meaningless(
                "a test of a row outside of an aggregate",
                "put it into the aggregate: `sum(value) FILTER (WHERE topic LIKE '...')`",
            )),
        }
    }

    /// Refuses a text that no row can have: it is a mistake of the user.
    fn check_text(&self, column: TextColumn, text: &str) -> Result<(), Error> {
        let wrong = match column {
            TextColumn::Topic => Topic::new(text).err(),
            TextColumn::Node if text.contains('/') => {
                return Err(
                    self.meaningless("a node has no `/`", "a node is the first segment of a topic")
                );
            }
            TextColumn::Node => Topic::new(text).err(),
            TextColumn::Unit => Unit::new(text).err(),
            TextColumn::Kind => Kind::from_str(text).err(),
        };
        match wrong {
            None => Ok(()),
            Some(error) => Err(self.meaningless(error.to_string(), "")),
        }
    }

    /// Refuses a pattern with characters that no topic has.
    fn check_like(&self, column: TextColumn, like: &Like) -> Result<(), Error> {
        let slash = column == TextColumn::Topic;
        let odd = like.pieces().iter().find_map(|piece| match piece {
            Piece::Character('/') if slash => None,
            Piece::Character(c) if Topic::new(c.encode_utf8(&mut [0; 4])).is_err() => Some(*c),
            _ => None,
        });
        match (column, odd) {
            (TextColumn::Topic | TextColumn::Node, Some(odd)) => Err(self.meaningless(
                format!("no {} has the character {odd:?}", if slash { "topic" } else { "node" }),
                "topics are lower-case; `%` stands for any characters, `_` for one",
            )),
            _ => Ok(()),
        }
    }
}
