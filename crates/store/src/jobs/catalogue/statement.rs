//! A question as a statement of SQL, for every database.
//!
//! The text depends on the form of the question alone: every value is a parameter. So databases can keep its plan.

use super::filter::{Amount, Filter, FilterError, Visibility};
use super::page::{Cursor, Key, PageRequest, Sort};
use super::row::{COLUMNS, NEVER, NOT_ENDED, exit_name};
use super::words::Word;

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A number.
    Real(f64),
}

/// The parts of SQL in which databases differ. Each gets the text of parameters, and returns an expression over `job`.
pub trait Dialect {
    /// Returns the text of a parameter, counted from one.
    fn parameter(&self, number: usize) -> String;
    /// Returns a condition: the job has a node of this name.
    fn has_host(&self, name: &str) -> String;
    /// Returns a condition: the job has this tag.
    fn has_tag(&self, tag: &str) -> String;
    /// Returns a condition: the job has the words that [`words`](Self::words) makes a value of.
    fn has_words(&self, words: &str) -> String;
    /// Returns words in the form that the database asks for.
    fn words(&self, words: &mut dyn Iterator<Item = &Word>) -> String;
    /// Returns the number that the JSON of a column has under a name, or null.
    fn amount(&self, column: &str, name: &str) -> String;
    /// The table with `number` and the document `content`.
    fn documents(&self) -> &'static str;
}

/// A statement with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The text.
    pub sql: String,
    /// The parameters, in their order.
    pub values: Vec<Value>,
}

impl Statement {
    /// Counts the jobs that pass.
    ///
    /// # Errors
    /// The filter is out of bounds.
    pub fn count(filter: &Filter, dialect: &dyn Dialect) -> Result<Self, FilterError> {
        let mut builder = Builder { dialect, values: Vec::new(), conditions: Vec::new() };
        builder.filter(filter)?;
        let sql = format!("SELECT count(*) FROM job{}", builder.conditions());
        Ok(Self { sql, values: builder.values })
    }

    /// Selects the key, the number and the columns of rows.
    ///
    /// # Errors
    /// The question is out of bounds.
    pub fn rows(
        filter: &Filter,
        request: &PageRequest,
        dialect: &dyn Dialect,
    ) -> Result<Self, FilterError> {
        Self::page(filter, request, dialect, &format!(", {COLUMNS}")).map(|(page, _)| page)
    }

    /// Selects the key, the number and the document of entries.
    ///
    /// # Errors
    /// The question is out of bounds.
    pub fn entries(
        filter: &Filter,
        request: &PageRequest,
        dialect: &dyn Dialect,
    ) -> Result<Self, FilterError> {
        // The documents of a page alone are read, after it is sorted.
        let (page, direction) = Self::page(filter, request, dialect, "")?;
        let sql = format!(
            "SELECT page.key, page.number, document.content FROM ({}) AS page \
             JOIN {} AS document ON document.number = page.number \
             ORDER BY page.key {direction}, page.number {direction}",
            page.sql,
            dialect.documents()
        );
        Ok(Self { sql, values: page.values })
    }

    fn page(
        filter: &Filter,
        request: &PageRequest,
        dialect: &dyn Dialect,
        columns: &str,
    ) -> Result<(Self, &'static str), FilterError> {
        request.check()?;
        let mut builder = Builder { dialect, values: Vec::new(), conditions: Vec::new() };
        builder.filter(filter)?;
        let key = builder.key(request.order.sort);
        let (direction, follows) =
            if request.order.is_descending { ("DESC", "<") } else { ("ASC", ">") };
        if let Some(Cursor { key: after, number }) = request.after {
            let after = builder.parameter(match after {
                Key::Time(nanos) => Value::Integer(nanos),
                Key::Amount(amount) => Value::Real(amount),
            });
            let number = builder.parameter(Value::Integer(number));
            // The first condition alone is a range of the index.
            builder.conditions.push(format!("{key} {follows}= {after}"));
            builder.conditions.push(format!("({key}, number) {follows} ({after}, {number})"));
        }
        let limit = builder.parameter(Value::Integer(request.limit() as i64 + 1));
        let sql = format!(
            "SELECT {key} AS key, number{columns} FROM job{} \
             ORDER BY {key} {direction}, number {direction} LIMIT {limit}",
            builder.conditions()
        );
        Ok((Self { sql, values: builder.values }, direction))
    }
}

struct Builder<'d> {
    dialect: &'d dyn Dialect,
    values: Vec<Value>,
    conditions: Vec<String>,
}

impl Builder<'_> {
    fn parameter(&mut self, value: Value) -> String {
        self.values.push(value);
        self.dialect.parameter(self.values.len())
    }

    fn text(&mut self, text: &str) -> String {
        self.parameter(Value::Text(text.to_owned()))
    }

    fn conditions(&self) -> String {
        match self.conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.conditions.join(" AND ")),
        }
    }

    fn filter(&mut self, filter: &Filter) -> Result<(), FilterError> {
        filter.check()?;
        self.visibility(filter);
        for (column, text) in filter.texts() {
            let value = self.text(text);
            self.conditions.push(match column {
                "host" => self.dialect.has_host(&value),
                column => format!("{column} = {value}"),
            });
        }
        self.one_of("job", filter.ids.iter().map(String::as_str));
        if let Some(generation) = filter.generation {
            let value = self.parameter(Value::Integer(generation.into()));
            self.conditions.push(format!("generation = {value}"));
        }
        if let Some((from, to)) = filter.ran {
            // The least number means that the job never ran.
            let from = self.parameter(Value::Integer(from.as_nanos().max(NEVER + 1)));
            let to = self.parameter(Value::Integer(to.as_nanos()));
            self.conditions.push(format!("started <= {to} AND ended >= {from}"));
        }
        for (column, range) in [("started", filter.started), ("ended", filter.ended)] {
            if let Some((from, to)) = range {
                // The least and the greatest number mean an unknown time.
                let from = from.as_nanos().max(NEVER + 1);
                let from = self.parameter(Value::Integer(from));
                let to = self.parameter(Value::Integer(to.as_nanos().min(NOT_ENDED - 1)));
                self.conditions.push(format!("{column} BETWEEN {from} AND {to}"));
            }
        }
        self.one_of("state", filter.states.iter().map(|state| state.name()));
        self.one_of("exit", filter.exit_types.iter().map(|exit| exit_name(*exit)));
        for tag in &filter.tags {
            let value = self.text(tag);
            self.conditions.push(self.dialect.has_tag(&value));
        }
        for range in &filter.resources {
            let column = match range.amount {
                Amount::Used => "used",
                Amount::Requested => "requested",
            };
            let name = self.text(range.resource.name);
            let amount = self.dialect.amount(column, &name);
            let from = self.parameter(Value::Real(range.from));
            let to = self.parameter(Value::Real(range.to));
            self.conditions.push(format!("{amount} BETWEEN {from} AND {to}"));
        }
        let words = filter.words();
        if !words.is_empty() {
            let words = self.dialect.words(&mut words.iter());
            let value = self.text(&words);
            self.conditions.push(self.dialect.has_words(&value));
        }
        Ok(())
    }

    fn visibility(&mut self, filter: &Filter) {
        match &filter.visibility {
            Visibility::Everything => {}
            Visibility::Nothing => self.conditions.push("1 = 0".to_owned()),
            // The filter says the same as the policy, or more.
            Visibility::Own { user, .. } if filter.user.as_ref() == Some(user) => {}
            Visibility::Own { leads, .. }
                if filter.project.as_ref().is_some_and(|project| leads.contains(project)) => {}
            Visibility::Own { user, leads } => {
                let owner = self.text(user);
                let led: Vec<String> = leads.iter().map(|project| self.text(project)).collect();
                self.conditions.push(match led.is_empty() {
                    true => format!("owner = {owner}"),
                    false => format!("(owner = {owner} OR project IN ({}))", led.join(", ")),
                });
            }
        }
    }

    fn one_of<'t>(&mut self, column: &str, texts: impl Iterator<Item = &'t str>) {
        let values: Vec<String> = texts.map(|text| self.text(text)).collect();
        if !values.is_empty() {
            self.conditions.push(format!("{column} IN ({})", values.join(", ")));
        }
    }

    fn key(&mut self, sort: Sort) -> String {
        match sort {
            Sort::Started => "started".to_owned(),
            Sort::Ended => "ended".to_owned(),
            Sort::Used(resource) => {
                let name = self.text(resource.name);
                let unknown = self.parameter(Value::Real(f64::MIN));
                format!("coalesce({}, {unknown})", self.dialect.amount("used", &name))
            }
        }
    }
}
