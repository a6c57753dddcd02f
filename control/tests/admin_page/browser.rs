//! A headless Chromium, driven by WebDriver.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The time after which what should happen counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time of one script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(120);

/// A browser with one tab. It is closed when it is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

/// Keys without a letter, as WebDriver numbers them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
const CONTROL: &str = "\u{e009}";

impl Browser {
    pub(crate) fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver is installed: it is in Debian's package chromium-driver");
        let lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| {
                line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
            })
            .expect("the driver says its port");
        let mut browser = Self { driver, port, session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            // axe-core takes long on a busy machine.
            "timeouts": { "script": SCRIPT_TIMEOUT.as_millis() as u64 },
        }}});
        let session = browser.send("POST", "/session", &capabilities).expect("Chromium starts");
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("url", json!({ "url": url }));
    }

    /// Runs a function body in the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({ "script": script, "args": [] }))
    }

    /// Runs a script that calls its last argument with the result.
    pub(crate) fn run_until_called(&self, script: &str) -> Value {
        self.command("execute/async", json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait(&self, expression: &str) {
        let start = now();
        while self.run(&format!("return Boolean({expression})")) != true {
            if start.elapsed() > PATIENCE {
                let text = self.run("return document.body.innerText");
                panic!(
                    "{expression} does not come true in:\n{}",
                    text.as_str().unwrap_or_default()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until an element contains a text.
    pub(crate) fn wait_for_text(&self, id: &str, text: &str) {
        let (id, text) = (json!(id), json!(text));
        self.wait(&format!("document.getElementById({id}).textContent.includes({text})"));
    }

    /// Types on the keyboard, to the element that has the focus.
    pub(crate) fn type_keys(&self, keys: &str) {
        let strokes: Vec<_> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        self.keyboard(&strokes);
    }

    /// Types a text instead of the one in the field that has the focus.
    pub(crate) fn replace_text(&self, text: &str) {
        self.keyboard(&[
            json!({ "type": "keyDown", "value": CONTROL }),
            json!({ "type": "keyDown", "value": "a" }),
            json!({ "type": "keyUp", "value": "a" }),
            json!({ "type": "keyUp", "value": CONTROL }),
        ]);
        self.type_keys(text);
    }

    fn keyboard(&self, strokes: &[Value]) {
        let actions =
            json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        self.command("actions", actions);
    }

    /// Presses the tabulator until an element that matches the selector has the focus.
    pub(crate) fn tab_to(&self, selector: &str) {
        let matches = format!("return document.activeElement.matches({})", json!(selector));
        for _ in 0..300 {
            if self.run(&matches) == true {
                return;
            }
            self.type_keys(TAB);
        }
        panic!("the keyboard does not reach {selector}");
    }

    /// Sets the size of the screen, and the colours that the reader prefers.
    pub(crate) fn show_as(&self, width: u32, height: u32, scheme: &str) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Returns a picture of the whole page, as PNG in Base64.
    pub(crate) fn picture(&self) -> String {
        let picture = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.devtools("Page.captureScreenshot", picture);
        picture["data"].as_str().expect("a picture").to_owned()
    }

    /// Returns the errors and warnings that the page has written to the console since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", json!({ "type": "browser" }));
        let entries = log.as_array().expect("a list").iter();
        entries
            .filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING")
            .map(|entry| entry["message"].to_string())
            .collect()
    }

    fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({ "cmd": command, "params": parameters }))
    }

    fn command(&self, path: &str, body: Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        self.send("POST", &path, &body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a command, and returns the value of the answer or the error in it.
    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.port)).map_err(|it| it.to_string())?;
        stream.set_read_timeout(Some(SCRIPT_TIMEOUT + PATIENCE)).map_err(|it| it.to_string())?;
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:{}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(|it| it.to_string())?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).map_err(|it| it.to_string())?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(|_| format!("the header {line}"))?;
            }
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).map_err(|it| it.to_string())?;
        let mut answer: Value = serde_json::from_slice(&text).map_err(|it| it.to_string())?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.send("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a browser takes its own time")]
fn now() -> Instant {
    Instant::now()
}
