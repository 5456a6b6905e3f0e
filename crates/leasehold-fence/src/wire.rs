//! How the caller, the spawner, the wardens and their stages talk: small messages over socket pairs
//! that keep their bounds (`SOCK_SEQPACKET`), with descriptors beside them.
//!
//! | from | to | message | descriptors |
//! |---|---|---|---|
//! | caller | spawner | [`Adopt`] | the warden's end of the run's socket |
//! | spawner | warden | [`Adopt`] | the same |
//! | caller | warden | [`Start`] | what to run, its stdin, stdout and stderr |
//! | caller | warden | [`Order`](crate::watch::Order) | |
//! | warden | stage | [`Start`] | as above |
//! | stage | warden | [`NotStarted`] | |
//! | warden, or the spawner for one that was killed | caller | [`Report`] | |
//!
//! A socket that is closed says something, too: to a warden that its caller is gone, to the spawner
//! that nothing more will be asked, to a warden whose stage's end closes that the command has begun.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::tree;
use crate::watch::{Bounds, Cause};

/// Makes a new process a warden for the run at the other end of the descriptor that comes along.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Adopt;

/// Begin the run. Along come, in this order: what to run, stdin, stdout, stderr.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) bounds: Bounds,
    pub(crate) no_new_privileges: bool,
}

/// How many descriptors [`Start`] brings.
pub(crate) const START_DESCRIPTORS: usize = 4;

/// How far a stage got before it failed to become the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A process could not be made, or not be set up.
    Prepare,
    /// The folder could not be entered.
    Directory,
    /// The program could not be executed.
    Execute,
}

/// The command never began.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct NotStarted {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

/// How the command itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Status {
    Exited(i32),
    Signalled(i32),
}

/// What a caller is told of its run. All but the first are the end of it, told once, when nothing of it
/// executes any more.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Report {
    /// From here on something may execute.
    Begun,
    Ended {
        cause: Option<Cause>,
        status: Status,
    },
    NotStarted(NotStarted),
    /// The warden was killed; the spawner has ended what it left.
    WardenLost,
}

/// The longest message: all of them are a few numbers.
const MESSAGE_BYTES_MAX: usize = 512;

/// Both ends of a socket that keeps messages apart; closed on execute.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(ends)
}

/// Sends a message and descriptors. Never blocks.
///
/// # Errors
/// `EAGAIN` if the other side does not read; `EPIPE` if it is gone.
pub(crate) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(START_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut beside, flags) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(|_| ())?),
        }
    }
}

/// Sends a message as [`send`], and again while there is no room for it: a socket holds a few hundred
/// messages, and the system lets a user have only so many descriptors under way. Many commands at once
/// are taken in as fast as wardens are made.
///
/// # Errors
/// As of [`send`], after about a second of trying.
pub(crate) fn send_patiently<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    for _ in 1..SENDS_MAX {
        match send(&socket, message, descriptors) {
            Err(error) if is_one_of(&error, &[Errno::AGAIN, Errno::TOOMANYREFS]) => {
                tree::pause(SEND_PAUSE);
            }
            sent => return sent,
        }
    }
    send(socket, message, descriptors)
}

/// About as long as it takes to make a warden.
const SEND_PAUSE: Duration = Duration::from_millis(1);
/// About a second in all: who takes nothing in for so long is stuck.
const SENDS_MAX: usize = 1_000;

/// Whether sending failed because nobody is at the other side any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::PIPE, Errno::CONNRESET, Errno::NOTCONN])
}

fn is_one_of(error: &io::Error, codes: &[Errno]) -> bool {
    let code = error.raw_os_error();
    codes.iter().any(|one| code == Some(one.raw_os_error()))
}

/// What was received.
pub(crate) enum Received<T> {
    Message(T, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Closed,
}

/// Receives a message if there is one, without waiting. The descriptors that came along are closed on
/// execute.
///
/// # Errors
/// The system's; `InvalidData` for a message that is none of ours.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Received<T>> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(START_DESCRIPTORS))];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let (length, descriptors) = loop {
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut into, &mut beside, flags) {
            // The other side went without reading all that was sent to it. It is told once, ahead of
            // what that side had sent, which may be a report.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
            Ok(received) => {
                let messages = beside.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                    _ => None,
                });
                break (received.bytes, messages.flatten().collect::<Vec<_>>());
            }
        }
    };
    if length == 0 {
        return Ok(Received::Closed);
    }
    let message = bytes
        .get(..length)
        .map(serde_json::from_slice)
        .transpose()?
        .ok_or(Errno::MSGSIZE)?;
    Ok(Received::Message(message, descriptors))
}
