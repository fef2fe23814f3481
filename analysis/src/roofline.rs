//! The roofline: measured kernels by their operations for each byte and in each second, under what the device allows.
//!
//! Nothing can be above `min(intensity * bandwidth, peak)`. A point above the larger of the measured and the nominal ceilings is a
//! measurement to doubt: too few bytes were counted, the cache gave them, or the clock is wrong. A point that is only above the measured
//! one says that the ceiling is to be measured again, or, as a copy measures it, that the kernel reads more than it writes.

pub mod picture;

use serde::Serialize;

use crate::device::{Ceiling, Device};
use crate::measurements::{Form, Measurements, Point};
use crate::report::Column::{Numbers, Words};
use crate::report::{Page, Section};
use crate::units::{percent, scaled, seconds, three_digits};

/// A clock errs a little: so far above a ceiling is still at it.
const AT_THE_ROOF: f64 = 1.02;

/// What is odd about a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// It is above what was measured, and below what the vendor states.
    AboveMeasured,
    /// It is above anything that the device can do.
    AboveRoof,
}

impl Doubt {
    /// As it is written in reports.
    pub const fn words(self) -> &'static str {
        match self {
            Doubt::AboveMeasured => {
                "above the measured ceiling: it reads more than it writes, or the ceiling is to be measured again"
            }
            Doubt::AboveRoof => "above its roof: a suspicious measurement",
        }
    }
}

/// A point with its position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// From 1, in the order of the file.
    pub number: usize,
    /// What was measured.
    pub point: Point,
    /// Operations for each byte.
    pub intensity: f64,
    /// Operations in each second.
    pub attained: f64,
    /// The roof above it, in operations a second.
    pub roof: f64,
    /// What is odd about it.
    pub doubt: Option<Doubt>,
}

impl Placed {
    /// The share of its roof that it attains.
    pub fn share(&self) -> f64 {
        self.attained / self.roof
    }

    /// The name of the ceiling of its arithmetic.
    pub fn unit(&self) -> &str {
        self.point.unit.as_deref().unwrap_or("f32")
    }
}

/// Points under the ceilings of their device.
#[derive(Clone, Debug, Serialize)]
pub struct Roofline<'a> {
    /// The device.
    pub device: &'a Device,
    /// The points.
    pub points: Vec<Placed>,
}

/// Finds the places of points.
///
/// # Errors
/// In words, if a point has no bytes or no operations, or the device has no ceiling for its arithmetic.
pub fn place<'a>(measured: &Measurements, device: &'a Device) -> Result<Roofline<'a>, String> {
    let numbered = measured.points.iter().enumerate();
    let points = numbered.map(|(index, point)| placed(index + 1, point, device)).collect::<Result<_, _>>()?;
    Ok(Roofline { device, points })
}

fn placed(number: usize, point: &Point, device: &Device) -> Result<Placed, String> {
    let (Some(bytes), Some(flops)) = (point.bytes, point.flops) else {
        return Err(format!("`{}` ({}) needs `bytes` and `flops`", point.name, point.form.name()));
    };
    if bytes == 0.0 || flops == 0.0 {
        let what = if bytes == 0.0 { "moves no bytes" } else { "computes nothing" };
        let why = "it has no place on logarithmic axes";
        return Err(format!("`{}` ({}) {what}: {why}", point.name, point.form.name()));
    }
    let unit = point.unit.as_deref().unwrap_or("f32");
    let compute = ceiling(device, unit).ok_or_else(|| {
        let known = device.tensor.keys().chain(device.scalar.keys()).cloned().collect::<Vec<_>>().join(", ");
        format!("`{}` has the unit `{unit}`, and {} has ceilings for {known}", point.name, device.name)
    })?;
    let (intensity, attained) = (flops / bytes, flops / point.seconds);
    let roof = |of: fn(&Ceiling) -> Option<f64>| {
        let bandwidth = of(&device.bandwidth).unwrap_or(f64::INFINITY);
        f64::min(intensity * bandwidth, of(compute).unwrap_or(f64::INFINITY))
    };
    let doubt = if attained > roof(Ceiling::most) * AT_THE_ROOF {
        Some(Doubt::AboveRoof)
    } else if attained > roof(Ceiling::best) * AT_THE_ROOF {
        Some(Doubt::AboveMeasured)
    } else {
        None
    };
    Ok(Placed { number, point: point.clone(), intensity, attained, roof: roof(Ceiling::best), doubt })
}

/// The ceiling of arithmetic of a name: of tensor cores, or else of ordinary units.
pub(crate) fn ceiling<'a>(device: &'a Device, unit: &str) -> Option<&'a Ceiling> {
    device.tensor.get(unit).or_else(|| device.scalar.get(unit))
}

/// The picture and the table.
pub fn page(roofline: &Roofline<'_>, source: &str, svg: &str) -> Page {
    let doubtful = roofline.points.iter().filter(|placed| placed.doubt.is_some()).count();
    let mut intro = Vec::new();
    if !source.is_empty() {
        intro.push(source.to_owned());
    }
    match doubtful {
        0 => {}
        1 => intro.push("1 point is above a ceiling: see the table".to_owned()),
        more => intro.push(format!("{more} points are above a ceiling: see the table")),
    }
    let row = |placed: &Placed| {
        let Point { name, form, bytes, seconds: took, peer, .. } = &placed.point;
        vec![
            placed.number.to_string(),
            name.clone(),
            form.name().to_owned(),
            peer.clone().unwrap_or_else(|| "the library".to_owned()),
            three_digits(placed.intensity),
            scaled(placed.attained, "FLOP/s"),
            scaled(bytes.unwrap_or(0.0) / took, "B/s"),
            seconds(*took),
            percent(placed.share()),
            faster(roofline, placed),
            placed.doubt.map_or(String::new(), |doubt| doubt.words().to_owned()),
        ]
    };
    let points = Section {
        title: "points".to_owned(),
        columns: vec![
            Numbers("#"),
            Words("kernel"),
            Words("form"),
            Words("code"),
            Numbers("FLOP/byte"),
            Numbers("attained"),
            Numbers("bandwidth"),
            Numbers("time"),
            Numbers("of its roof"),
            Numbers("speedup by fusing"),
            Words("doubts"),
        ],
        rows: roofline.points.iter().map(row).collect(),
        empty: "no points",
    };
    Page {
        title: format!("roofline of {}", roofline.device.name),
        intro,
        picture: Some(svg.to_owned()),
        sections: vec![points, ceilings(std::slice::from_ref(roofline.device))],
    }
}

/// How many times faster the fused form of an unfused point is.
fn faster(roofline: &Roofline<'_>, placed: &Placed) -> String {
    let fused = fused_form(roofline, placed);
    fused.map_or(String::new(), |fused| format!("{:.2}x", placed.point.seconds / fused.point.seconds))
}

/// The fused form that an unfused point is compared with: the library's, or else the first.
pub(crate) fn fused_form<'r>(roofline: &'r Roofline<'_>, placed: &Placed) -> Option<&'r Placed> {
    if placed.point.form == Form::Fused {
        return None;
    }
    let fused = |other: &&Placed| other.point.form == Form::Fused && other.point.name == placed.point.name;
    let mut forms = roofline.points.iter().filter(fused);
    let first = forms.next()?;
    Some(if first.point.peer.is_none() {
        first
    } else {
        forms.find(|form| form.point.peer.is_none()).unwrap_or(first)
    })
}

/// The ceilings of devices.
pub fn ceilings(devices: &[Device]) -> Section {
    let mut rows = Vec::new();
    for device in devices {
        let mut add = |what: String, ceiling: &Ceiling, print: &dyn Fn(f64) -> String| {
            let printed = |value: Option<f64>| value.map_or(String::new(), print);
            let (nominal, measured) = (printed(ceiling.nominal), printed(ceiling.measured));
            rows.push(vec![device.name.clone(), what, nominal, measured, ceiling.source.clone()]);
        };
        add("memory".to_owned(), &device.bandwidth, &|value| scaled(value, "B/s"));
        if let Some(l2) = &device.l2_bandwidth {
            add("last cache".to_owned(), l2, &|value| scaled(value, "B/s"));
        }
        for (name, ceiling) in &device.tensor {
            add(format!("{name} on tensor cores"), ceiling, &|value| scaled(value, "FLOP/s"));
        }
        for (name, ceiling) in &device.scalar {
            add(format!("{name} on ordinary units"), ceiling, &|value| scaled(value, "FLOP/s"));
        }
        add("a launch".to_owned(), &device.launch_overhead, &seconds);
        let of_launches =
            [("a launch behind another", &device.following_launch), ("a product", &device.product_overhead)];
        for (name, ceiling) in of_launches {
            if let Some(ceiling) = ceiling {
                add(name.to_owned(), ceiling, &seconds);
            }
        }
    }
    Section {
        title: "ceilings".to_owned(),
        columns: vec![Words("device"), Words("of"), Numbers("nominal"), Numbers("measured"), Words("source")],
        rows,
        empty: "no devices",
    }
}
