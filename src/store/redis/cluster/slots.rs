//! What `CLUSTER SLOTS` says: which node has which slots.

use redis::{ErrorKind, RedisError, Value, from_redis_value};

pub(in crate::store::redis) const SLOTS: usize = 16_384;

/// Slots in a row, and the primary that has them.
#[derive(Debug, PartialEq)]
pub(in crate::store::redis) struct Range {
    pub(in crate::store::redis) first: usize,
    pub(in crate::store::redis) last: usize,
    pub(in crate::store::redis) host: String,
    pub(in crate::store::redis) port: u16,
}

/// Whether this has the form of an answer.
pub(in crate::store::redis) fn is_answer(value: &Value) -> bool {
    let is_list = |value: &Value| matches!(value, Value::Array(_));
    matches!(value, Value::Array(ranges) if ranges.iter().all(is_list))
}

/// Reads the answer of the node at a host.
pub(in crate::store::redis) fn read(
    value: Value,
    answering: &str,
) -> Result<Vec<Range>, RedisError> {
    let ranges: Vec<Vec<Value>> = from_redis_value(value)?;
    ranges.into_iter().filter_map(|range| read_range(range, answering).transpose()).collect()
}

fn read_range(range: Vec<Value>, answering: &str) -> Result<Option<Range>, RedisError> {
    let [first, last, primary, ..] = &range[..] else { return Ok(None) };
    let first: usize = from_redis_value(first.clone())?;
    let last: usize = from_redis_value(last.clone())?;
    if first > last || last >= SLOTS {
        return Err((ErrorKind::Parse, "a range of slots is not valid").into());
    }
    let primary: Vec<Value> = from_redis_value(primary.clone())?;
    let [host, port, ..] = &primary[..] else { return Ok(None) };
    let host: Option<String> = from_redis_value(host.clone())?;
    let port: u16 = from_redis_value(port.clone())?;
    let host = host_of(host.as_deref().unwrap_or_default(), answering);
    Ok(host.map(|host| Range { first, last, host: host.to_owned(), port }))
}

/// Where a node is that another redirects to, as `host:port`.
pub(in crate::store::redis) fn read_address(
    address: &str,
    answering: &str,
) -> Result<Option<(String, u16)>, RedisError> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let port = port.parse().map_err(|_| {
        RedisError::from((ErrorKind::Parse, "a cluster node's address is not valid"))
    })?;
    Ok(host_of(host, answering).map(|host| (host.to_owned(), port)))
}

/// A node may leave out where another is, which means where it is itself; or not know it.
fn host_of<'a>(host: &'a str, answering: &'a str) -> Option<&'a str> {
    match host {
        "?" => None,
        "" => Some(answering).filter(|host| !host.is_empty()),
        host => Some(host.trim_matches(['[', ']'])),
    }
}

/// How many slots have an owner.
pub(in crate::store::redis) fn covered(ranges: &[Range]) -> usize {
    let mut has_owner = vec![false; SLOTS];
    for range in ranges {
        has_owner[range.first..=range.last].fill(true);
    }
    has_owner.into_iter().filter(|has| *has).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary])
    }

    #[test]
    fn a_host_that_is_left_out_is_that_of_the_node_that_answered() {
        let hosts = [text("10.0.0.1"), text(""), Value::Nil, text("?")];
        let answer = hosts.into_iter().zip(0..).map(|(host, at)| range(at, at, host, 6_379));
        let ranges = read(Value::Array(answer.collect()), "here").expect("valid");
        let hosts: Vec<_> = ranges.iter().map(|range| &*range.host).collect();
        assert_eq!(hosts, ["10.0.0.1", "here", "here"]);
        assert_eq!(covered(&ranges), 3);

        let address = |address| read_address(address, "here").expect("valid");
        assert_eq!(address("10.0.0.1:6381"), Some(("10.0.0.1".into(), 6_381)));
        assert_eq!(address(":6381"), Some(("here".into(), 6_381)));
        assert_eq!(address("::1:6381"), Some(("::1".into(), 6_381)));
        assert_eq!(address("?:6381"), None);
        assert!(read_address("nowhere", "here").is_err());
    }

    #[test]
    fn a_map_has_a_form() {
        let map = vec![range(0, 99, text("a"), 1), range(100, 16_383, text("b"), 1)];
        assert!(is_answer(&Value::Array(map)));
        assert!(is_answer(&Value::Array(Vec::new())));
        for other in [Value::Okay, Value::Nil, text("a"), Value::Array(vec![Value::Int(7)])] {
            assert!(!is_answer(&other), "{other:?}");
        }
    }

    #[test]
    fn a_map_is_complete_or_not() {
        let all = read(
            Value::Array(vec![range(0, 99, text("a"), 1), range(100, 16_383, text("b"), 1)]),
            "here",
        );
        assert_eq!(covered(&all.expect("valid")), SLOTS);
        let none = read(Value::Array(Vec::new()), "here").expect("valid");
        assert_eq!(covered(&none), 0);
        assert!(read(Value::Array(vec![range(0, 16_384, text("a"), 1)]), "here").is_err());
        assert!(read(Value::Array(vec![range(9, 8, text("a"), 1)]), "here").is_err());
    }
}
