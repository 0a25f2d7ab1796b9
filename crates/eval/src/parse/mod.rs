//! Compiles text to a [`Program`]: `sqlparser` makes tokens and a syntax tree, and the compiler accepts
//! only the subset.

mod shape;
mod names;
mod literal;
mod compiler;
mod aggregate;
mod scalar;
mod condition;
mod text;

use sqlparser::ast::{Expr, SelectItem};

use crate::error::Error;
use crate::expression::Condition;
use crate::limits::MAX_OUTPUTS;
use crate::parse::compiler::{Compiler, Scope};
use crate::program::{Output, Program};
use crate::topics;

/// Compiles a statement.
pub(crate) fn compile(sql: &str) -> Result<Program, Error> {
    let shape = shape::of(sql)?;
    let mut compiler = Compiler::new(&shape);
    let (selection, window) = match &shape.selection {
        Some(selection) => compiler.selection(selection)?,
        None => (Condition::Always(true), None),
    };
    let mut outputs = Vec::new();
    for item in &shape.projection {
        let output = output(&mut compiler, item)?;
        if outputs.len() == MAX_OUTPUTS {
            return Err(compiler.too_many("selected numbers", MAX_OUTPUTS));
        }
        outputs.push(output);
    }
    // If rows are selected by time, every aggregate over them changes with time.
    let mut timed = false;
    selection.leaves(&mut |leaf| timed |= Program::leaf_is_timed(&compiler.emas, leaf));
    compiler.aggregates.iter_mut().for_each(|aggregate| aggregate.timed |= timed);
    let filters = compiler.aggregates.iter().map(|a| a.filter.clone()).collect();
    let read = Condition::All(vec![selection.clone(), Condition::Any(filters)]);
    let topics = topics::of(&read, &compiler.texts);
    compiler.check_table(&topics, window)?;
    Ok(Program {
        sql: sql.into(),
        predicate: shape.selection.as_ref().map(|selection| selection.to_string().into()),
        window,
        outputs,
        selection,
        aggregates: compiler.aggregates,
        texts: compiler.texts,
        emas: compiler.emas,
        topics,
    })
}

fn output(compiler: &mut Compiler<'_>, item: &SelectItem) -> Result<Output, Error> {
    let (expression, name) = match item {
        SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
        SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
        SelectItem::Wildcard(options) => {
            compiler.look_at_span(options.wildcard_token.0.span);
            return Err(compiler.refused("`*`", "select one number, such as `sum(value)`"));
        }
        _ => return Err(compiler.refused("`*`", "select one number, such as `sum(value)`")),
    };
    compiler.look_at(expression);
    let at = compiler.at();
    let compiled = compiler.expression(expression, Scope::Output, 0)?;
    let mut reads_rows = false;
    compiled.leaves(&mut |_| reads_rows = true);
    if !reads_rows {
        return Err(Error::Meaningless {
            at,
            what: "the number does not depend on any row".to_owned(),
            hint: "select an aggregate such as `sum(value)`, or `value` of one topic",
        });
    }
    Ok(Output { name: name.into(), at, expression: compiled })
}

/// Names a column without `AS` after its function or column, like SQL engines do.
fn name_of(expression: &Expr) -> String {
    match expression {
        Expr::Identifier(ident) => ident.value.to_lowercase(),
        Expr::Function(function) => function
            .name
            .0
            .last()
            .and_then(|part| part.as_ident())
            .map_or_else(|| "value".to_owned(), |ident| ident.value.to_lowercase()),
        _ => "value".to_owned(),
    }
}
