//! The thread of a proxy: all connections, without blocking.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::link::{Link, LostReplies};
use super::{Cut, Fault};
use crate::port::Port;

/// What a test wants of the proxy, and where the result goes.
#[derive(Debug)]
pub(super) enum Order {
    Fault(Fault, mpsc::Sender<()>),
    Cut(Cut, mpsc::Sender<()>),
    Lose { command: String, count: u32, done: mpsc::Sender<()> },
    CountLost(mpsc::Sender<u64>),
    CountConnections(mpsc::Sender<usize>),
    Stop,
}

#[derive(Debug)]
pub(super) struct EventLoop {
    target: SocketAddr,
    port: Port,
    woken: UnixStream,
    orders: mpsc::Receiver<Order>,
    fault: Fault,
    lost: LostReplies,
    links: Vec<Link>,
}

impl EventLoop {
    pub(super) fn new(
        port: Port,
        target: SocketAddr,
        woken: UnixStream,
        orders: mpsc::Receiver<Order>,
    ) -> io::Result<Self> {
        port.listen()?;
        woken.set_nonblocking(true)?;
        Ok(Self {
            target,
            port,
            woken,
            orders,
            fault: Fault::Pass,
            lost: LostReplies::default(),
            links: Vec::new(),
        })
    }

    pub(super) fn run(mut self) {
        loop {
            self.wait();
            // More orders come with another byte.
            let _ = self.woken.read(&mut [0; 64]);
            while let Ok(order) = self.orders.try_recv() {
                if matches!(order, Order::Stop) {
                    return;
                }
                self.carry_out(order);
            }
            self.accept();
            self.move_bytes();
        }
    }

    fn move_bytes(&mut self) {
        let now = now();
        for link in &mut self.links {
            link.move_bytes(self.fault, &mut self.lost, now);
        }
        self.links.retain(|link| !link.is_over());
    }

    /// Waits until something can be read or written, an order comes, or a delay is over.
    fn wait(&self) {
        let now = now();
        let mut polled = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        if self.fault != Fault::Refuse {
            polled.push(PollFd::new(self.port.socket(), PollFlags::POLLIN));
        }
        let mut wait: Option<Duration> = None;
        for link in &self.links {
            for (stream, wants) in link.interests(self.fault, now) {
                // Without interest not at all: the end of a connection is always reported.
                if !wants.is_empty() {
                    polled.push(PollFd::new(stream.as_fd(), wants));
                }
            }
            wait = wait.into_iter().chain(link.delay_left(self.fault, now)).min();
        }
        // Rounded up, or the last millisecond would be spent in a busy loop.
        let wait = wait.map(|wait| u16::try_from(wait.as_millis() + 1).unwrap_or(u16::MAX));
        // An interrupted wait is one more round.
        let _ = poll(&mut polled, wait.map_or(PollTimeout::NONE, PollTimeout::from));
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Fault(fault, done) => {
                self.change_fault(fault);
                let _ = done.send(());
            }
            Order::Cut(how, done) => {
                // Those that wait to be accepted as well.
                self.accept();
                self.links.drain(..).for_each(|link| link.cut(how));
                let _ = done.send(());
            }
            Order::Lose { command, count, done } => {
                self.lost.expect(command, count);
                let _ = done.send(());
            }
            Order::CountLost(result) => {
                let _ = result.send(self.lost.count());
            }
            Order::CountConnections(result) => {
                // Without those whose end has arrived.
                self.accept();
                self.move_bytes();
                let _ = result.send(self.links.len());
            }
            Order::Stop => {}
        }
    }

    fn change_fault(&mut self, fault: Fault) {
        if fault == Fault::Refuse && self.fault != Fault::Refuse {
            // Connections that wait to be accepted are older than the fault.
            self.accept();
            self.port.refuse().expect("it listens");
        } else if fault != Fault::Refuse && self.fault == Fault::Refuse {
            self.port.listen().expect("the port is reserved");
        }
        self.fault = fault;
        if fault != Fault::Discard {
            let has_lost = |link: &mut Link| link.has_discarded();
            self.links.extract_if(.., has_lost).for_each(|link| link.cut(Cut::Reset));
        }
        let now = now();
        self.links.iter_mut().for_each(|link| link.change_fault(fault, now));
    }

    fn accept(&mut self) {
        // Fails while connections are refused.
        while let Ok(client) = self.port.accept() {
            if self.links.len() < CONNECTIONS_MAX
                && let Ok(link) = Link::new(client, self.target)
            {
                self.links.push(link);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "delays of real connections between processes")]
fn now() -> Instant {
    Instant::now()
}

/// With the bytes held of each, this bounds the memory of a proxy.
const CONNECTIONS_MAX: usize = 256;
