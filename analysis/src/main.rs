//! `fuse-analysis`: when to fuse, the roofline, and predictions beside measurements.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Parser, Subcommand, ValueEnum};
use fuse_analysis::device::{self, Device};
use fuse_analysis::fusion::Analyzer;
use fuse_analysis::measurements::{Cache, Measurements};
use fuse_analysis::model::{self, Model};
use fuse_analysis::report::{self, Page};
use fuse_analysis::{check, roofline};

/// When to fuse operations into one kernel, and how near kernels are to what a device allows.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The folder that ceilings of devices are kept in, instead of the user's.
    #[arg(long, global = true, value_name = "FOLDER")]
    devices: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bytes, operations and predicted times of a model, and what to fuse.
    #[command(visible_alias = "analyse")]
    Analyze {
        /// The model, a TOML file.
        model: PathBuf,
        #[command(flatten)]
        given: Given,
        /// What is in the device's cache as a kernel begins.
        #[arg(long, value_enum, default_value = "cold")]
        cache: CacheArg,
        /// Writes the analysis to a file as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Writes the page to a file as HTML.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Draws measured kernels under the ceilings of their device: roofline.svg and roofline.html.
    Roofline {
        /// The measurements, a JSON file.
        measurements: PathBuf,
        /// The folder to write to.
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// The device, instead of the one that the measurements name.
        #[arg(long)]
        device: Option<String>,
    },
    /// Shows what is known of devices.
    Ceilings {
        /// Measures this machine's processor first, and keeps what comes out.
        #[arg(long)]
        measure_cpu: bool,
    },
    /// Puts measured times beside the predicted ones.
    Check {
        /// The model, a TOML file; else each point says its own, and points that do not are left out.
        #[arg(long)]
        model: Option<PathBuf>,
        /// The folder of the models that points name.
        #[arg(long, value_name = "FOLDER", default_value = "analysis/models")]
        models: PathBuf,
        /// The measurements, a JSON file.
        #[arg(long)]
        measured: PathBuf,
        /// The device, instead of the one that the measurements name.
        #[arg(long)]
        device: Option<String>,
        /// Sets a named extent of the model.
        #[arg(long, value_name = "NAME=NUMBER", value_parser = setting, requires = "model")]
        set: Vec<(String, u64)>,
        /// Fails where the library is beyond the tolerance of a prediction.
        #[arg(long)]
        strict: bool,
    },
}

#[derive(clap::Args)]
struct Given {
    /// The device: a part of its name, or the path of its JSON file.
    #[arg(long, default_value = "h200")]
    device: String,
    /// Sets a named extent of the model.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = setting)]
    set: Vec<(String, u64)>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CacheArg {
    /// Inputs are in memory.
    Cold,
    /// Activations that fit are in the last cache.
    Warm,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            // There is nobody left to tell where that fails.
            let _ = writeln!(io::stderr().lock(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let folder = args.devices.clone();
    let folder = || folder.clone().map_or_else(device::folder, Ok);
    match &args.command {
        Command::Analyze { model, given, cache, json, html } => {
            let model = read_model(model, &given.set)?;
            let device = find_device(&given.device, folder)?;
            let cache = match cache {
                CacheArg::Cold => Cache::Cold,
                CacheArg::Warm => Cache::Warm,
            };
            let analyzer = Analyzer::new(&model.graph, &device).cache(cache).documents(&model.documents);
            let analysis = analyzer.run();
            let page = report::analysis::page(&analysis);
            if let Some(path) = json {
                write(path, &serde_json::to_string_pretty(&analysis)?)?;
            }
            if let Some(path) = html {
                write(path, &page.to_html())?;
            }
            print(&page)?;
        }
        Command::Roofline { measurements, out, device } => {
            let measured = Measurements::read(measurements).map_err(anyhow::Error::msg)?;
            let device = find_device(device.as_deref().unwrap_or(&measured.device), folder)?;
            draw(&measured, &device, out)?;
        }
        Command::Ceilings { measure_cpu } => {
            let folder = folder()?;
            if *measure_cpu {
                // Loops that are not optimized measure the compiler.
                if cfg!(debug_assertions) {
                    bail!("this build is not optimized: measure with `cargo run --release -p fuse-analysis`");
                }
                let path = device::cpu::measure().store(&folder)?;
                writeln!(io::stdout().lock(), "kept in {}\n", path.display())?;
            }
            let devices = device::all(&folder)?;
            let sections = vec![roofline::ceilings(&devices)];
            print(&Page { title: "devices".to_owned(), sections, ..Page::default() })?;
        }
        Command::Check { model, models, measured: path, device, set, strict } => {
            let measured = Measurements::read(path).map_err(anyhow::Error::msg)?;
            let device = find_device(device.as_deref().unwrap_or(&measured.device), folder)?;
            let (name, checked) = match model {
                Some(model) => {
                    let model = read_model(model, set)?;
                    let checked = check::compare(&model.graph, &device, &measured);
                    (model.graph.name().to_owned(), checked.map_err(anyhow::Error::msg)?)
                }
                None => (path.display().to_string(), check_each(models, &measured, &device)?),
            };
            print(&check::page(&name, &measured, &checked))?;
            if *strict && checked.iter().any(|line| line.is_beyond && line.peer.is_none()) {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the points that name a model of a folder.
fn check_each(models: &Path, measured: &Measurements, device: &Device) -> Result<Vec<check::Checked>> {
    let mut checked = Vec::new();
    for point in &measured.points {
        let Some(name) = &point.model else { continue };
        let set = point.set.iter().map(|(name, extent)| (name.clone(), *extent)).collect::<Vec<_>>();
        let model = read_model(&models.join(name).with_extension("toml"), &set)?;
        let line = check::compare_point(&model.graph, device, (measured.cache, point));
        checked.push(line.map_err(anyhow::Error::msg)?);
    }
    if checked.is_empty() {
        bail!("no point of the measurements names a model: name one with --model");
    }
    Ok(checked)
}

fn draw(measured: &Measurements, device: &Device, out: &Path) -> Result<()> {
    let roofline = roofline::place(measured, device).map_err(anyhow::Error::msg)?;
    let svg = roofline::picture::svg(&roofline).map_err(anyhow::Error::msg)?;
    let page = roofline::page(&roofline, &measured.source, &svg);
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    write(&out.join("roofline.svg"), &svg)?;
    write(&out.join("roofline.html"), &page.to_html())?;
    print(&page)
}

fn read_model(path: &Path, set: &[(String, u64)]) -> Result<Model> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    model::parse(&text, set).map_err(|errors| anyhow!("{}\n{errors}", path.display()))
}

/// A stored device, a built-in one, or that of a file.
fn find_device(name: &str, folder: impl Fn() -> Result<PathBuf, device::DeviceError>) -> Result<Device> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "json") {
        return Ok(Device::read(path)?);
    }
    Ok(device::load(name, &folder()?)?)
}

fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=NUMBER is needed")?;
    let value = value.trim().parse().map_err(|_| format!("`{value}` is no number of 0 or more"))?;
    Ok((name.trim().to_owned(), value))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn print(page: &Page) -> Result<()> {
    match io::stdout().lock().write_all(page.to_text().as_bytes()) {
        // Who reads a part of it has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
