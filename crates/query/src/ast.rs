//! Helpers on the syntax tree that the parser makes.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Select,
    SelectItem, SetExpr, Spanned, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use skopos_eval::Position;

/// Returns true if `function` has this name, in upper or lower case.
pub(crate) fn is_named(function: &Function, name: &str) -> bool {
    let [part] = function.name.0.as_slice() else { return false };
    part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case(name))
}

/// Returns the column that an expression is, without the name of its table.
pub(crate) fn column(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

/// Returns the text that an expression is, if it is a text in single quotes.
pub(crate) fn text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns an identifier as the planner reads it: in lower case unless it is quoted.
pub(crate) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        None => ident.value.to_lowercase(),
        Some(_) => ident.value.clone(),
    }
}

/// Parses one expression.
pub(crate) fn parse_expression(text: &str) -> Option<Expr> {
    Parser::new(&GenericDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

/// Returns the position at which a part of the statement begins.
pub(crate) fn position_of(part: &impl Spanned) -> Position {
    let start = part.span().start;
    Position { line: start.line.max(1), column: start.column.max(1) }
}

/// Returns the arguments of a call whose arguments are all plain expressions.
pub(crate) fn plain_arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if !list.clauses.is_empty() || list.duplicate_treatment.is_some() {
        return None;
    }
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

/// The `MAX` or `MIN` of `SELECT MAX(x), y FROM t`.
pub(crate) struct Extreme<'s> {
    /// Position in the projection.
    pub(crate) at: usize,
    pub(crate) is_max: bool,
    /// The column `x`.
    pub(crate) by: &'s Ident,
}

/// Returns the only `MAX` or `MIN` of a select that has plain columns beside it, and no clause that would
/// change its meaning.
pub(crate) fn extreme(select: &Select) -> Option<Extreme<'_>> {
    let is_plain = select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty());
    let mut found = None;
    for (at, item) in select.projection.iter().enumerate() {
        let expression = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
            _ => return None,
        };
        match (expression, column(expression)) {
            (_, Some(_)) => {}
            (Expr::Function(function), None) if found.is_none() => {
                let is_max = is_named(function, "max");
                if !is_max && !is_named(function, "min") {
                    return None;
                }
                found = Some(Extreme { at, is_max, by: only_column(function)? });
            }
            _ => return None,
        }
    }
    found.filter(|_| is_plain && select.projection.len() > 1)
}

/// Returns the column that is the only argument of a function.
fn only_column(function: &Function) -> Option<&Ident> {
    if function.filter.is_some() || function.over.is_some() || !function.within_group.is_empty() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => column(expr),
        _ => None,
    }
}

/// Returns the name of a column of the answer that has no alias: its text in the statement.
pub(crate) fn name_of(expression: &Expr) -> String {
    column(expression).map_or_else(|| expression.to_string(), folded)
}

/// Gives every column of the answer without an alias its text in the statement as a name.
pub(crate) fn name_columns(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        // The names of a union are those of its first part.
        SetExpr::SetOperation { left, .. } => return name_columns(left),
        _ => return,
    };
    let names: Vec<String> = select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            other => other.to_string(),
        })
        .collect();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let is_unique = names.iter().filter(|name| **name == names[at]).count() == 1;
        if column(expr).is_none() && is_unique {
            let alias = Ident::with_quote('"', names[at].clone());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}
