//! The form of a route, and the route that a text of another form means.

use http::{Method, uri::PathAndQuery};

use crate::error::{Error, ErrorKind};

/// Words that other routers use for every method. As methods, no client sends them.
const EVERY_METHOD: [&str; 3] = ["ANY", "ALL", "*"];

/// Returns the method of a route, if it names one, and the path.
///
/// # Errors
///
/// Returns an error if the text would match no request. It says what is allowed, and which route is probably
/// meant.
pub(super) fn parse(text: &str) -> Result<(Option<Method>, &str), Error> {
    read(text).map_err(|allowed| {
        let meant = meant(text).filter(|meant| meant != text && read(meant).is_ok());
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean {meant:?}?)"));
        let message = format!("the route is {text:?}{meant}, allowed is {allowed}");
        Error::new(ErrorKind::Invalid, message)
    })
}

/// Reads a route. The error says what is allowed.
fn read(text: &str) -> Result<(Option<Method>, &str), &'static str> {
    let (method, path) = match text.split_once(' ') {
        None => (None, text),
        Some((method, _)) if EVERY_METHOD.contains(&method) => {
            return Err("a route without a method, which matches every method");
        }
        Some((method, path)) => {
            let is_upper = method
                .bytes()
                .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'-');
            let method = method.parse().ok().filter(|_| is_upper);
            (
                Some(method.ok_or("\"/path\", or \"METHOD /path\" with the method in upper case")?),
                path,
            )
        }
    };
    if !path.starts_with('/') {
        return Err("\"/path\" or \"METHOD /path\"");
    }
    if path.contains(['?', '#']) {
        return Err("a path without a query");
    }
    if path.parse::<PathAndQuery>().is_err() {
        return Err("a path of characters that a client may send");
    }
    if path.split('/').any(|segment| segment.starts_with([':', '*'])) {
        return Err("a parameter in braces, \"{name}\", or \"{*name}\" for the rest of the path");
    }
    read_parameters(path)?;
    Ok((method, path))
}

/// Checks the parameters of a path as the router of axum does.
#[cfg(feature = "axum")]
fn read_parameters(path: &str) -> Result<(), &'static str> {
    use matchit::InsertError::{InvalidCatchAll, InvalidParamSegment};

    matchit::Router::new().insert(path, ()).map_err(|error| match error {
        InvalidCatchAll => "\"{*name}\" at the end of the path",
        InvalidParamSegment => "one parameter in a segment, at its end",
        _ => "a parameter with a name in braces, \"{name}\"",
    })
}

/// Refuses parameters: without the feature `axum`, no route is known.
#[cfg(not(feature = "axum"))]
fn read_parameters(path: &str) -> Result<(), &'static str> {
    let has_parameter = path.contains(['{', '}']);
    if has_parameter {
        Err("a path without a parameter, unless the feature `axum` is on")
    } else {
        Ok(())
    }
}

/// Returns the route that a text of another form may mean.
fn meant(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let (method, path) = match (words.next(), words.next(), words.next()) {
        (Some(path), None, _) => (None, path),
        (Some(method), Some(path), None) => (Some(method.to_ascii_uppercase()), path),
        _ => return None,
    };
    // The rest of an address after its host.
    let target = path
        .split_once("://")
        .map_or(path, |(_, rest)| rest.split_at(rest.find('/').unwrap_or(rest.len())).1);
    let path = target.split(['?', '#']).next().unwrap_or_default().trim_start_matches('/');
    let last = path.split('/').count() - 1;
    let segments: Vec<_> = path
        .split('/')
        .enumerate()
        .map(|(at, segment)| meant_segment(segment, at == last))
        .collect();
    let meant = format!("/{}", segments.join("/"));
    Some(match method.filter(|method| !EVERY_METHOD.contains(&&**method)) {
        Some(method) => format!("{method} {meant}"),
        None => meant,
    })
}

/// Returns the segment that another form of a parameter may mean.
fn meant_segment(segment: &str, is_last: bool) -> String {
    if let Some(name) = segment.strip_prefix('*') {
        let name = match name.trim_start_matches('*') {
            "" => "rest",
            name => name,
        };
        return if is_last { format!("{{*{name}}}") } else { format!("{{{name}}}") };
    }
    let in_brackets = segment.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
    let in_braces = segment.strip_prefix('{').map(|name| name.strip_suffix('}').unwrap_or(name));
    match segment.strip_prefix(':').or(in_brackets).or(in_braces) {
        Some("") => "{name}".to_owned(),
        Some(name) => format!("{{{name}}}"),
        None => segment.to_owned(),
    }
}
