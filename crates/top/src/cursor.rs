//! The position of the user in one pane's table: chosen row, scroll offset, order and filter.

/// The position in one pane's table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// The number and id of the chosen row. While a row with this id exists, the id decides.
    pub index: usize,
    pub id: Option<String>,
    /// The first row on the screen.
    pub offset: usize,
    /// Number of rows on the screen; set when the table is drawn.
    pub page: usize,
    /// Index into the table's orders.
    pub sort: usize,
    pub reverse: bool,
    pub filter: String,
}
