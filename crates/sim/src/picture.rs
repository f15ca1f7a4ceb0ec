//! The pictures in `docs/`.
#![expect(clippy::float_arithmetic, clippy::as_conversions, reason = "plotters draws floats")]

use anyhow::{Error, Result};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use tidegate_sim::table::{SECONDS_A_ROW, Table};
use tidegate_sim::utilization::run;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Panel<'b> = DrawingArea<SVGBackend<'b>, plotters::coord::Shift>;

// Okabe and Ito's colours, which colour-blind people can tell apart too.
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const GREY: RGBColor = RGBColor(110, 110, 110);

const FONT: &str = "sans-serif";

/// Draws the rate that each estimator admits after a step to ten times the limit, once in full and
/// once near the limit.
pub(crate) fn suppression(table: &Table) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (960, 720)).into_drawing_area();
        root.fill(&WHITE)?;
        let title =
            "The admitted rate at ten times the limit until 96 s, then at 0.8 times the limit";
        let root = root.titled(title, (FONT, 22))?;
        let (upper, lower) = root.split_vertically(360);
        let columns = [
            ("linear on admitted", VERMILION),
            ("modified mean", BLUE),
            ("newest part (default)", GREEN),
        ];
        for (panel, highest) in [(&upper, 10.5), (&lower, 2.0)] {
            let mut chart = chart(panel, (-6.0, 132.0), (0.0, highest))?;
            axes(&mut chart, "seconds since the step", "rate / limit")?;
            let offered = table.rows.iter().map(|row| (row.second, row.offered));
            line(&mut chart, "offered", GREY.stroke_width(1), steps(offered, highest))?;
            for (column, (name, colour)) in columns.into_iter().enumerate() {
                let admitted = table.rows.iter().map(|row| (row.second, row.admitted[column]));
                line(&mut chart, name, colour.stroke_width(2), steps(admitted, highest))?;
            }
            legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Draws the shed amount and the shed shares of two classes over time.
pub(crate) fn utilization() -> Result<String> {
    let samples = run()?;
    let ppm = |ppm: i64| ppm as f64 / 1e6;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (960, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let title = "The share of requests shed: all workers are busy for 200 s, then idle";
        let root = root.titled(title, (FONT, 22))?;
        let mut chart = chart(&root, (0.0, 384.0), (-0.3, 1.1))?;
        axes(&mut chart, "seconds", "share")?;
        let series = |of: &dyn Fn(&tidegate_sim::utilization::Sample) -> f64| -> Vec<(f64, f64)> {
            samples.iter().map(|sample| (sample.second as f64, of(sample))).collect()
        };
        let signal = series(&|sample| ppm(sample.signal.ppm().into()));
        line(&mut chart, "utilisation", GREY.stroke_width(1), signal)?;
        let amount = series(&|sample| ppm(sample.amount_ppm));
        line(&mut chart, "shed amount", BLACK.stroke_width(2), amount)?;
        for (class, name, colour) in [
            (0, "shed share of the least important class", VERMILION),
            (1, "shed share of the next class", BLUE),
        ] {
            let drop = series(&|sample| sample.drop[class].units() as f64 / (1_u64 << 32) as f64);
            line(&mut chart, name, colour.stroke_width(2), drop)?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        root.present()?;
    }
    Ok(svg)
}

fn chart<'a, 'b>(panel: &'a Panel<'b>, x: (f64, f64), y: (f64, f64)) -> Result<Chart<'a, 'b>> {
    ChartBuilder::on(panel)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)
        .map_err(Error::from)
}

fn axes(chart: &mut Chart<'_, '_>, x: &str, y: &str) -> Result<()> {
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(x)
        .y_desc(y)
        .x_labels(12)
        .y_labels(8)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    Ok(())
}

fn line(
    chart: &mut Chart<'_, '_>,
    name: &str,
    style: ShapeStyle,
    points: Vec<(f64, f64)>,
) -> Result<()> {
    let key = move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style);
    chart.draw_series(LineSeries::new(points, style))?.label(name).legend(key);
    Ok(())
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Result<()> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

/// The means of rows as steps of one row's length, cut off at `highest`.
fn steps(means: impl Iterator<Item = (i64, u64)>, highest: f64) -> Vec<(f64, f64)> {
    let corners = |(second, thousandths): (i64, u64)| {
        let (from, mean) = (second as f64, (thousandths as f64 / 1e3).min(highest));
        [(from, mean), (from + SECONDS_A_ROW as f64, mean)]
    };
    means.filter(|&(second, _)| second >= -6).flat_map(corners).collect()
}
