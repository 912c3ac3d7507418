//! How is a figure drawn? Small inline SVG, made of text: no script, no font, nothing loaded.
//!
//! Colours and type live in the page's style sheet, so that light, dark and print are one drawing. All
//! drawings share one width, in units that the page scales: a card on a wide screen, the whole width of a phone.

pub(crate) mod chart;
pub(crate) mod curve;
pub(crate) mod fit;
pub(crate) mod load_mark;
pub(crate) mod percentiles;
pub(crate) mod scale;

/// The width of every drawing.
pub(crate) const WIDTH: f64 = 440.0;

/// Text made safe inside an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in XML, however written.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate with one decimal; what is not a number is drawn at the origin rather than breaking the page.
pub(crate) fn at(x: f64) -> String {
    if !x.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{x:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// One line of text at a point. `class` names its look and its anchor (`end`, `mid`, or the start).
pub(crate) fn text(x: f64, y: f64, class: &str, words: &str) -> String {
    format!("<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>", at(x), at(y), escape(words))
}

/// A straight line.
pub(crate) fn line(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> String {
    format!(
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{class}\"/>",
        at(x1),
        at(y1),
        at(x2),
        at(y2)
    )
}

/// A rectangle.
pub(crate) fn rect(x: f64, y: f64, width: f64, height: f64, class: &str) -> String {
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{class}\"/>",
        at(x),
        at(y),
        at(width.max(0.0)),
        at(height.max(0.0))
    )
}

/// A disc.
pub(crate) fn dot(x: f64, y: f64, radius: f64, class: &str) -> String {
    format!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{class}\"/>", at(x), at(y), at(radius))
}

/// The whole drawing, with its name and description for those who cannot see it.
pub(crate) fn drawing(
    id: &str,
    height: f64,
    title: &str,
    description: &str,
    extra: &str,
    body: &str,
) -> String {
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {}\" aria-labelledby=\"{id}-t {id}-d\"{extra}>\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>",
        at(height),
        escape(title),
        escape(description)
    )
}

/// Moves labels apart so that no two are closer than `gap`, each as near as may be to where it wants to be
/// and all between `top` and `bottom`. `wanted` must be sorted.
pub(crate) fn apart(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let room = (bottom - top).max(0.0);
    let gap = if wanted.len() > 1 { gap.min(room / (wanted.len() - 1) as f64) } else { gap };
    // Blocks of labels that touch: each block sits at the mean of what its labels want.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    let half = |count: usize| gap * (count.saturating_sub(1)) as f64 / 2.0;
    let within = |centre: f64, count: usize| {
        centre.clamp(top + half(count), (bottom - half(count)).max(top + half(count)))
    };
    for &y in wanted {
        let mut block = (within(y, 1), 1);
        while let Some(&(centre, count)) = blocks.last() {
            if centre + half(count) + gap <= block.0 - half(block.1) + 1e-9 {
                break;
            }
            blocks.pop();
            let all = count + block.1;
            let start = (centre * count as f64 + block.0 * block.1 as f64) / all as f64;
            block = (within(start, all), all);
        }
        blocks.push(block);
    }
    let mut out = Vec::with_capacity(wanted.len());
    for (centre, count) in blocks {
        out.extend((0..count).map(|i| centre - half(count) + gap * i as f64));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_apart_and_inside() {
        assert_eq!(apart(&[10.0, 50.0], 12.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(apart(&[50.0, 50.0], 12.0, 0.0, 100.0), [44.0, 56.0]);
        assert_eq!(apart(&[-5.0, 0.0, 99.0], 12.0, 0.0, 100.0), [0.0, 12.0, 99.0]);
        let crowd = apart(&[98.0; 6], 20.0, 0.0, 100.0);
        assert!(crowd[0] >= -1e-6 && crowd[5] <= 100.0 + 1e-6);
        assert!(apart(&[], 10.0, 0.0, 1.0).is_empty());
    }

    #[test]
    fn coordinates_never_break_the_page() {
        assert_eq!(
            (at(1.0), at(1.26), at(-0.01), at(f64::NAN)),
            ("1".into(), "1.3".into(), "0".into(), "0".into())
        );
    }
}
