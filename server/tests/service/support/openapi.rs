//! The OpenAPI document, against which each answer is checked.

use std::{collections::HashMap, sync::LazyLock};

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::Value;

use super::Reply;

/// The document, and its compiled schemas by their pointers.
struct Document {
    json: Value,
    schemas: Schemas,
    compiled: HashMap<String, SchemaIndex>,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let json: Value = serde_json::from_str(plimsoll_server::http::DOCUMENT).expect("JSON");
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.set_default_draft(Draft::V2020_12);
    compiler.enable_format_assertions();
    compiler.add_resource("file:///openapi.json", json.clone()).expect("a document");
    let mut compiled = HashMap::new();
    let mut compile = |pointer: String| {
        let location = format!("file:///openapi.json#{pointer}");
        let index = compiler.compile(&location, &mut schemas);
        compiled
            .insert(pointer.clone(), index.unwrap_or_else(|error| panic!("{pointer}: {error:#}")));
    };
    for pointer in pointers_of_schemas(&json) {
        compile(pointer);
    }
    Document { json, schemas, compiled }
});

/// Returns the pointers of the schemas of all bodies.
fn pointers_of_schemas(json: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut walk = vec![(String::new(), json)];
    while let Some((pointer, value)) = walk.pop() {
        let Some(fields) = value.as_object() else { continue };
        for (name, value) in fields {
            let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            if name == "schema" {
                found.push(pointer);
            } else {
                walk.push((pointer, value));
            }
        }
    }
    found
}

/// Follows a reference to another part of the document. Returns the part, and its pointer.
fn follow(pointer: String) -> (&'static Value, String) {
    let value = DOCUMENT.json.pointer(&pointer).unwrap_or_else(|| panic!("there is no {pointer}"));
    match value["$ref"].as_str() {
        Some(reference) => follow(reference.trim_start_matches('#').to_owned()),
        None => (value, pointer),
    }
}

/// Asserts that the document describes a response: its path, method, status, type, headers and body.
pub(crate) fn assert_described(method: &str, path: &str, reply: &Reply) {
    let path = path.split('?').next().expect("a path");
    let text = reply.text();
    let escaped = path.replace('~', "~0").replace('/', "~1");
    let of_path = format!("/paths/{escaped}");
    let described = DOCUMENT.json.pointer(&of_path).map(|it| it.get(method.to_ascii_lowercase()));
    let (response, pointer) = match described {
        // An unknown path or method has a problem document too.
        None | Some(None) => {
            let expected = if described.is_none() { 404 } else { 405 };
            assert_eq!(reply.status, expected, "{method} {path}: {text}");
            follow("/components/responses/Problem".to_owned())
        }
        Some(Some(_)) => {
            let method = method.to_ascii_lowercase();
            follow(format!("{of_path}/{method}/responses/{}", reply.status))
        }
    };
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let value = reply.header(&name.to_ascii_lowercase());
        assert!(header["required"] != true || value.is_some(), "{path}: no header {name}");
    }
    let content_type = reply.header("content-type").unwrap_or_default();
    let content_type = content_type.split(';').next().expect("a part");
    let pointer = format!("{pointer}/content/{}/schema", content_type.replace('/', "~1"));
    let index = DOCUMENT.compiled.get(&pointer);
    let index = *index.unwrap_or_else(|| panic!("{method} {path}: no {pointer}: {text}"));
    let body = match content_type {
        "text/plain" => Value::String(text.clone()),
        _ => reply.json(),
    };
    if let Err(error) = DOCUMENT.schemas.validate(&body, index) {
        panic!("{method} {path} {}: {error:#}\n{text}", reply.status);
    }
}

/// Asserts that the document describes the bodies of its own examples.
pub(crate) fn requests_are_described() {
    let paths = DOCUMENT.json["paths"].as_object().expect("paths");
    for (path, methods) in paths {
        let Some(content) = methods.pointer("/post/requestBody/content/application~1json") else {
            continue;
        };
        let escaped = path.replace('/', "~1");
        let pointer = format!("/paths/{escaped}/post/requestBody/content/application~1json/schema");
        let index = DOCUMENT.compiled[&pointer];
        let valid = DOCUMENT.schemas.validate(&content["example"], index);
        assert!(valid.is_ok(), "{path}: {:#}", valid.expect_err("invalid"));
    }
}
