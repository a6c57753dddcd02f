#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/guide.md")]

/// Declares an empty module for each page in `docs/guide`, with the page as its documentation.
macro_rules! pages {
    ($($page:ident)*) => { $(
        #[doc = include_str!("../docs/links.md")]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($page), ".md"))]
        pub mod $page {}
    )* };
}

pages! { algorithms keys proxies rules lookups costs blocking responses browsers streams grpc clients regions testing glossary }
