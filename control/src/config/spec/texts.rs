//! Texts of a certain form.

use std::{fmt, marker::PhantomData, time::Duration};

use http::HeaderName;
use plimsoll::route;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// A type that is written as a text.
pub(in crate::config) trait Text: Sized {
    /// The allowed texts, for errors.
    const ALLOWED: &str;

    /// Returns the value of a text, or `None` if the text is not allowed.
    fn parse(text: &str) -> Option<Self>;

    /// Returns what is wrong with a text that is not allowed, if more is known than the allowed texts.
    fn mistake(_: &str) -> Option<String> {
        None
    }
}

/// A route: `/path`, or `METHOD /path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct Route(pub(in crate::config) String);

/// The name of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct HeaderText(pub(in crate::config) HeaderName);

/// A duration from 1 ms to one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Time(Duration);

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl Route {
    /// Returns the method, if the route names one, and the path.
    pub(in crate::config) fn parts(&self) -> (Option<&str>, &str) {
        self.0.split_once(' ').map_or((None, &*self.0), |(method, path)| (Some(method), path))
    }
}

impl Text for Route {
    const ALLOWED: &str = "\"/path\", or \"METHOD /path\" with the method in upper case";

    /// Accepts what [`plimsoll::route::is`] accepts, which panics at other texts.
    fn parse(text: &str) -> Option<Self> {
        route::validate(text).is_ok().then(|| Self(text.to_owned()))
    }

    fn mistake(text: &str) -> Option<String> {
        route::validate(text).err().map(|error| error.to_string())
    }
}

/// Returns whether a text is a method as a [`Route`] names it.
pub(in crate::config) fn is_method(text: &str) -> bool {
    !text.contains(' ') && Route::parse(&format!("{text} /")).is_some()
}

impl Text for HeaderText {
    const ALLOWED: &str = "the name of a header: letters, digits and !#$%&'*+-.^_`|~";

    fn parse(text: &str) -> Option<Self> {
        HeaderName::from_bytes(text.as_bytes()).ok().map(Self)
    }
}

impl Text for Time {
    const ALLOWED: &str =
        "a time as a text, from \"1ms\" to \"1h\", such as \"50ms\", \"5s\" or \"2min\"";

    fn parse(text: &str) -> Option<Self> {
        let times = Duration::from_millis(1)..=Duration::from_secs(3_600);
        humantime::parse_duration(text).ok().filter(|time| times.contains(time)).map(Self)
    }
}

/// Reads a text.
fn read<'de, T: Text, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct TextVisitor<T>(PhantomData<T>);

    impl<T: Text> Visitor<'_> for TextVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::ALLOWED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::parse(text).ok_or_else(|| match T::mistake(text) {
                Some(mistake) => E::custom(mistake),
                None => E::invalid_value(Unexpected::Str(text), &T::ALLOWED),
            })
        }
    }

    from.deserialize_str(TextVisitor(PhantomData))
}

/// Implements the trait of serde for types that are written as texts.
macro_rules! texts {
    ($($type:ident),+) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read(from)
            }
        })+
    };
}

texts!(Route, HeaderText, Time);
