//! The deserializer of the tree. It adds the place of the value to each error.

use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, VariantAccess,
        Visitor, value::UsizeDeserializer,
    },
};

use super::{Mistake, Node, at::AT, node::Value};

/// The message for a number such as `010`.
const PADDED: &str = "found a number that begins with 0, which YAML 1.1 reads as octal: write it in decimal, \
                      without the 0";

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_i128(*number),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Padded(number) => visitor
                .visit_f64(*number)
                .map_err(|mistake| Mistake { message: PADDED.into(), ..mistake }),
            Value::Text(text) | Value::Word(text, _) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, index: 0 }),
            Value::Table(fields) => visitor.visit_map(Fields { fields, value: None }),
            Value::Other(kind) => Err(Mistake::invalid_type(Unexpected::Other(kind), &visitor)),
        };
        read.map_err(|mistake| self.blame(mistake))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Word(_, value) => visitor.visit_bool(value).map_err(|it| self.blame(it)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self).map_err(|mistake| self.blame(mistake))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = match (name, &self.value) {
            (AT, _) => return visitor.visit_seq(Place { node: self, given: 0 }),
            // Otherwise the items would be the fields, in the order of the code.
            (_, Value::List(_)) => Err(Mistake::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        };
        read.map_err(|mistake| self.blame(mistake.of_table(fields, self.names())))
    }

    /// Reads an enum: the name of a variant, or a table of one field: the name and the value.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Text(_) | Value::Word(..) => {
                visitor.visit_enum(Variant { name: self, value: None })
            }
            Value::Table(fields) => match &fields[..] {
                // The mistake was found before.
                [(name, value)] if name.is_wrong() || value.is_wrong() => {
                    Err(Mistake { is_known: true, ..Mistake::default() })
                }
                [(name, value)] => visitor.visit_enum(Variant { name, value: Some(value) }),
                _ => {
                    let found = format!("found a table of {} fields", fields.len());
                    Err(Mistake::new(found).allowed("one field"))
                }
            },
            _ => self.deserialize_any(visitor).map_err(|mistake| mistake.of_names(names)),
        };
        read.map_err(|mistake| self.blame(mistake))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'de> {
    items: &'de [Node],
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        while let Some(item) = self.items.get(self.index) {
            let index = self.index;
            self.index += 1;
            if !item.is_wrong() {
                let read = seed.deserialize(item).map(Some);
                return read.map_err(|mistake| item.blame(mistake).inside(&format!("[{index}]")));
            }
        }
        Ok(None)
    }
}

struct Fields<'de> {
    fields: &'de [(Node, Node)],
    /// The name that was read last, and its value.
    value: Option<&'de (Node, Node)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        while let Some((field, rest)) = self.fields.split_first() {
            (self.fields, self.value) = (rest, Some(field));
            let (name, value) = field;
            if !name.is_wrong() && !value.is_wrong() {
                let read = seed.deserialize(name).map(Some).map_err(|mistake| name.blame(mistake));
                // The start of the line may belong to the value before it, whatever that is.
                return read.map_err(|it| if name.text().is_some() { it } else { it.secret() });
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let Some((name, value)) = self.value.take() else {
            return Err(Mistake::new("a value without a name"));
        };
        let read = seed.deserialize(value);
        read.map_err(|mistake| value.blame(mistake).inside(name.text().unwrap_or_default()))
    }
}

struct Variant<'de> {
    name: &'de Node,
    value: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Mistake> {
        Ok((seed.deserialize(self.name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        match self.value {
            None => Ok(()),
            Some(value) => Err(Mistake::new("found a value behind the name")
                .allowed("the name alone, as a text")
                .at(value.span.clone())),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Mistake> {
        match (self.value, self.name.text()) {
            (Some(value), name) => {
                let read = seed.deserialize(value);
                read.map_err(|mistake| value.blame(mistake).inside(name.unwrap_or_default()))
            }
            (None, Some(name)) => {
                let found = format!("found the name `{name}` alone");
                let allowed = format!("a table of the name and a value: {name} = ..");
                Err(Mistake::new(found).allowed(allowed).at(self.name.span.clone()))
            }
            (None, None) => Err(Mistake::new("a variant without a name")),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        self.struct_variant(&[], visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.value.unwrap_or(self.name).deserialize_any(visitor)
    }
}

/// The parts of an [`At`](super::At).
struct Place<'de> {
    node: &'de Node,
    given: usize,
}

impl<'de> SeqAccess<'de> for Place<'de> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        self.given += 1;
        match self.given {
            1 => seed.deserialize(UsizeDeserializer::new(self.node.span.start)).map(Some),
            2 => seed.deserialize(UsizeDeserializer::new(self.node.span.end)).map(Some),
            3 => seed.deserialize(self.node).map(Some),
            _ => Ok(None),
        }
    }
}
