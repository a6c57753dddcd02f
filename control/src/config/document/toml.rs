//! TOML as a tree of values.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Mistake, Node, node::Value};

pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let table = DeTable::parse(text)
        .map_err(|error| Mistake::new(error.message()).at(error.span().unwrap_or_default()))?;
    let span = table.span();
    Ok(Node::new(fields(table.into_inner(), 1)?, span))
}

fn fields(table: DeTable<'_>, depth: usize) -> Result<Value, Mistake> {
    let mut fields: Vec<(Node, Node)> = Vec::new();
    for (name, value) in table {
        let span = name.span();
        let name = Node::new(Value::Text(name.into_inner().into_owned()), span);
        fields.push((name, node(value, depth)?));
    }
    // The parser sorts by name.
    fields.sort_by_key(|(name, _)| name.span.start);
    Ok(Value::Table(fields))
}

fn node(value: Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Mistake> {
    let span = value.span();
    if depth > Node::MAX_DEPTH {
        return Err(Mistake::too_deep().at(span));
    }
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(digits) => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix());
            Value::Integer(
                number.map_err(|_| Mistake::new("the number is too large").at(span.clone()))?,
            )
        }
        DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(items) => {
            let items: Result<_, _> = items.into_iter().map(|it| node(it, depth + 1)).collect();
            Value::List(items?)
        }
        DeValue::Table(table) => fields(table, depth + 1)?,
    };
    Ok(Node::new(value, span))
}
