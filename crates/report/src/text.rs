//! How is plain text laid out? Aligned columns, wrapped paragraphs and, where allowed, ink.

/// How a piece of text stands out on a terminal that allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// As everything else.
    Plain,
    /// A heading or the answer.
    Bold,
    /// What need not be read.
    Dim,
    /// It broke.
    Red,
    /// Look here.
    Yellow,
    /// All well.
    Green,
}

impl Ink {
    /// The text in this ink; unchanged where there is no colour.
    pub(crate) fn on(self, colour: bool, text: &str) -> String {
        let code = match self {
            _ if !colour || text.is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "1;31",
            Self::Yellow => "33",
            Self::Green => "32",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// One cell: its text, and the ink it is written in.
#[derive(Debug, Clone)]
pub(crate) struct Cell(pub(crate) String, pub(crate) Ink);

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self(text.into(), Ink::Plain)
    }
}

/// Columns aligned under their heads. A column in which nothing stands is left out.
pub(crate) struct Table {
    head: Vec<(&'static str, bool)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these heads; one that starts with `<` is aligned to the left, all others to the right.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        let head = heads.iter().map(|h| h.strip_prefix('<').map_or((*h, false), |left| (left, true)));
        Self { head: head.collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines, each indented by two. A last column that does not fit is wrapped under itself.
    pub(crate) fn lines(&self, colour: bool, width: usize) -> Vec<String> {
        let used: Vec<usize> = (0..self.head.len())
            .filter(|&c| self.rows.iter().any(|row| row.get(c).is_some_and(|cell| !cell.0.is_empty())))
            .collect();
        let widest = |c: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(c)).map(|cell| length(&cell.0));
            cells.chain([length(self.head[c].0)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = used.iter().map(|&c| widest(c)).collect();
        let before_last = 2 + widths.iter().rev().skip(1).map(|w| w + 2).sum::<usize>();
        let mut out = Vec::new();
        if used.iter().any(|&c| !self.head[c].0.is_empty()) {
            let heads = used.iter().map(|&c| Cell(self.head[c].0.to_owned(), Ink::Dim)).collect::<Vec<_>>();
            out.push(self.line(&used, &widths, &heads.iter().collect::<Vec<_>>(), colour));
        }
        let empty = Cell(String::new(), Ink::Plain);
        for row in &self.rows {
            let mut cells: Vec<Cell> = used.iter().map(|&c| row.get(c).unwrap_or(&empty).clone()).collect();
            let mut rest = Vec::new();
            if let (Some(last), Some(&c)) = (cells.last_mut(), used.last())
                && self.head[c].1
                && before_last + length(&last.0) > width
            {
                let mut pieces = wrap(&last.0, width.saturating_sub(before_last).max(20)).into_iter();
                let ink = last.1;
                *last = Cell(pieces.next().unwrap_or_default(), ink);
                rest = pieces.map(|piece| format!("{:before_last$}{}", "", ink.on(colour, &piece))).collect();
            }
            out.push(self.line(&used, &widths, &cells.iter().collect::<Vec<_>>(), colour));
            out.extend(rest);
        }
        out
    }

    fn line(&self, used: &[usize], widths: &[usize], cells: &[&Cell], colour: bool) -> String {
        let mut line = String::new();
        let mut blank = 2;
        for ((&c, &width), Cell(text, ink)) in used.iter().zip(widths).zip(cells) {
            let pad = width.saturating_sub(length(text));
            let left = self.head[c].1;
            let (before, after) = if left { (0, pad) } else { (pad, 0) };
            if !text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blank + before));
                line.push_str(&ink.on(colour, text));
                blank = 0;
            } else {
                blank += before;
            }
            blank += after + 2;
        }
        line
    }
}

/// Columns that a text takes; everything printed here is one column a character.
pub(crate) fn length(text: &str) -> usize {
    text.chars().count()
}

/// Breaks a text at its spaces so that no line is longer than `width`, where a word is not longer itself.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && length(&line) + 1 + length(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        let mut table = Table::new(&["<name", "n", "nothing", "<note"]);
        table.row(vec!["a".into(), "1,000".into(), "".into(), "one two three four five six".into()]);
        table.row(vec!["longer".into(), "7".into()]);
        assert_eq!(
            table.lines(false, 40),
            [
                "  name        n  note",
                "  a       1,000  one two three four five",
                "                 six",
                "  longer      7",
            ]
        );
    }

    #[test]
    fn ink_only_where_allowed() {
        assert_eq!(Ink::Red.on(false, "x"), "x");
        assert_eq!(Ink::Red.on(true, "x"), "\u{1b}[1;31mx\u{1b}[0m");
        assert_eq!(Ink::Plain.on(true, "x"), "x");
    }

    #[test]
    fn a_word_longer_than_the_line_stays_whole() {
        assert_eq!(wrap("a verylongword b", 5), ["a", "verylongword", "b"]);
        assert!(wrap("  ", 5).is_empty());
    }
}
