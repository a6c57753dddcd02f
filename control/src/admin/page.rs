//! The files of the page.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

/// A file of the page, which is compiled into the program.
#[derive(Debug)]
pub(super) struct File {
    /// The path, relative to the path of the page.
    pub(super) path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All files of the page.
pub(super) static FILES: [File; 13] = [
    File {
        path: "/",
        media_type: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    File {
        path: "/page.css",
        media_type: "text/css; charset=utf-8",
        text: include_str!("page/page.css"),
    },
    File { path: "/icon.svg", media_type: "image/svg+xml", text: include_str!("page/icon.svg") },
    File { path: "/main.js", media_type: SCRIPT, text: include_str!("page/main.js") },
    File { path: "/api.js", media_type: SCRIPT, text: include_str!("page/api.js") },
    File { path: "/dom.js", media_type: SCRIPT, text: include_str!("page/dom.js") },
    File { path: "/changes.js", media_type: SCRIPT, text: include_str!("page/changes.js") },
    File { path: "/charts.js", media_type: SCRIPT, text: include_str!("page/charts.js") },
    File { path: "/policies.js", media_type: SCRIPT, text: include_str!("page/policies.js") },
    File { path: "/hits.js", media_type: SCRIPT, text: include_str!("page/hits.js") },
    File { path: "/keys.js", media_type: SCRIPT, text: include_str!("page/keys.js") },
    File { path: "/tables.js", media_type: SCRIPT, text: include_str!("page/tables.js") },
    File { path: "/store.js", media_type: SCRIPT, text: include_str!("page/store.js") },
];

impl File {
    pub(super) fn response(&self) -> Response {
        ([(CONTENT_TYPE, self.media_type)], self.text).into_response()
    }
}
