//! `CASE` and functions of numbers.

use sqlparser::ast::{
    CaseWhen, CeilFloorKind, DateTimeField, Expr, Function as Call, FunctionArg, FunctionArgExpr,
    FunctionArguments,
};

use crate::error::Error;
use crate::expression::{Comparison, Condition, Expression, Scalar};
use crate::parse::compiler::{Compiler, Scope};
use crate::parse::literal;
use crate::parse::names::unknown_function;
use crate::parse::shape::HUB;

/// The parts of a function call.
pub(super) struct Parts<'e> {
    pub(super) name: String,
    /// `None` for `*`.
    pub(super) arguments: Vec<Option<&'e Expr>>,
    pub(super) filter: Option<&'e Expr>,
}

impl Compiler<'_> {
    pub(super) fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        scope: Scope,
        depth: usize,
    ) -> Result<Expression, Error> {
        let operand = operand.map(|operand| self.expression(operand, scope, depth)).transpose()?;
        let mut arms = Vec::new();
        for arm in conditions {
            let when = match &operand {
                Some(operand) => Condition::Compare(
                    Comparison::Equal,
                    operand.clone(),
                    self.expression(&arm.condition, scope, depth)?,
                ),
                None => self.condition(&arm.condition, scope, depth)?,
            };
            arms.push((when, self.expression(&arm.result, scope, depth)?));
        }
        let otherwise = match otherwise {
            Some(otherwise) => Some(Box::new(self.expression(otherwise, scope, depth)?)),
            None => None,
        };
        Ok(Expression::Case(arms, otherwise))
    }

    /// Compiles a function call, and refuses all other kinds of expressions.
    pub(super) fn function(
        &mut self,
        expression: &Expr,
        scope: Scope,
        depth: usize,
    ) -> Result<Expression, Error> {
        let plain = CeilFloorKind::DateTimeField(DateTimeField::NoDateTime);
        match expression {
            Expr::Ceil { expr, field } if *field == plain => {
                Ok(Expression::Call(Scalar::Ceil, vec![self.expression(expr, scope, depth)?]))
            }
            Expr::Floor { expr, field } if *field == plain => {
                Ok(Expression::Call(Scalar::Floor, vec![self.expression(expr, scope, depth)?]))
            }
            Expr::Function(call) => {
                let parts = self.parts(call)?;
                if let Some(compiled) = self.of_rows(&parts, scope, depth)? {
                    return Ok(compiled);
                }
                self.scalar(&parts, scope, depth)
            }
            Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::InList { .. }
            | Expr::Between { .. }
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::UnaryOp { .. } => Err(self.meaningless(
                "a condition where a number is expected",
                "`CASE WHEN condition THEN 1 ELSE 0 END` turns a condition into a number",
            )),
            Expr::Cast { .. } => Err(self.refused("a cast", "all numbers are doubles")),
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => {
                Err(self.refused("`*`", "select one number, such as `sum(value)`"))
            }
            _ => Err(self.refused("an expression of this kind", HUB)),
        }
    }

    pub(super) fn parts<'e>(&self, call: &'e Call) -> Result<Parts<'e>, Error> {
        let name = match call.name.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.to_lowercase()),
            _ => None,
        };
        let Some(name) = name else {
            return Err(self.refused("a function name of several parts", HUB));
        };
        let odd = || self.refused(&format!("this form of a call of `{name}`"), HUB);
        if call.uses_odbc_syntax
            || call.parameters != FunctionArguments::None
            || call.null_treatment.is_some()
            || call.over.is_some()
            || !call.within_group.is_empty()
        {
            return Err(odd());
        }
        let arguments = match &call.args {
            FunctionArguments::None => Vec::new(),
            FunctionArguments::Subquery(_) => return Err(odd()),
            FunctionArguments::List(list) => {
                if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
                    return Err(odd());
                }
                let each = list.args.iter().map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Ok(Some(expression)),
                    FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => Ok(None),
                    _ => Err(odd()),
                });
                each.collect::<Result<_, _>>()?
            }
        };
        Ok(Parts { name, arguments, filter: call.filter.as_deref() })
    }

    fn scalar(
        &mut self,
        parts: &Parts<'_>,
        scope: Scope,
        depth: usize,
    ) -> Result<Expression, Error> {
        let name = parts.name.as_str();
        if ["now", "current_timestamp"].contains(&name) {
            return Err(self.refused(
                &format!("`{name}` here"),
                "a window is `time > now() - INTERVAL '60 s'` in `samples`; in `latest` there is `age`",
            ));
        }
        let known = Scalar::ALL.into_iter().find(|function| function.name() == name);
        let alias = match name {
            "ceiling" => Some(Scalar::Ceil),
            _ => None,
        };
        let Some(function) = known.or(alias) else {
            return Err(unknown_function(name, self.at()));
        };
        let given = parts.arguments.len();
        let (least, most, hint) = match function {
            Scalar::Abs => (1, 1, "`abs(x)`"),
            Scalar::Floor => (1, 1, "`floor(x)`"),
            Scalar::Ceil => (1, 1, "`ceil(x)`"),
            Scalar::Round => (1, 2, "`round(x)`, or `round(x, places)`"),
            Scalar::Least => (1, usize::MAX, "`least(x, y, ...)`"),
            Scalar::Greatest => (1, usize::MAX, "`greatest(x, y, ...)`"),
            Scalar::Coalesce => (1, usize::MAX, "`coalesce(x, y, ...)`"),
            Scalar::NullIf => (2, 2, "`nullif(x, y)`"),
        };
        if given < least || given > most || parts.filter.is_some() {
            return Err(self.meaningless(format!("wrong arguments of `{name}`"), hint));
        }
        let at = self.at();
        let mut arguments = Vec::new();
        for argument in &parts.arguments {
            let Some(argument) = argument else {
                return Err(self.meaningless(format!("`{name}` of `*`"), hint));
            };
            arguments.push(self.expression(argument, scope, depth)?);
        }
        let places = (function == Scalar::Round).then(|| parts.arguments.get(1)).flatten();
        if let Some(places) = places.copied().flatten() {
            // A double has about 15 significant digits, and at most 308 before the point.
            let known =
                literal::number(places).is_some_and(|n| n.fract() == 0.0 && n.abs() <= 300.0);
            if !known {
                return Err(Error::Meaningless {
                    at,
                    what: "`round` needs a whole number of places".to_owned(),
                    hint: "`round(x, 2)`",
                });
            }
        }
        Ok(Expression::Call(function, arguments))
    }
}
