//! Recognises selects that are simple enough for a point read.

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Query, Select, SelectItem, Statement, TableFactor,
};

use crate::ast::{folded, name_of};
use crate::tables::SampleColumn;

/// Returns the query of a statement that has no clause around its selects.
pub(super) fn plain_query(statement: &Parsed) -> Option<&Query> {
    let Parsed::Statement(inner) = statement else { return None };
    let Statement::Query(query) = &**inner else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    is_plain.then_some(query)
}

/// Returns the table of a select that has no clauses but `FROM` one table and `WHERE`.
pub(super) fn plain_table(select: &Select) -> Option<String> {
    let is_plain = select.distinct.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty())
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none();
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, alias: None, args: None, sample: None, version: None, .. } =
        &from.relation
    else {
        return None;
    };
    let [part] = name.0.as_slice() else { return None };
    (is_plain && from.joins.is_empty()).then(|| part.as_ident().map(folded)).flatten()
}

/// Returns the columns of a projection without functions, out of `known`, and their names in the answer.
pub(super) fn columns_of(
    select: &Select,
    known: &[SampleColumn],
) -> Option<(Vec<SampleColumn>, Vec<String>)> {
    let (mut columns, mut names) = (Vec::new(), Vec::new());
    for item in &select.projection {
        let (expression, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            SelectItem::Wildcard(options)
                if options.opt_exclude.is_none()
                    && options.opt_except.is_none()
                    && options.opt_replace.is_none()
                    && options.opt_rename.is_none()
                    && options.opt_ilike.is_none() =>
            {
                columns.extend(known);
                names.extend(known.iter().map(|c| c.name().to_owned()));
                continue;
            }
            _ => return None,
        };
        let Expr::Identifier(ident) = expression else { return None };
        let column = folded(ident);
        columns.push(*known.iter().find(|c| c.name() == column)?);
        names.push(name);
    }
    // The planner refuses two columns of one name.
    let is_distinct = names.iter().enumerate().all(|(at, name)| !names[..at].contains(name));
    is_distinct.then_some((columns, names))
}
