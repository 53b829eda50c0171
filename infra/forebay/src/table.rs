//! Text in columns.

/// Between two columns.
const GAP: &str = "  ";

/// Widths of a table's columns, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Widths<const N: usize>([usize; N]);

impl<const N: usize> Widths<N> {
    /// Widths that fit every one of `rows`.
    pub(crate) fn fitting<'a>(rows: impl IntoIterator<Item = &'a [String; N]>) -> Self {
        let mut widths = [0; N];
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        Self(widths)
    }

    /// `row` as one line. A cell that is wider than its column pushes the rest aside.
    pub(crate) fn line(&self, row: &[String; N]) -> String {
        let cells = self.0.iter().zip(row);
        let padded: Vec<String> = cells.map(|(&width, cell)| format!("{cell:<width$}")).collect();
        padded.join(GAP).trim_end().to_owned()
    }
}

/// `head` and `rows` as lines.
pub(crate) fn lines<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let head = head.map(str::to_owned);
    let widths = Widths::fitting(rows.iter().chain([&head]));
    [&head].into_iter().chain(rows).map(|row| widths.line(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_any_script() {
        let rows = [["é東".to_owned(), "x".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(lines(["a", "b"], &rows), ["a       b", "é東      x", "longer"]);
    }

    #[test]
    fn a_cell_that_does_not_fit_is_shown_whole() {
        let widths = Widths::fitting([&["ab".to_owned(), "c".to_owned()]]);
        assert_eq!(widths.line(&["abcd".to_owned(), "e".to_owned()]), "abcd  e");
    }
}
