//! Functions of rows: aggregates, rates, means.

use sqlparser::ast::Expr;

use crate::error::Error;
use crate::expression::{Condition, Expression, Leaf};
use crate::parse::compiler::{Compiler, Scope};
use crate::parse::literal;
use crate::parse::scalar::Parts;
use crate::program::{Ema, Fading, Function};

impl Compiler<'_> {
    /// Compiles a function of rows; `None` for any other function.
    pub(super) fn of_rows(
        &mut self,
        parts: &Parts<'_>,
        scope: Scope,
        depth: usize,
    ) -> Result<Option<Expression>, Error> {
        let compiled = match (parts.name.as_str(), self.samples) {
            ("rate", false) => {
                self.one_value(parts, "`rate(value)`")?;
                self.leaf(Leaf::Rate, scope)?
            }
            ("ema", false) => {
                let ema = self.ema(parts)?;
                let leaf = self.add_ema(ema)?;
                self.leaf(leaf, scope)?
            }
            ("first" | "last" | "rate" | "ema", true) => self.of_window(parts, scope)?,
            ("first" | "last", false) => {
                return Err(self.meaningless(
                    format!("`{}` in `latest`, where each topic has one row", parts.name),
                    "use it in `FROM samples WHERE topic = '...' AND time > now() - INTERVAL '60 s'`",
                ));
            }
            _ => match self.aggregate_function(parts)? {
                Some(function) => self.aggregate(function, parts, scope, depth)?,
                None => return Ok(None),
            },
        };
        Ok(Some(compiled))
    }

    fn aggregate_function(&self, parts: &Parts<'_>) -> Result<Option<Function>, Error> {
        let given = parts.arguments.len();
        let (function, hint) = match parts.name.as_str() {
            "sum" => (Function::Sum, "`sum(value)`"),
            "avg" | "mean" => (Function::Avg, "`avg(value)`"),
            "min" => (Function::Min, "`min(value)`; for several numbers use `least(x, y)`"),
            "max" => (Function::Max, "`max(value)`; for several numbers use `greatest(x, y)`"),
            "count" => (Function::Count, "`count(*)`, or `count(value)`"),
            "median" => (Function::Quantile(0.5), "`median(value)`"),
            "quantile" | "approx_percentile_cont" => {
                let share = match parts.arguments.as_slice() {
                    [Some(_), Some(share)] => literal::number(share),
                    _ => None,
                };
                return match share {
                    Some(share) if (0.0..=1.0).contains(&share) => {
                        Ok(Some(Function::Quantile(share)))
                    }
                    _ => Err(self.meaningless(
                        format!("`{}` without a share from 0 to 1", parts.name),
                        "`quantile(value, 0.95)`",
                    )),
                };
            }
            _ => return Ok(None),
        };
        if given != 1 {
            return Err(self.meaningless(format!("wrong arguments of `{}`", parts.name), hint));
        }
        Ok(Some(function))
    }

    fn aggregate(
        &mut self,
        function: Function,
        parts: &Parts<'_>,
        scope: Scope,
        depth: usize,
    ) -> Result<Expression, Error> {
        self.outside_of_rows(parts, scope)?;
        let at = self.at();
        let filter = match parts.filter {
            Some(filter) => self.condition(filter, Scope::Row, depth)?,
            None => Condition::Always(true),
        };
        let argument = match parts.arguments.first().copied().flatten() {
            Some(argument) => self.expression(argument, Scope::Row, depth)?,
            // Every row counts, also one without a value.
            None if function == Function::Count => Expression::Number(1.0, None),
            None => {
                return Err(Error::Meaningless {
                    at,
                    what: format!("`{}` of `*`", parts.name),
                    hint: "only `count` takes `*`; the number of a row is `value`",
                });
            }
        };
        self.add(function, argument, filter)
    }

    fn outside_of_rows(&self, parts: &Parts<'_>, scope: Scope) -> Result<(), Error> {
        if scope == Scope::Output {
            return Ok(());
        }
        Err(self.meaningless(
            format!("`{}` inside an aggregate or predicate, which is about one row", parts.name),
            "aggregates stand side by side in the SELECT list, not inside each other",
        ))
    }

    /// Compiles a function that depends on the order of samples, over the whole window.
    fn of_window(&mut self, parts: &Parts<'_>, scope: Scope) -> Result<Expression, Error> {
        self.outside_of_rows(parts, scope)?;
        let function = match parts.name.as_str() {
            "ema" => match self.ema(parts)? {
                Ema { of_rate: false, fading: Fading::HalfLife(seconds) } => Function::Ema(seconds),
                Ema { of_rate: true, .. } => {
                    return Err(self.meaningless(
                        "`ema` of a rate in a window",
                        "`SELECT ema(rate(value), INTERVAL '10 s') FROM latest` needs no window",
                    ));
                }
                Ema { fading: Fading::Alpha(_), .. } => {
                    return Err(self.meaningless(
                        "`ema` with a share in a window",
                        "in `samples` it takes a half-life: `ema(value, INTERVAL '10 s')`",
                    ));
                }
            },
            name => {
                self.one_value(parts, "`rate(value)`, `first(value)`, `last(value)`")?;
                match name {
                    "first" => Function::First,
                    "last" => Function::Last,
                    _ => Function::Rate,
                }
            }
        };
        self.add(function, Expression::Leaf(Leaf::Value), Condition::Always(true))
    }

    /// Checks that `value` itself is the only argument.
    fn one_value(&self, parts: &Parts<'_>, hint: &'static str) -> Result<(), Error> {
        match parts.arguments.as_slice() {
            [Some(only)] if self.is_value(only) && parts.filter.is_none() => Ok(()),
            _ => Err(self.meaningless(
                format!("`{}` takes only `value` as its argument, and no filter", parts.name),
                hint,
            )),
        }
    }

    fn is_value(&self, expression: &Expr) -> bool {
        self.column_name(expression).is_some_and(|name| name == "value")
    }

    fn ema(&self, parts: &Parts<'_>) -> Result<Ema, Error> {
        const HINT: &str = "`ema(value, INTERVAL '30 s')` with a half-life, or `ema(value, 0.2)` with \
                            the share of each new value; `rate(value)` may stand for `value`";
        let wrong = || self.meaningless("wrong arguments of `ema`", HINT);
        let &[Some(of), Some(fading)] = parts.arguments.as_slice() else { return Err(wrong()) };
        let of_rate = match of {
            Expr::Function(call) => {
                let rate = self.parts(call)?;
                if rate.name != "rate" {
                    return Err(wrong());
                }
                self.one_value(&rate, HINT)?;
                true
            }
            _ if self.is_value(of) => false,
            _ => return Err(wrong()),
        };
        if parts.filter.is_some() {
            return Err(wrong());
        }
        let fading = match fading {
            Expr::Interval(interval) => {
                let half_life = literal::interval(interval).ok_or_else(|| self.bad_interval())?;
                Fading::HalfLife(half_life.as_secs_f64())
            }
            share => match literal::number(share).filter(|share| *share > 0.0 && *share <= 1.0) {
                Some(share) => Fading::Alpha(share),
                None => {
                    let what = "`ema` needs a half-life or a share from 0 to 1";
                    return Err(self.meaningless(what, HINT));
                }
            },
        };
        Ok(Ema { of_rate, fading })
    }
}
