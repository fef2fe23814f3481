//! The picture of a roofline, as SVG: logarithmic axes, labeled ceilings, numbered points with a legend beside them, and an arrow
//! from each unfused form to the fused one.

mod labels;

use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::labels::{Labels, Rect};
use super::{Placed, Roofline, ceiling, fused_form};
use crate::device::Ceiling;
use crate::measurements::Form;
use crate::units::scaled;

const CHART_WIDTH: u32 = 860;
/// A legend of short names; longer ones make it wider, by about so many pixels a character.
const LEGEND_WIDTH: u32 = 420;
const LEGEND_CHARACTER: u32 = 8;
const HEIGHT: u32 = 620;
const LEGEND_LINE: u32 = 21;
const LEGEND_TOP: u32 = 58;
/// The part of the picture above and left of the axes.
const MARGIN: u32 = 18;

const INK: RGBColor = RGBColor(40, 40, 40);
const ROOF: RGBColor = RGBColor(30, 70, 140);
const FUSED: RGBColor = RGBColor(20, 130, 60);
const UNFUSED: RGBColor = RGBColor(190, 50, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
type Plane = Cartesian2d<LogCoord<f64>, LogCoord<f64>>;
type OnPlane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Plane>;

/// Draws a roofline.
///
/// # Errors
/// In words, if there are no points, or the drawing fails.
pub fn svg(roofline: &Roofline<'_>) -> Result<String, String> {
    if roofline.points.is_empty() {
        return Err("there are no points to draw".to_owned());
    }
    let mut text = String::new();
    draw(roofline, &mut text).map_err(|error| format!("cannot draw the roofline: {error}"))?;
    Ok(text)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(roofline: &Roofline<'_>, text: &mut String) -> Drawn {
    let lines = LEGEND_TOP + LEGEND_LINE * (roofline.points.len() as u32 + 5);
    let height = HEIGHT.max(lines);
    let longest = roofline.points.iter().map(|placed| legend(placed).chars().count() as u32);
    let width = LEGEND_WIDTH.max(70 + LEGEND_CHARACTER * longest.max().unwrap_or(0));
    let root = SVGBackend::with_string(text, (CHART_WIDTH + width, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(CHART_WIDTH);
    let axes = Axes::around(roofline);
    let mut chart = ChartBuilder::on(&left)
        .margin(MARGIN)
        .caption(format!("Roofline of {}", roofline.device.name), font(22))
        .x_label_area_size(52)
        .y_label_area_size(92)
        .build_cartesian_2d((axes.x.0..axes.x.1).log_scale(), (axes.y.0..axes.y.1).log_scale())?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(INK)
        .x_desc("operations for each byte (FLOP/byte)")
        .y_desc("operations in each second (FLOP/s)")
        .axis_desc_style(font(16))
        .label_style(font(14))
        .x_label_formatter(&|value| plain(*value))
        .y_label_formatter(&|value| power(*value))
        .draw()?;
    let mut labels = Labels::within(Rect {
        left: 100,
        top: 40,
        right: CHART_WIDTH as i32 - 20,
        bottom: height as i32 - 75,
    });
    memory_roof(roofline, &axes, &mut chart, (&left, &mut labels))?;
    compute_roofs(roofline, &axes, &mut chart, (&left, &mut labels))?;
    points(roofline, &chart, (&left, &mut labels))?;
    draw_legend(roofline, &right)?;
    root.present()?;
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// A power of ten with a prefix: `10 G`.
fn power(value: f64) -> String {
    let text = scaled(value, "");
    let (digits, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let digits = digits.strip_suffix(".00").or(digits.strip_suffix(".0")).unwrap_or(digits);
    format!("{digits} {prefix}").trim_end().to_owned()
}

/// A power of ten as it is: `0.1`, `100`.
fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

/// The ends of both axes.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// All points, and the ridges of the ceilings that they stand under.
    fn around(roofline: &Roofline<'_>) -> Axes {
        let bandwidth = roofline.device.memory_bandwidth();
        let (mut x, mut y) = ((f64::INFINITY, 0.0), (f64::INFINITY, 0.0));
        let mut include = |intensity: f64, attained: f64| {
            x = (f64::min(x.0, intensity), f64::max(x.1, intensity));
            y = (f64::min(y.0, attained), f64::max(y.1, attained));
        };
        for placed in &roofline.points {
            include(placed.intensity, placed.attained);
            include(placed.intensity, placed.roof);
        }
        for (_, peak) in peaks(roofline) {
            let peak = peak.most().unwrap_or(0.0);
            include(peak / bandwidth, peak);
        }
        Axes { x: decades(x.0 / 3.0, x.1 * 4.0), y: decades(y.0 / 3.0, y.1 * 2.5) }
    }
}

/// At least two and a half decades: below, an axis gets labels within a decade, and they are too many.
fn decades(least: f64, most: f64) -> (f64, f64) {
    (least.min(most / 300.0), most)
}

/// The ceilings of the arithmetic of points, each once, with the names that share it.
fn peaks<'a>(roofline: &'a Roofline<'_>) -> Vec<(String, &'a Ceiling)> {
    let mut peaks: Vec<(String, &Ceiling)> = Vec::new();
    for placed in &roofline.points {
        let unit = placed.unit();
        let Some(peak) = ceiling(roofline.device, unit) else { continue };
        match peaks.iter_mut().find(|(_, other)| *other == peak) {
            Some((names, _)) if names.split(", ").any(|name| name == unit) => {}
            Some((names, _)) => *names = format!("{names}, {unit}"),
            None => peaks.push((unit.to_owned(), peak)),
        }
    }
    peaks
}

/// Both values of a ceiling with what they are, the smaller one drawn whole.
fn both(ceiling: &Ceiling, unit: &str) -> String {
    let printed =
        |value: Option<f64>, what: &str| value.map(|value| format!("{} {what}", scaled(value, unit)));
    let both = [printed(ceiling.measured, "measured"), printed(ceiling.nominal, "nominal")];
    both.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A line of a ceiling: whole where predictions take it, dashed where it is the other value.
fn roof_line(chart: &mut OnPlane<'_, '_>, ends: [(f64, f64); 2], is_best: bool) -> Drawn {
    if is_best {
        chart.draw_series(LineSeries::new(ends, ROOF.stroke_width(2)))?;
    } else {
        chart.draw_series(DashedLineSeries::new(ends, 6, 5, ROOF.mix(0.6).stroke_width(1)))?;
    }
    Ok(())
}

/// Every value of a ceiling, and whether it is the best known.
fn values(ceiling: &Ceiling) -> impl Iterator<Item = (f64, bool)> {
    let best = ceiling.best();
    [ceiling.measured, ceiling.nominal].into_iter().flatten().map(move |value| (value, best == Some(value)))
}

/// A roof that rises, as far as the highest peak.
fn memory_roof(
    roofline: &Roofline<'_>,
    axes: &Axes,
    chart: &mut OnPlane<'_, '_>,
    (area, labels): (&Area<'_>, &mut Labels),
) -> Drawn {
    let bandwidth = &roofline.device.bandwidth;
    let peaks = peaks(roofline).into_iter().filter_map(|(_, peak)| peak.most());
    let top = peaks.fold(0.0, f64::max);
    for (value, is_best) in values(bandwidth) {
        let begin = f64::max(axes.x.0, axes.y.0 / value);
        roof_line(chart, [(begin, begin * value), (top / value, top)], is_best)?;
    }
    let most = bandwidth.most().unwrap_or(1.0);
    // Left of a rising line is room for a label that ends at it, above all points.
    let begin = f64::max(axes.x.0, axes.y.0 / most);
    let middle = (begin.ln() * 0.35 + (top / most).ln() * 0.65).exp();
    let (x, y) = chart.backend_coord(&(middle, middle * most));
    let text = format!("memory: {}", both(bandwidth, "B/s"));
    let style = font(14).color(&ROOF).pos(Pos::new(HPos::Right, VPos::Bottom));
    let position = labels.take((x - 10, y - 6), &text, HPos::Right);
    area.draw(&Text::new(text, position, style))?;
    Ok(())
}

/// Roofs that are level, from the memory's on.
fn compute_roofs(
    roofline: &Roofline<'_>,
    axes: &Axes,
    chart: &mut OnPlane<'_, '_>,
    (area, labels): (&Area<'_>, &mut Labels),
) -> Drawn {
    let bandwidth = roofline.device.bandwidth.most().unwrap_or(1.0);
    for (names, peak) in peaks(roofline) {
        for (value, is_best) in values(peak) {
            roof_line(chart, [(value / bandwidth, value), (axes.x.1, value)], is_best)?;
        }
        let (x, y) = chart.backend_coord(&(axes.x.1, peak.most().unwrap_or(1.0)));
        let text = format!("{names}: {}", both(peak, "FLOP/s"));
        let style = font(14).color(&ROOF).pos(Pos::new(HPos::Right, VPos::Bottom));
        let position = labels.take((x - 4, y - 4), &text, HPos::Right);
        area.draw(&Text::new(text, position, style))?;
    }
    Ok(())
}

fn points(
    roofline: &Roofline<'_>,
    chart: &OnPlane<'_, '_>,
    (area, labels): (&Area<'_>, &mut Labels),
) -> Drawn {
    // Numbers beside a roof, not on it.
    if let (Some(value), (x, y)) = (roofline.device.bandwidth.best(), (chart.x_range(), chart.y_range())) {
        let end = |intensity: f64| chart.backend_coord(&(intensity, intensity * value));
        labels.mark_line(end(x.start.max(y.start / value)), end(x.end.min(y.end / value)));
    }
    let at = |placed: &Placed| chart.backend_coord(&(placed.intensity, placed.attained));
    for placed in &roofline.points {
        if let Some(fused) = fused_form(roofline, placed) {
            arrow(area, at(placed), at(fused))?;
            labels.mark_line(at(placed), at(fused));
        }
        let ((x, y), half) = (at(placed), if placed.doubt.is_some() { 10 } else { 6 });
        labels.mark(Rect { left: x - half, top: y - half, right: x + half, bottom: y + half });
    }
    for placed in &roofline.points {
        marker(area, at(placed), placed)?;
    }
    for placed in &roofline.points {
        let (x, y) = at(placed);
        let text = placed.number.to_string();
        let (position, is_far) = labels.beside((x, y), &text);
        if is_far {
            area.draw(&PathElement::new(vec![(x, y), position], INK.mix(0.4)))?;
        }
        let ink = color(placed);
        let style = font(14).color(&ink).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new(text, position, style))?;
    }
    Ok(())
}

fn color(placed: &Placed) -> RGBColor {
    match placed.point.form {
        Form::Fused => FUSED,
        Form::Unfused => UNFUSED,
    }
}

/// A full circle where it is fused, a ring where it is not; around it a square where it is doubtful.
fn marker(area: &Area<'_>, (x, y): (i32, i32), placed: &Placed) -> Drawn {
    match placed.point.form {
        Form::Fused => area.draw(&Circle::new((x, y), 5, FUSED.filled()))?,
        Form::Unfused => {
            area.draw(&Circle::new((x, y), 5, WHITE.filled()))?;
            area.draw(&Circle::new((x, y), 5, UNFUSED.stroke_width(2)))?;
        }
    }
    if placed.doubt.is_some() {
        area.draw(&Rectangle::new([(x - 9, y - 9), (x + 9, y + 9)], UNFUSED.stroke_width(1)))?;
    }
    Ok(())
}

/// A line with a head that ends at the rim of a marker.
fn arrow(area: &Area<'_>, from: (i32, i32), to: (i32, i32)) -> Drawn {
    let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    let length = dx.hypot(dy);
    // Markers that touch leave no room for a line.
    if length < 16.0 {
        return Ok(());
    }
    let (ux, uy) = (dx / length, dy / length);
    let along = |back: f64, aside: f64| {
        let (x, y) = (f64::from(to.0) - ux * back - uy * aside, f64::from(to.1) - uy * back + ux * aside);
        (x.round() as i32, y.round() as i32)
    };
    let style = INK.mix(0.5);
    area.draw(&PathElement::new(vec![from, along(7.0, 0.0)], style.stroke_width(1)))?;
    area.draw(&Polygon::new(vec![along(6.0, 0.0), along(14.0, 4.0), along(14.0, -4.0)], style.filled()))?;
    Ok(())
}

/// What a point is.
fn legend(placed: &Placed) -> String {
    let peer = placed.point.peer.as_ref().map_or(String::new(), |peer| format!(", {peer}"));
    format!("{}, {}{peer}", placed.point.name, placed.point.form.name())
}

fn draw_legend(roofline: &Roofline<'_>, area: &Area<'_>) -> Drawn {
    let line = |row: u32| (LEGEND_TOP + row * LEGEND_LINE) as i32;
    let right = Pos::new(HPos::Right, VPos::Center);
    for (row, placed) in roofline.points.iter().enumerate() {
        let y = line(row as u32);
        area.draw(&Text::new(placed.number.to_string(), (24, y), font(14).color(&color(placed)).pos(right)))?;
        marker(area, (40, y), placed)?;
        let text = legend(placed);
        area.draw(&Text::new(text, (54, y), font(14).pos(Pos::new(HPos::Left, VPos::Center))))?;
    }
    let mut notes =
        vec!["whole line: the ceiling that counts; dashed: the other one", "arrow: from unfused to fused"];
    if roofline.points.iter().any(|placed| placed.doubt.is_some()) {
        notes.push("square: above a ceiling, see the table");
    }
    for (row, note) in notes.into_iter().enumerate() {
        let y = line((roofline.points.len() + 1 + row) as u32);
        area.draw(&Text::new(note, (16, y), font(13).pos(Pos::new(HPos::Left, VPos::Center))))?;
    }
    Ok(())
}
