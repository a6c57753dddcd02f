//! The requests that count.

use std::{cmp::Ordering, fmt, str::FromStr};

use super::{
    super::Entry,
    ExpressionError,
    pattern::{Glob, Network},
    value::Value,
};

/// The requests that count: terms that must all hold, such as `path=/api/* status<500 method!=OPTIONS`.
///
/// `=` and `!=` compare with a text in which `*` stands for any characters, or with several of them: `method=GET|HEAD`.
/// For `ip` they compare with networks, and `status=5xx` is a class. `<`, `<=`, `>` and `>=` compare numbers. A value that a request lacks is unequal
/// to all texts, and is below and above no number. A text with spaces stands in quotes: `header:user-agent="a b"`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
}

/// A comparison.
#[derive(Debug, Clone)]
struct Term {
    value: Value,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    /// The value has, or has not, one of these forms.
    Text { forms: Vec<Glob>, expected: bool },
    /// The address is, or is not, in one of these networks.
    Network { networks: Vec<Network>, expected: bool },
    /// The number is on one side of another.
    Number { orderings: &'static [Ordering], other: u64 },
}

/// The operators. An operator that begins with another one stands before it.
const OPERATORS: &[(&str, Operator)] = &[
    ("!=", Operator::Equal(false)),
    ("<=", Operator::Number(&[Ordering::Less, Ordering::Equal])),
    (">=", Operator::Number(&[Ordering::Greater, Ordering::Equal])),
    ("=", Operator::Equal(true)),
    ("<", Operator::Number(&[Ordering::Less])),
    (">", Operator::Number(&[Ordering::Greater])),
];

#[derive(Debug, Clone, Copy)]
enum Operator {
    Equal(bool),
    Number(&'static [Ordering]),
}

impl Filter {
    /// Returns whether all terms hold for this request.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        self.terms.iter().all(|term| term.holds(entry))
    }
}

impl Term {
    fn holds(&self, entry: &Entry) -> bool {
        match &self.test {
            Test::Text { forms, expected } => {
                let text = self.value.text(entry);
                let is_one = text.is_some_and(|text| forms.iter().any(|it| it.matches(&text)));
                is_one == *expected
            }
            Test::Network { networks, expected } => {
                let ip = entry.ip();
                let is_in = ip.is_some_and(|ip| networks.iter().any(|it| it.contains(ip)));
                is_in == *expected
            }
            Test::Number { orderings, other } => {
                let number = self.value.number(entry);
                number.is_some_and(|number| orderings.contains(&number.cmp(other)))
            }
        }
    }

    /// Reads a term, whose text has no quotes any more.
    fn parse(term: &str) -> Result<Self, String> {
        let found = term.find(['!', '=', '<', '>']).and_then(|at| {
            let operators = OPERATORS.iter();
            let mut operators = operators.map(|(text, operator)| (at, *text, *operator));
            operators.find(|(_, text, _)| term[at..].starts_with(text))
        });
        let Some((at, text, operator)) = found else {
            return Err("it has no operator; allowed is =, !=, <, <=, > or >=".to_owned());
        };
        let value: Value =
            term[..at].parse().map_err(|error: ExpressionError| error.to_string())?;
        let other = &term[at + text.len()..];
        let test = match operator {
            Operator::Number(orderings) if value.is_number() => {
                let number = other.parse();
                let other = number.map_err(|_| format!("{other:?} is no whole number"))?;
                Test::Number { orderings, other }
            }
            Operator::Number(_) => {
                return Err(format!("{value} is no number; allowed is = or !="));
            }
            Operator::Equal(expected) if value == Value::Ip && other != "*" => {
                let networks = other.split('|').map(|text| {
                    let allowed = "an address or a network such as 203.0.113.0/24";
                    Network::parse(text).ok_or_else(|| format!("{text:?} is not {allowed}"))
                });
                Test::Network { networks: networks.collect::<Result<_, _>>()?, expected }
            }
            Operator::Equal(expected) if value == Value::Status => {
                let classes = other.replace('x', "*");
                Test::Text { forms: classes.split('|').map(Glob::new).collect(), expected }
            }
            Operator::Equal(expected) => {
                Test::Text { forms: other.split('|').map(Glob::new).collect(), expected }
            }
        };
        Ok(Self { value, test })
    }
}

impl FromStr for Filter {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut terms = Vec::new();
        for (at, term) in split(text)?.into_iter().enumerate() {
            let number = at + 1;
            terms.push(Term::parse(&term).map_err(|reason| {
                ExpressionError(format!("term {number} of the filter, {term:?}: {reason}"))
            })?);
        }
        if terms.is_empty() {
            let allowed = "terms such as path=/api/* status<500 method!=OPTIONS";
            return Err(ExpressionError(format!("the filter is empty; allowed is {allowed}")));
        }
        Ok(Self { text: text.to_owned(), terms })
    }
}

/// Splits a text at its spaces, but for the spaces in quotes. Removes the quotes.
fn split(text: &str) -> Result<Vec<String>, ExpressionError> {
    let mut terms = Vec::new();
    let mut term = String::new();
    let mut is_quoted = false;
    for it in text.chars() {
        match it {
            '"' => is_quoted = !is_quoted,
            _ if it.is_whitespace() && !is_quoted => {
                terms.push(std::mem::take(&mut term));
            }
            _ => term.push(it),
        }
    }
    if is_quoted {
        return Err(ExpressionError(format!("a quote of the filter {text:?} is not closed")));
    }
    terms.push(term);
    terms.retain(|term| !term.is_empty());
    Ok(terms)
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
