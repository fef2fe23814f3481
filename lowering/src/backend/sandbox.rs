//! Lowering in a child process, so that an LLVM fatal error, a crash or a hang becomes a message at the kernel instead
//! of the end of rustc.
//!
//! LLVM reports what it cannot do by ending the process. The child is a fork of this one: it costs a millisecond, has
//! the MLIR context at hand, and sends its result through a pipe. Its standard error is kept for the message.

use std::any::Any;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, fork, getpid, getppid, pipe};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::environment;

/// How long a child may be silent before it counts as hung. It reports each stage of each variant.
pub const LIMIT: Duration = Duration::from_secs(300);

/// What a pipe holds without a reader, on Linux.
const PIPE_BYTES: usize = 64 << 10;

/// What ended a lowering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// `ended by SIGABRT`, `did not finish in 300 s`, or the error the child returned.
    pub what: String,
    /// What the child wrote to standard error.
    pub output: String,
    /// What the user can do, where the machine is at fault and not the compiler.
    pub cure: Option<&'static str>,
}

impl Failure {
    /// An error of the system before there was a child.
    fn of_system(call: &str, error: Errno) -> Failure {
        Failure { what: format!("{call}: {error}"), output: String::new(), cure: environment::cure(error) }
    }
}

/// A child at work. Dropped before it finished, it is ended.
pub struct Child {
    pid: Pid,
    result: File,
    output: File,
    waited_for: bool,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Its id is its own until it has been waited for.
        if !self.waited_for {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Numbers from 0 that children take, each of them once: whichever is done first takes the next one.
pub struct WorkQueue(File);

/// The bytes of a number in the pipe that they wait in.
const NUMBER: usize = size_of::<u32>();

impl WorkQueue {
    /// So many numbers, as many as a pipe holds at least.
    pub fn new(count: usize) -> Result<WorkQueue, Failure> {
        let failed = |what: String| Failure { what, output: String::new(), cure: None };
        let (numbers, end) = pipe().map_err(|error| Failure::of_system("pipe", error))?;
        let all: Vec<u8> = (0..count as u32).flat_map(u32::to_le_bytes).collect();
        if all.len() > PIPE_BYTES {
            return Err(failed(format!("{count} numbers do not fit into a pipe")));
        }
        File::from(end).write_all(&all).map_err(|error| failed(format!("pipe: {error}")))?;
        Ok(WorkQueue(File::from(numbers)))
    }

    /// The next number, if there is one.
    pub fn take(&self) -> Option<usize> {
        let mut number = [0; NUMBER];
        // The kernel gives all bytes of a read to one reader.
        (&self.0).read_exact(&mut number).ok()?;
        Some(u32::from_le_bytes(number) as usize)
    }
}

/// Starts `job` in a child process, which ends at the latest with the thread that started it.
pub fn start<T: Serialize>(job: impl FnOnce() -> Result<T, String>) -> Result<Child, Failure> {
    let (result, result_end) = pipe().map_err(|error| Failure::of_system("pipe", error))?;
    let (output, output_end) = pipe().map_err(|error| Failure::of_system("pipe", error))?;
    let parent = getpid();
    // SAFETY: the child runs only this thread. glibc and jemalloc put their locks in order around a fork, the MLIR
    // context has no threads of its own, and the child ends in `_exit` without running destructors or exit handlers.
    match unsafe { fork() }.map_err(|error| Failure::of_system("fork", error))? {
        ForkResult::Child => {
            drop((result, output));
            if end_with(parent).is_err() {
                // SAFETY: ends this process at once; nothing of the parent's is flushed or dropped a second time.
                unsafe { nix::libc::_exit(1) }
            }
            child(job, result_end, output_end);
        }
        ForkResult::Parent { child: pid } => {
            Ok(Child { pid, result: File::from(result), output: File::from(output), waited_for: false })
        }
    }
}

/// Has the system end this process with the one that started it, which is `parent`; an error if that has ended already.
pub(super) fn end_with(parent: Pid) -> nix::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH) }
}

fn child<T: Serialize>(job: impl FnOnce() -> Result<T, String>, result: OwnedFd, output: OwnedFd) -> ! {
    let _ = dup2_stderr(&output);
    let answer: Result<T, String> =
        catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    let bytes = postcard::to_stdvec(&answer).unwrap_or_default();
    let mut pipe = File::from(result);
    let sent = pipe.write_all(&bytes).and_then(|()| pipe.flush()).is_ok();
    // SAFETY: ends this process at once; nothing of the parent's is flushed or dropped a second time.
    unsafe { nix::libc::_exit(if sent { 0 } else { 1 }) }
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "panicked".into(), |text| format!("panicked: {text}"))
}

impl Child {
    /// Waits for the result; no more than `limit` may pass between two reports of the child.
    pub fn finish<T: DeserializeOwned>(mut self, limit: Duration) -> Result<T, Failure> {
        let mut bytes = vec![];
        let mut text = vec![];
        let in_time = self.drain(&mut bytes, &mut text, limit);
        if !in_time {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        let status = waitpid(self.pid, None);
        self.waited_for = true;
        let output = String::from_utf8_lossy(&text).into_owned();
        let killed = in_time && matches!(status, Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)));
        let cure = (killed || environment::ran_out_of_memory(&output)).then_some(environment::FREE_MEMORY);
        let fail = |what: String| Failure { what, output: output.clone(), cure };
        if !in_time {
            return Err(fail(format!("did not finish in {} s", limit.as_secs_f32())));
        }
        match status {
            Ok(WaitStatus::Exited(_, 0)) => match postcard::from_bytes::<Result<T, String>>(&bytes) {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) => Err(fail(error)),
                Err(error) => Err(fail(format!("sent an answer that cannot be read: {error}"))),
            },
            Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
                Err(fail("ended by SIGKILL, as the system does where memory runs out".into()))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Err(fail(format!("ended by {signal}"))),
            Ok(WaitStatus::Exited(_, code)) => Err(fail(format!("ended with status {code}"))),
            other => Err(fail(format!("ended in an unknown way: {other:?}"))),
        }
    }

    /// Reads both pipes to their ends; false when nothing came for `limit`.
    fn drain(&mut self, bytes: &mut Vec<u8>, text: &mut Vec<u8>, limit: Duration) -> bool {
        let mut deadline = Instant::now() + limit;
        let mut open = [true, true];
        let mut chunk = vec![0; 64 * 1024];
        while open[0] || open[1] {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let files = [&self.result, &self.output];
            let mut waiting: Vec<PollFd> = files
                .iter()
                .zip(open)
                .filter(|(_, open)| *open)
                .map(|(file, _)| PollFd::new(file.as_fd(), PollFlags::POLLIN))
                .collect();
            if poll(&mut waiting, timeout).unwrap_or(0) == 0 {
                continue;
            }
            let ready: Vec<i32> = waiting
                .iter()
                .filter(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
                .map(|fd| fd.as_fd().as_raw_fd())
                .collect();
            for (i, buffer) in [&mut *bytes, &mut *text].into_iter().enumerate() {
                let file = if i == 0 { &mut self.result } else { &mut self.output };
                if open[i] && ready.contains(&file.as_raw_fd()) {
                    match file.read(&mut chunk) {
                        Ok(0) | Err(_) => open[i] = false,
                        Ok(n) => {
                            buffer.extend_from_slice(&chunk[..n]);
                            deadline = Instant::now() + limit;
                        }
                    }
                }
            }
        }
        true
    }
}
