//! The runs behind `docs/report.md`. `scripts/report` runs them, and writes the page, its tables and its
//! pictures. Each run prints lines of comma-separated values.

mod accuracy;
mod capacity;
mod load;
mod memory;
mod outage;
mod redis_info;

use std::process::ExitCode;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let run = std::env::args().nth(1).unwrap_or_default();
    match run.as_str() {
        "accuracy" => accuracy::print(),
        "memory" => memory::print().await,
        "costs" => capacity::costs::print().await,
        "shares" => capacity::shares::print().await,
        "points" => capacity::points::print().await,
        "outage" => outage::print().await,
        _ => {
            let allowed = "accuracy, memory, costs, shares, points and outage";
            eprintln!("{run:?} is no run; allowed are {allowed}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
