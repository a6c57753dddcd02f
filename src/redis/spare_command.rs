//! Commands that reuse the buffers of earlier commands.

use std::{
    cell::RefCell,
    mem,
    ops::{Deref, DerefMut},
};

use redis::Cmd;

/// The maximum number of spare commands that a thread keeps. Each has the size of a command that
/// the thread sent: 200 bytes for one check, up to 10 KB for a batch.
const MAX_SPARE_COMMANDS: usize = 32;
/// The maximum size of a command that is kept. One with the script's text is longer.
const MAX_SPARE_BYTES: usize = 16 * 1024;

thread_local! {
    static SPARE_COMMANDS: RefCell<Vec<Cmd>> = const { RefCell::new(Vec::new()) };
}

/// A command that reuses the buffers of a command that this thread sent before, so that encoding a
/// check needs no allocation. Without it, a check that is sent at once allocates 6 times instead of 4.
#[derive(Debug, Default)]
pub(super) struct SpareCommand(Cmd);

impl SpareCommand {
    /// Takes an empty command.
    pub(super) fn take() -> Self {
        let spare = SPARE_COMMANDS.try_with(|spare| spare.borrow_mut().pop());
        Self(spare.ok().flatten().unwrap_or_default())
    }
}

impl Drop for SpareCommand {
    fn drop(&mut self) {
        let bytes = self.0.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => bytes.len(),
            _ => 0,
        });
        if bytes.sum::<usize>() > MAX_SPARE_BYTES {
            return;
        }
        let mut command = mem::take(&mut self.0);
        command.clear();
        // A thread that is ending may have dropped its spare commands already.
        let _ = SPARE_COMMANDS.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE_COMMANDS {
                spare.push(command);
            }
        });
    }
}

impl Deref for SpareCommand {
    type Target = Cmd;

    fn deref(&self) -> &Cmd {
        &self.0
    }
}

impl DerefMut for SpareCommand {
    fn deref_mut(&mut self) -> &mut Cmd {
        &mut self.0
    }
}
