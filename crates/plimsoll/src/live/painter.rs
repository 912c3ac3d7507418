//! How does a block of lines stay in place, with nothing asked of the terminal?
//!
//! The cursor always rests below the block, at the start of a line, and is never hidden; to draw anew it goes up
//! by as many lines as were drawn. So nothing needs to be undone when the process is killed, and neither raw mode
//! nor the cursor's position is needed. (ratatui's own inline viewport asks for that position, and crossterm
//! asks on standard output, where a JSON result may be going, and in raw mode.)

use std::io::Write;
use std::os::fd::AsFd;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// What follows is to appear all at once; terminals that do not know this ignore it.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const CLEAR_TO_LINE_END: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const PLAIN: &str = "\x1b[0m";

/// Keeps one block of lines at the bottom of a terminal.
pub(super) struct Painter<W> {
    out: W,
    colour: bool,
    /// Columns written in each line of the block as it stands; empty: it does not.
    drawn: Vec<u16>,
    /// Columns that the terminal had then.
    columns: u16,
    /// Lines to be written above the block.
    said: Vec<String>,
}

impl<W: Write + AsFd> Painter<W> {
    pub(super) fn new(out: W, colour: bool) -> Self {
        Self { out, colour, drawn: Vec::new(), columns: 0, said: Vec::new() }
    }

    /// Columns and rows of the terminal; `None`: it does not tell.
    pub(super) fn size(&self) -> Option<(u16, u16)> {
        let size = tcgetwinsize(&self.out).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
    }

    /// Whether the terminal is ours to draw on: not so after Ctrl-Z and `bg`.
    pub(super) fn in_foreground(&self) -> bool {
        tcgetpgrp(&self.out).map_or(true, |group| group == getpgrp())
    }

    /// Whether the terminal takes output just now: not so after Ctrl-S, and the run must not wait for it.
    fn takes_output(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], Some(&at_once)).is_ok_and(|n| n > 0)
    }

    /// Has a line written above the block when it is next drawn.
    pub(super) fn say(&mut self, line: String) {
        self.said.push(line);
    }

    /// Draws the block in the place of what it was before.
    pub(super) fn paint(&mut self, block: &Buffer, columns: u16) {
        if !self.in_foreground() {
            // Others write here now: whatever was drawn is left to them.
            self.drawn.clear();
            return;
        }
        if self.takes_output() {
            let text = self.text(block, columns);
            self.write(&text);
        }
    }

    /// Removes the block; what was said stays.
    pub(super) fn clear(&mut self) {
        let mut text = BEGIN.to_owned() + &self.up(self.columns) + CLEAR_BELOW;
        for line in self.said.drain(..) {
            text += &format!("{line}\r\n");
        }
        text += END;
        self.drawn.clear();
        self.write(&text);
    }

    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    /// All that has to be written to draw the block.
    fn text(&mut self, block: &Buffer, columns: u16) -> String {
        let mut text = BEGIN.to_owned() + &self.up(columns);
        for line in self.said.drain(..) {
            text += &format!("{line}{CLEAR_TO_LINE_END}\r\n");
        }
        self.drawn.clear();
        self.columns = columns;
        for y in block.area.rows() {
            let cells: Vec<&Cell> = y.columns().map(|at| &block[(at.x, at.y)]).collect();
            let (line, width) = row(&cells, self.colour);
            text += &format!("{line}{CLEAR_TO_LINE_END}\r\n");
            self.drawn.push(width);
        }
        text + CLEAR_BELOW + END
    }

    /// To the first line of the block as it stands now.
    fn up(&self, columns: u16) -> String {
        // Lines that no longer fit were wrapped by the terminal when it became narrower.
        let rows: u16 = if columns >= self.columns {
            self.drawn.len() as u16
        } else {
            self.drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum()
        };
        if rows == 0 { "\r".to_owned() } else { format!("\r\x1b[{rows}A") }
    }
}

/// One line of a block, and how many columns of it are written.
fn row(cells: &[&Cell], colour: bool) -> (String, u16) {
    let end = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut ink = String::new();
    let mut at = 0;
    while at < end {
        let cell = cells[at];
        if colour {
            let wanted = ink_of(cell);
            if wanted != ink {
                text += if wanted.is_empty() { PLAIN } else { &wanted };
                ink = wanted;
            }
        }
        text += cell.symbol();
        // A wide character covers the cell after it.
        at += Span::raw(cell.symbol()).width().max(1);
    }
    if !ink.is_empty() {
        text += PLAIN;
    }
    (text, at as u16)
}

/// The escape sequence that sets a cell's style, whatever it was before; empty: plain.
fn ink_of(cell: &Cell) -> String {
    let mut codes = String::new();
    if cell.modifier.contains(Modifier::BOLD) {
        codes += ";1";
    }
    if cell.modifier.contains(Modifier::DIM) {
        codes += ";2";
    }
    codes += match cell.fg {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    };
    if codes.is_empty() { codes } else { format!("\x1b[0{codes}m") }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ratatui::style::Style;

    use super::*;

    fn painter(colour: bool) -> Painter<File> {
        Painter::new(File::open("/dev/null").unwrap(), colour)
    }

    fn block(lines: &[&str]) -> Buffer {
        Buffer::with_lines(lines.iter().copied())
    }

    #[test]
    fn a_block_is_drawn_over_the_one_before() {
        let mut p = painter(true);
        let first = p.text(&block(&["one", "two"]), 80);
        assert_eq!(first, "\x1b[?2026h\rone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J\x1b[?2026l");
        p.say("kept".to_owned());
        let second = p.text(&block(&["three"]), 80);
        assert_eq!(second, "\x1b[?2026h\r\x1b[2Akept\x1b[K\r\nthree\x1b[K\r\n\x1b[J\x1b[?2026l");
    }

    #[test]
    fn lines_that_a_narrower_terminal_wrapped_are_counted() {
        let mut p = painter(true);
        p.text(&block(&["a line of twenty-one c", "short", ""]), 80);
        assert_eq!(p.up(80), "\r\x1b[3A");
        assert_eq!(p.up(10), "\r\x1b[5A");
        assert_eq!(p.up(200), "\r\x1b[3A");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, 6, 1));
        buffer.set_string(0, 0, "ab", Style::new().red().bold());
        buffer.set_string(2, 0, "cd", Style::new());
        let cells: Vec<&Cell> = buffer.content.iter().collect();
        assert_eq!(row(&cells, true), ("\x1b[0;1;31mab\x1b[0mcd".to_owned(), 4));
        assert_eq!(row(&cells, false), ("abcd".to_owned(), 4));
    }

    #[test]
    fn a_wide_character_is_written_once() {
        let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, 6, 1));
        buffer.set_string(0, 0, "深x", Style::new());
        let cells: Vec<&Cell> = buffer.content.iter().collect();
        assert_eq!(row(&cells, true), ("深x".to_owned(), 3));
    }
}
