//! The live view of a service: what `top` asks for, and the terminal that shows it each second.

use std::{
    io::{self, IsTerminal, Write, stdout},
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
    time::Duration,
};

use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{
        self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode,
    },
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::{
    args::{By, TopArgs},
    client::{Client, Failure},
    output, view,
};

/// The time between two looks at the service.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time until a key, or an answer of the service, is seen.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// An answer that is older is called so.
const OLD: Duration = Duration::from_secs(3);

/// Shows the service until the operator ends it, or once: if that is asked for, as JSON, and where no terminal shows it.
pub(crate) fn run(client: Client, args: TopArgs, json: bool) -> Result<(), Failure> {
    if !args.once && !json && stdout().is_terminal() {
        return live(client, args);
    }
    let view = read(&client, &args)?;
    let text = if json { output::json(&view) } else { view::text(&view, args.by) };
    output::print(&text).map_err(Failure::of_output)
}

/// Asks the service for all that the view shows.
fn read(client: &Client, args: &TopArgs) -> Result<Value, Failure> {
    let order = match args.by {
        By::Denied => "denied",
        By::Spent => "spent",
    };
    let mut of_policy = String::new();
    let mut policies = client.get("policies")?;
    let mut fleet = client.get("fleet")?;
    if let Some(policy) = &args.policy {
        of_policy = format!("&policy={}", utf8_percent_encode(policy, NON_ALPHANUMERIC));
        for (rows, name) in [(Some(&mut policies), "name"), (fleet.get_mut("policies"), "policy")] {
            if let Some(rows) = rows.and_then(Value::as_array_mut) {
                rows.retain(|row| row[name] == **policy);
            }
        }
    }
    let offenders = client.get(&format!("offenders?by={order}{of_policy}"))?;
    let status = client.get("status")?;
    Ok(json!({
        "status": status, "fleet": fleet, "policies": policies, "offenders": offenders,
    }))
}

/// The terminal while the view is on it. It is as before when this is dropped.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Writes as many lines as there is room for.
    fn show(&self, text: &str) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let mut out = stdout().lock();
        let lines: Vec<_> = text.lines().collect();
        let room = usize::from(rows.max(1));
        queue!(out, MoveTo(0, 0))?;
        for (row, line) in lines.iter().take(room).enumerate() {
            let is_last = row + 1 == room && lines.len() > room;
            let more = format!(".. {} more lines", lines.len() - row);
            let line: String =
                if is_last { &more } else { *line }.chars().take(columns.into()).collect();
            queue!(out, MoveTo(0, row as u16), Print(line), Clear(ClearType::UntilNewLine))?;
        }
        if lines.len() < room {
            queue!(out, MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Shows the service each second, until the operator ends it.
fn live(client: Client, args: TopArgs) -> Result<(), Failure> {
    let by = args.by;
    let (sender, answers) = mpsc::channel();
    let screen = Screen::open().map_err(Failure::of_output)?;
    // It ends with the program, or when the view has ended. Keys are seen while it waits for the service.
    thread::spawn(move || ask(&client, &args, &sender));
    let shown = show(&screen, &answers, by);
    drop(screen);
    shown.map_err(Failure::of_output)
}

/// Asks the service each second, until no view takes its answers.
fn ask(client: &Client, args: &TopArgs, answers: &Sender<Result<Value, Failure>>) {
    while answers.send(read(client, args)).is_ok() {
        thread::sleep(INTERVAL);
    }
}

fn show(screen: &Screen, answers: &Receiver<Result<Value, Failure>>, by: By) -> io::Result<()> {
    let clock = SystemClock::new();
    let mut body = String::new();
    let mut error = None;
    let mut answered = now(&clock);
    loop {
        match answers.try_recv() {
            Ok(Ok(view)) => {
                body = view::text(&view, by);
                error = None;
                answered = now(&clock);
            }
            Ok(Err(failure)) => error = Some(failure.to_string()),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        let since = now(&clock).saturating_sub(answered);
        let mut head =
            format!("plimsoll top, the last answer {} s ago; q ends it", since.as_secs());
        if let Some(error) = &error {
            head = format!(
                "NO ANSWER for {} s: {}; q ends it",
                since.as_secs(),
                error.replace('\n', ", ")
            );
        } else if since < OLD {
            head = "plimsoll top, each second; q ends it".to_owned();
        }
        screen.show(&format!("{head}\n\n{body}"))?;
        if event::poll(POLL_INTERVAL)? && ends(&event::read()?) {
            return Ok(());
        }
    }
}

fn now(clock: &SystemClock) -> Duration {
    Duration::from_micros(clock.now().as_micros())
}

/// Returns whether this is the key `q`, escape or ctrl-c.
fn ends(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return false };
    let is_control = modifiers.contains(KeyModifiers::CONTROL);
    let is_end = match code {
        KeyCode::Char('c') => is_control,
        KeyCode::Char('q') | KeyCode::Esc => true,
        _ => false,
    };
    is_end && *kind != KeyEventKind::Release
}
