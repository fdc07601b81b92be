//! `MULTI` and `EXEC`: commands that are queued and then run in order.
//!
//! Some clients wrap pipelines in them by default. As in Redis, commands are queued until `EXEC`,
//! and then run in order; each is decided by itself.

use tidegate_proto::resp::{Arguments, Replies};

use super::commands::{CommandKind, CommandSpec};
use super::session::{REPLIES_BYTES_ENOUGH, Session};

/// Commands queued for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    commands: Vec<u8>,
    count: usize,
    /// Whether one of them was invalid, so that none is run.
    is_broken: bool,
}

/// Commands that `EXEC` runs. Their replies are sent while it runs, so that it holds few of them.
#[derive(Debug)]
pub(super) struct RunningTransaction {
    commands: Vec<u8>,
    used: usize,
}

impl Session {
    /// Handles `MULTI`, `EXEC` and `DISCARD`, or queues a command. False if it is none of these.
    pub(super) async fn transact(
        &mut self,
        command: Option<&CommandSpec>,
        bytes: &[u8],
        arguments: &mut Arguments,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut replies = Replies::new(out, self.version);
        match (command.map(|it| it.verb), &mut self.transaction) {
            (Some(CommandKind::Multi), Some(_)) => {
                replies.error("ERR", "MULTI calls can not be nested");
            }
            (Some(CommandKind::Multi), none) => {
                *none = Some(Transaction::default());
                replies.simple("OK");
            }
            (Some(CommandKind::Exec), Some(_)) => self.exec(arguments, out).await,
            (Some(CommandKind::Discard), some @ Some(_)) => {
                *some = None;
                replies.simple("OK");
            }
            (Some(CommandKind::Exec), None) => replies.error("ERR", "EXEC without MULTI"),
            (Some(CommandKind::Discard), None) => replies.error("ERR", "DISCARD without MULTI"),
            (Some(CommandKind::Quit | CommandKind::Reset), _) | (_, None) => return false,
            (_, Some(transaction)) => {
                let most = &self.daemon.settings.bounds;
                let has_room = transaction.count < most.batch
                    && transaction.commands.len() + bytes.len() <= most.body_bytes;
                match command {
                    Some(command) if !command.accepts(arguments.len()) => {
                        transaction.is_broken = true;
                        return false;
                    }
                    Some(command) if !command.is_for_transactions() => {
                        transaction.is_broken = true;
                        replies.error("ERR", "Command not allowed inside a transaction");
                    }
                    Some(_) if has_room => {
                        transaction.commands.extend_from_slice(bytes);
                        transaction.count += 1;
                        replies.simple("QUEUED");
                    }
                    Some(_) => {
                        transaction.is_broken = true;
                        replies.error("ERR", "the transaction is too large");
                    }
                    None => {
                        transaction.is_broken = true;
                        return false;
                    }
                }
            }
        }
        true
    }

    async fn exec(&mut self, arguments: &mut Arguments, out: &mut Vec<u8>) {
        let Some(Transaction { commands, count, is_broken }) = self.transaction.take() else {
            return;
        };
        let mut replies = Replies::new(out, self.version);
        if is_broken {
            let why = "Transaction discarded because of previous errors.";
            return replies.error("EXECABORT", why);
        }
        replies.array(count);
        self.running = Some(RunningTransaction { commands, used: 0 });
        self.run(arguments, out).await;
    }

    /// Runs commands of a transaction until there are enough replies to be sent.
    pub(super) async fn run(&mut self, arguments: &mut Arguments, out: &mut Vec<u8>) {
        while out.len() < REPLIES_BYTES_ENOUGH
            && let Some(mut running) = self.running.take()
        {
            let commands = &running.commands[running.used..];
            let used = Box::pin(self.handle(arguments, commands, out)).await;
            running.used += used;
            if used > 0 && running.used < running.commands.len() {
                self.running = Some(running);
            }
        }
    }

    /// Whether commands of a transaction are left to run.
    pub(super) const fn is_executing(&self) -> bool {
        self.running.is_some()
    }

    /// The memory of queued commands.
    pub(super) fn queued_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |it| it.commands.capacity());
        queued + self.running.as_ref().map_or(0, |it| it.commands.capacity())
    }
}
