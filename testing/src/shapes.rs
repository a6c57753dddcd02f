//! Documents whose values have wrong types, and the words of the messages about them.

use serde_json::{Map, Value, json};

/// A value of a document that is replaced by another one, or a field that is added.
#[derive(Debug, Clone)]
pub struct Wrong {
    /// The JSON pointer of the value.
    pub pointer: String,
    value: Value,
}

/// Returns the document with each of its values replaced by one of each type, and with an unknown field in each
/// table.
pub fn wrong_shapes(document: &Value) -> Vec<Wrong> {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e30),
        json!(u64::MAX),
        json!("?"),
        json!([]),
        json!([[1]]),
        json!({}),
        json!({ "zzz": 1 }),
    ];
    let mut wrong = Vec::new();
    for pointer in pointers(document) {
        let other = values.iter().filter(|value| document.pointer(&pointer) != Some(*value));
        wrong.extend(other.map(|value| Wrong { pointer: pointer.clone(), value: value.clone() }));
        if document.pointer(&pointer).is_some_and(Value::is_object) {
            let unknown = format!("{pointer}/zzz-unknown");
            wrong.push(Wrong { pointer: unknown, value: json!(1) });
        }
    }
    wrong.retain(|wrong| !wrong.pointer.is_empty());
    wrong
}

impl Wrong {
    /// Returns the document with this value.
    pub fn in_document(&self, document: &Value) -> Value {
        let mut document = document.clone();
        let (parent, name) = self.pointer.rsplit_once('/').expect("a pointer");
        match document.pointer_mut(parent).expect("a table or a list") {
            Value::Object(fields) => drop(fields.insert(unescaped(name), self.value.clone())),
            Value::Array(items) => {
                items[name.parse::<usize>().expect("an index")] = self.value.clone();
            }
            _ => unreachable!("only tables and lists have values in them"),
        }
        document
    }

    /// Returns whether neither value is inside of the other one.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let (one, other) = (format!("{}/", self.pointer), format!("{}/", other.pointer));
        !one.starts_with(&other) && !other.starts_with(&one)
    }
}

/// Returns the pointers of all values of a document.
fn pointers(document: &Value) -> Vec<String> {
    let none = Map::new();
    let fields = document.as_object().unwrap_or(&none).iter();
    let fields = fields.map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value));
    let items = document.as_array().into_iter().flatten().enumerate();
    let items = items.map(|(index, value)| (index.to_string(), value));
    let inside = fields.chain(items).flat_map(|(name, value)| {
        pointers(value).into_iter().map(move |pointer| format!("/{name}{pointer}"))
    });
    [String::new()].into_iter().chain(inside).collect()
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

/// Returns a word of a message that only programmers in Rust know.
pub fn word_of_rust(message: &str) -> Option<&str> {
    const WORDS: [&str; 31] = [
        "struct",
        "enum",
        "tuple",
        "variant",
        "untagged",
        "newtype",
        "identifier",
        "Option",
        "None",
        "Some",
        "map",
        "seq",
        "sequence",
        "str",
        "string",
        "boolean",
        "integer",
        "nonzero",
        "u8",
        "u16",
        "u32",
        "u64",
        "usize",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "f64",
        "expected",
        "serde",
    ];
    let is_camel = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(char::is_uppercase)
            && letters.clone().any(char::is_lowercase)
            && letters.any(char::is_uppercase)
    };
    let mut words = message.split(|it: char| !it.is_alphanumeric() && it != '_');
    words.find(|word| WORDS.contains(word) || is_camel(word))
}
