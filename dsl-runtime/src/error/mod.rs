//! What can go wrong at run time, in the words of someone who wrote a kernel and launched it.

use std::path::PathBuf;

use cudarc::driver::DriverError;

use crate::device_print::tuple;
use crate::dtype::DType;
use crate::kernel::ParamKind;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. Nothing was launched, unless the error comes from a CUDA call or is about the kernel's own
/// accesses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A CUDA device was asked for on a machine without the driver.
    #[error(
        "the NVIDIA driver library libcuda was not found on this machine; `Device::cpu()` works without it"
    )]
    NoDriver,

    /// A CUDA device was asked for that is not there.
    #[error("there is no cuda:{ordinal}: {}", device_count(*.count))]
    NoDevice {
        /// The ordinal asked for.
        ordinal: usize,
        /// How many devices the driver reports.
        count: usize,
    },

    /// A variable of the environment holds something it cannot.
    #[error("{name}=`{value}`: expected {expected}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        expected: &'static str,
    },

    /// The kernel has no GPU code that this device can run.
    #[error(
        "kernel `{kernel}`{} has no code for {device}, whose compute capability is {}: {}",
        format_label(.variant), format_capability(*.capability), built_for_gpus(.built)
    )]
    NoCode {
        /// The kernel's name.
        kernel: &'static str,
        /// The variant's label.
        variant: &'static str,
        /// The device.
        device: String,
        /// Its compute capability, 90 for 9.0.
        capability: u32,
        /// The targets that were built, such as `sm_90a`.
        built: Vec<String>,
    },

    /// The kernel has no code for this CPU.
    #[error("kernel `{kernel}`{} has no code for this CPU ({cpu}): {}", format_label(.variant), built_for(.built))]
    NoHostCode {
        /// The kernel's name.
        kernel: &'static str,
        /// The variant's label.
        variant: &'static str,
        /// What this CPU supports.
        cpu: String,
        /// The levels that were built.
        built: Vec<String>,
    },

    /// The guards of every specialization fail for these arguments, or the device cannot run it.
    #[error("kernel `{kernel}`{} cannot run with these arguments on {device}: {}", format_label(.variant), .reasons.join("; "))]
    NoSpecialization {
        /// The kernel's name.
        kernel: &'static str,
        /// The variant's label.
        variant: &'static str,
        /// The device.
        device: String,
        /// One reason for each specialization.
        reasons: Vec<String>,
    },

    /// The driver rejected the kernel's code.
    #[error("kernel `{kernel}`{}: the driver did not load its {image}: {reason}{}", format_label(.variant), log_lines(.log))]
    Load {
        /// The kernel's name.
        kernel: &'static str,
        /// The variant's label.
        variant: &'static str,
        /// What was loaded, such as `PTX for sm_90a`.
        image: String,
        /// CUDA's name for the error and its description.
        reason: String,
        /// What the driver's compiler had to say, possibly nothing.
        log: String,
    },

    /// A launch without a grid.
    #[error("kernel `{kernel}` was launched without a grid: say how many programs run with `.grid(..)`")]
    NoGrid {
        /// The kernel's name.
        kernel: &'static str,
    },

    /// A grid that no device runs.
    #[error("kernel `{kernel}`: grid {axis} is {extent}, {}", grid_limit(*.extent, *.limit))]
    Grid {
        /// The kernel's name.
        kernel: &'static str,
        /// `x`, `y` or `z`.
        axis: char,
        /// The number of programs asked for along it.
        extent: i128,
        /// The most there can be.
        limit: u32,
    },

    /// A kernel touched an element that its slice does not have. The kernel went on: it read 0 or its `other`
    /// value, or wrote nothing. Only the code of a debug build reports this; see [the crate](crate#safety).
    #[error(
        "kernel `{kernel}`: program {} {} element {index} of `{param}`, which has {len} ({file}:{line}:{column})",
        tuple(.program), verb(*.writes)
    )]
    OutOfBounds {
        /// The kernel's name.
        kernel: &'static str,
        /// The slice's name.
        param: &'static str,
        /// Whether it was to be written.
        writes: bool,
        /// The element.
        index: i64,
        /// The slice's length.
        len: i64,
        /// The program's number along each axis of the grid; the first that was seen to leave the slice.
        program: [u32; 3],
        /// The source file of the access.
        file: &'static str,
        /// Its line.
        line: u32,
        /// Its column.
        column: u32,
    },

    /// A `tl::device_assert` or `tl::assume` of a kernel did not hold. The kernel went on to its end. Only the code of a
    /// debug build reports this; see [the crate](crate#safety).
    #[error(
        "kernel `{kernel}`: program {}: `{}({condition})` fails{} ({file}:{line}:{column})",
        tuple(.program), check_name(*.assumed), location_and_message(.element, .message)
    )]
    Assertion {
        /// The kernel's name.
        kernel: &'static str,
        /// Whether it was assumed, not asserted.
        assumed: bool,
        /// The condition as written.
        condition: &'static str,
        /// The message, possibly nothing.
        message: &'static str,
        /// An element for which it does not hold, by its index along each axis of the tile; empty for a scalar.
        element: Vec<u32>,
        /// The program's number along each axis of the grid; the first that was seen to fail.
        program: [u32; 3],
        /// The source file of the call.
        file: &'static str,
        /// Its line.
        line: u32,
        /// Its column.
        column: u32,
    },

    /// A `+`, `-`, `*` or sum of integers does not fit its type, and the result was used: in a release build it wraps. The
    /// kernel went on to its end with the wrapped number. Only the code of a debug build reports this; see
    /// [the crate](crate#safety).
    #[error(
        "kernel `{kernel}`: program {}: attempt to {verb} with overflow of {dtype}{} ({file}:{line}:{column})",
        tuple(.program), location_and_message(.element, "")
    )]
    Overflow {
        /// The kernel's name.
        kernel: &'static str,
        /// What was attempted: `add`, `subtract`, `multiply`, `negate` or `sum`.
        verb: &'static str,
        /// The integers' type.
        dtype: DType,
        /// An element that does not fit, by its index along each axis of the tile; empty for a scalar.
        element: Vec<u32>,
        /// The program's number along each axis of the grid; the first that was seen to overflow.
        program: [u32; 3],
        /// The source file of the operation.
        file: &'static str,
        /// Its line.
        line: u32,
        /// Its column.
        column: u32,
    },

    /// Two programs of a launch touched one element, at least one of them to write it, and nothing orders them: what the
    /// element is then depends on which program comes first. The kernel went on to its end. Only the code of a debug build reports
    /// this, on the CPU; see [the crate](crate#safety).
    #[error(
        "kernel `{kernel}`: a race of two programs: program {} {} element {index} of `{param}` ({file}:{}:{}), and program {} {} it ({file}:{}:{})",
        tuple(&.first.program), .first.verb, .first.line, .first.column,
        tuple(&.second.program), .second.verb, .second.line, .second.column
    )]
    Race {
        /// The kernel's name.
        kernel: &'static str,
        /// The slice's name.
        param: &'static str,
        /// The element.
        index: u64,
        /// One of the two accesses.
        first: Box<ProgramAccess>,
        /// The other one.
        second: Box<ProgramAccess>,
        /// The source file of both.
        file: &'static str,
    },

    /// An argument lives where the launch cannot reach it.
    #[error("kernel `{kernel}`: `{param}` is in {found}, and the launch is on {wanted}{}", context_help(.found, .wanted))]
    WrongDevice {
        /// The kernel's name.
        kernel: &'static str,
        /// The parameter's name.
        param: &'static str,
        /// Where the argument is.
        found: String,
        /// Where the launch is.
        wanted: String,
    },

    /// An argument is not what the parameter takes.
    #[error("kernel `{kernel}`: `{param}` takes {wanted}, found {found}")]
    Argument {
        /// The kernel's name.
        kernel: &'static str,
        /// The parameter's name.
        param: &'static str,
        /// What the parameter is, such as `&mut [f32]`.
        wanted: String,
        /// What was given.
        found: String,
    },

    /// Too many or too few arguments.
    #[error("kernel `{kernel}` takes {wanted} arguments, found {found}")]
    ArgumentCount {
        /// The kernel's name.
        kernel: &'static str,
        /// How many parameters it has.
        wanted: usize,
        /// How many arguments were given.
        found: usize,
    },

    /// Arguments that do not fit each other, found by a function that launches a kernel. The runtime itself never says
    /// this: it is for the safe function around a kernel, which knows what its lengths mean.
    #[error("{operation}: {reason}")]
    Shape {
        /// The operation, such as `layer_norm`.
        operation: &'static str,
        /// What does not fit, with the numbers: `gamma has 512 elements and beta 1024`.
        reason: String,
    },

    /// A view whose memory does not have all its elements, or one to write that has an element twice.
    #[error("a view of shape {shape:?} with strides {strides:?} {problem}")]
    View {
        /// The extent of each axis.
        shape: Vec<usize>,
        /// The stride of each axis, in elements.
        strides: Vec<usize>,
        /// What is wrong with it.
        problem: String,
    },

    /// A copy between a buffer and host memory of another length.
    #[error("cannot copy {found} elements into a buffer of {wanted}")]
    Length {
        /// The length of the destination, in elements.
        wanted: usize,
        /// The length of the source, in elements.
        found: usize,
    },

    /// The threads that kernels run on on the CPU cannot be started.
    #[error("the threads that kernels run on cannot be started: {reason}")]
    Threads {
        /// What the system says.
        reason: String,
    },

    /// A launch cannot be part of a graph.
    #[error("capture: {reason}")]
    Capture {
        /// Why not.
        reason: String,
    },

    /// The kernel was not built for this choice of types and constants.
    #[error("kernel `{kernel}` has no variant with {wanted}; declared are {}", format_labels(.declared))]
    NoVariant {
        /// The kernel's name.
        kernel: &'static str,
        /// What was asked for.
        wanted: String,
        /// The labels of the variants there are.
        declared: Vec<&'static str>,
    },

    /// An allocation failed.
    #[error("out of memory on {device}: {} wanted{}", format_bytes(*.bytes), format_free(*.free))]
    OutOfMemory {
        /// Where.
        device: String,
        /// The bytes wanted.
        bytes: u128,
        /// The bytes free and in total, where the device says.
        free: Option<(u64, u64)>,
    },

    /// A CUDA driver call failed. After a fault inside a kernel the device's context is lost: every later call
    /// fails with the same error.
    #[error("{}{call}: {name}, {text}{}", format_kernel(*.kernel), recent_kernels(.since))]
    Cuda {
        /// The call, such as `cuLaunchKernel`.
        call: &'static str,
        /// The kernel that it was made for.
        kernel: Option<&'static str>,
        /// CUDA's name for the error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// CUDA's description of it.
        text: String,
        /// Kernels launched shortly before on the same device, latest first: a fault inside a kernel is reported by a
        /// later call.
        since: Vec<&'static str>,
    },

    /// A file could not be written.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
}

/// An access of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramAccess {
    /// The program's number along each axis of the grid.
    pub program: [u32; 3],
    /// What it does to the element: `reads`, `writes` or `atomically changes`.
    pub verb: &'static str,
    /// The line of the access.
    pub line: u32,
    /// Its column.
    pub column: u32,
}

impl Error {
    /// An error of a driver call that no kernel is to blame for.
    pub(crate) fn cuda(call: &'static str) -> impl Fn(DriverError) -> Error {
        move |error| Error::cuda_of(call, None, error)
    }

    pub(crate) fn cuda_of(call: &'static str, kernel: Option<&'static str>, error: DriverError) -> Error {
        let (name, text) = describe(error);
        Error::Cuda { call, kernel, name, text, since: Vec::new() }
    }

    /// Adds the kernels that may be to blame, if this is a CUDA error without one.
    pub(crate) fn since(mut self, launched: impl FnOnce() -> Vec<&'static str>) -> Error {
        if let Error::Cuda { kernel: None, since, .. } = &mut self {
            *since = launched();
        }
        self
    }
}

/// CUDA's name of an error and what it says about it.
fn describe(error: DriverError) -> (String, String) {
    let text = match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => "no description".to_string(),
    };
    (format!("{:?}", error.0), text)
}

/// 90 as `9.0`.
fn format_capability(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

/// The same as one text.
pub(crate) fn reason(error: DriverError) -> String {
    let (name, text) = describe(error);
    format!("{name}, {text}")
}

/// `&[f32]`, `&mut [f32]` or `f32`.
pub(crate) fn param_type(kind: ParamKind, dtype: DType) -> String {
    match kind {
        ParamKind::Slice => format!("&[{dtype}]"),
        ParamKind::SliceMut => format!("&mut [{dtype}]"),
        ParamKind::View(rank) => format!("&View<{dtype}, {rank}>"),
        ParamKind::ViewMut(rank) => format!("&mut View<{dtype}, {rank}>"),
        ParamKind::Scalar => dtype.to_string(),
    }
}

/// ` [T = f32]`, or nothing for a kernel without generics.
pub(crate) fn format_label(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!(" [{label}]") }
}

/// A size in bytes, and in the unit that reads best.
pub(crate) fn format_bytes(bytes: u128) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, None);
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, Some(name));
    }
    match unit {
        None => format!("{bytes} B"),
        Some(unit) => format!("{value:.1} {unit}"),
    }
}

fn check_name(assumed: bool) -> &'static str {
    if assumed { "tl::assume" } else { "tl::device_assert" }
}

/// ` for element (3): x is negative`, or as much of it as there is.
fn location_and_message(element: &[u32], message: &str) -> String {
    let location =
        if element.is_empty() { String::new() } else { format!(" for element {}", tuple(element)) };
    if message.is_empty() { location } else { format!("{location}: {message}") }
}

fn verb(writes: bool) -> &'static str {
    if writes { "writes" } else { "reads" }
}

fn device_count(count: usize) -> String {
    match count {
        0 => "the driver reports no device".to_string(),
        1 => "the driver reports one device, cuda:0".to_string(),
        _ => format!("the driver reports {count} devices, cuda:0 to cuda:{}", count - 1),
    }
}

fn built_for(targets: &[String]) -> String {
    if targets.is_empty() {
        "none was built".to_string()
    } else {
        format!("built for {}", targets.join(", "))
    }
}

fn built_for_gpus(architectures: &[String]) -> String {
    if architectures.is_empty() {
        "none was built; a build with FUSE_ARCH=none makes code for the CPU alone".to_string()
    } else {
        built_for(architectures)
    }
}

fn log_lines(log: &str) -> String {
    if log.trim().is_empty() { String::new() } else { format!("\n{}", log.trim()) }
}

fn grid_limit(extent: i128, limit: u32) -> String {
    if extent < 0 { "and cannot be negative".to_string() } else { format!("the limit is {limit}") }
}

fn context_help(found: &str, wanted: &str) -> &'static str {
    if found == wanted {
        ", another CUDA context of it; `Device::from_context` makes a device of that one"
    } else {
        ""
    }
}

fn format_labels(labels: &[&'static str]) -> String {
    let quoted = |label: &&str| {
        if label.is_empty() { "one without generics".to_string() } else { format!("[{label}]") }
    };
    if labels.is_empty() {
        "none".to_string()
    } else {
        labels.iter().map(quoted).collect::<Vec<_>>().join(", ")
    }
}

fn format_free(free: Option<(u64, u64)>) -> String {
    match free {
        Some((free, total)) => {
            format!(", {} of {} free", format_bytes(free.into()), format_bytes(total.into()))
        }
        None => String::new(),
    }
}

fn format_kernel(kernel: Option<&'static str>) -> String {
    kernel.map(|kernel| format!("kernel `{kernel}`: ")).unwrap_or_default()
}

fn recent_kernels(since: &[&'static str]) -> String {
    if since.is_empty() {
        return String::new();
    }
    let names: Vec<_> = since.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "\nkernels launched before it, latest first: {}; with FUSE_LAUNCH_BLOCKING=1 the error names the one that failed",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
