//! Makes the README's picture of the console from one of the screens that the tests recorded:
//!
//! ```text
//! cargo run -p tt-console --example picture >docs/console.svg
//! ```

use std::fmt::Write as _;
use std::io::Write as _;

/// What the console shows after a crash and its takeover, on 100 columns.
const SCREEN: &str = include_str!("../tests/screens/taken-over-100.txt");

/// The size of one character.
const WIDTH: f32 = 8.4;
const HEIGHT: usize = 18;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(svg(SCREEN).as_bytes())
}

/// A recorded screen as a picture: each line is cut where the style changes.
fn svg(screen: &str) -> String {
    let (text, styles) = screen.split_once("== styles\n").unwrap_or((screen, ""));
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = (WIDTH * columns as f32 + 20.0, HEIGHT * text.lines().count() + 20);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1c1c1c\"/>\n"
    );
    for (row, (line, styles)) in text.lines().zip(styles.lines().chain(std::iter::repeat(""))).enumerate() {
        let (chars, styles): (Vec<char>, Vec<char>) = (line.chars().collect(), styles.chars().collect());
        let style_at = |at: usize| styles.get(at).copied().unwrap_or(' ');
        let mut at = 0;
        while at < chars.len() {
            let end = (at..chars.len()).find(|end| style_at(*end) != style_at(at)).unwrap_or(chars.len());
            let part: String = chars[at..end].iter().collect();
            if !part.trim().is_empty() || style_at(at) == 'r' {
                draw(&mut svg, row, at, &part, style_at(at));
            }
            at = end;
        }
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, row: usize, column: usize, part: &str, style: char) {
    let (x, y) = (10.0 + WIDTH * column as f32, 10 + HEIGHT * row);
    let long = WIDTH * part.chars().count() as f32;
    if style == 'r' {
        let _ =
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{long:.1}\" height=\"{HEIGHT}\" fill=\"#d0d0d0\"/>");
    }
    let look = match style {
        'b' => "fill=\"#ffffff\" font-weight=\"bold\"",
        'd' => "fill=\"#808080\"",
        'r' => "fill=\"#1c1c1c\"",
        'Y' => "fill=\"#d7af5f\"",
        'R' => "fill=\"#d75f5f\"",
        'G' => "fill=\"#87af5f\"",
        _ => "fill=\"#d0d0d0\"",
    };
    let part = part.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let y = y + HEIGHT - 5;
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y}\" textLength=\"{long:.1}\" xml:space=\"preserve\" {look}>{part}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_what_the_console_shows() {
        let kept = include_str!("../../docs/console.svg");
        assert!(kept == svg(SCREEN), "make it again: cargo run -p tt-console --example picture >docs/console.svg");
    }
}
