//! A batch of rows as one blob: the form in which SQLite receives its `{rows:…}`.
//!
//! Owns: the form of the blob, written and read. Never: the table that reads it for SQLite
//! (`rows_table`), or any SQL. The form passes between two functions of one program; it is never
//! stored.
//!
//! Two u32: rows, columns. Then a cell for each value, row by row: its kind, and eight bytes that
//! are its number, or the start and the length of its bytes. Then these bytes. All numbers are
//! little-endian. A cell is found by counting, independent of the other cells.

use crate::store::statement::{Column, Rows};

/// Rows and columns.
const HEAD: usize = 8;
/// A kind and eight bytes.
const CELL: usize = 9;

const NULL: u8 = 0;
const INT: u8 = 1;
const TEXT: u8 = 2;
const ID: u8 = 3;

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a [u8]),
    Id(&'a [u8]),
}

/// The batch as a blob, its columns in the order in which they were added, which is the fragment's.
pub(in crate::store) fn pack(batch: &Rows<'_>) -> Vec<u8> {
    let rows = batch.columns.first().map_or(0, |(_, column)| column.len());
    let columns = batch.columns.len();
    let cells = HEAD + rows * columns * CELL;
    let mut packed = Vec::with_capacity(cells + batch.columns.iter().map(bytes).sum::<usize>());
    packed.extend_from_slice(&(rows as u32).to_le_bytes());
    packed.extend_from_slice(&(columns as u32).to_le_bytes());
    packed.resize(cells, NULL);
    for (index, (name, column)) in batch.columns.iter().enumerate() {
        assert_eq!(column.len(), rows, "{name} has a value in every row");
        let mut at = HEAD + index * CELL;
        let mut put = |packed: &mut Vec<u8>, kind: u8, eight: [u8; 8]| {
            packed[at] = kind;
            packed[at + 1..at + CELL].copy_from_slice(&eight);
            at += columns * CELL;
        };
        match column {
            Column::Ids(values) => {
                for value in values {
                    match value {
                        Some(id) => {
                            let place = append(&mut packed, id.as_bytes());
                            put(&mut packed, ID, place);
                        }
                        None => put(&mut packed, NULL, [0; 8]),
                    }
                }
            }
            Column::Texts(values) => {
                for value in values {
                    match value {
                        Some(text) => {
                            let place = append(&mut packed, text.as_bytes());
                            put(&mut packed, TEXT, place);
                        }
                        None => put(&mut packed, NULL, [0; 8]),
                    }
                }
            }
            Column::Ints(values) => {
                for value in values {
                    match value {
                        Some(int) => put(&mut packed, INT, int.to_le_bytes()),
                        None => put(&mut packed, NULL, [0; 8]),
                    }
                }
            }
        }
    }
    packed
}

/// How many bytes a column has in addition to its cells.
fn bytes((_, column): &(&'static str, Column<'_>)) -> usize {
    match column {
        Column::Ids(values) => values.len() * 16,
        Column::Texts(values) => values.iter().flatten().map(|text| text.len()).sum(),
        Column::Ints(_) => 0,
    }
}

/// Appends the bytes of a value, and returns their place.
fn append(packed: &mut Vec<u8>, bytes: &[u8]) -> [u8; 8] {
    // SQLite takes no blob of more than a gigabyte.
    let (at, length) = (packed.len() as u32, bytes.len() as u32);
    packed.extend_from_slice(bytes);
    (u64::from(at) | u64::from(length) << 32).to_le_bytes()
}

/// A packed batch. With arbitrary bytes, reading it fails at worst.
#[derive(Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    rows: usize,
    columns: usize,
}

impl Packed {
    /// Copies a blob. Returns none when the blob was not made by `pack`; an empty blob has no rows.
    pub(super) fn read(&mut self, blob: &[u8]) -> Option<()> {
        (self.rows, self.columns) = (0, 0);
        self.bytes.clear();
        self.bytes.extend_from_slice(blob);
        if blob.is_empty() {
            return Some(());
        }
        let rows = number(blob, 0)?;
        let columns = number(blob, 4)?;
        let cells = rows.checked_mul(columns)?.checked_mul(CELL)?;
        if cells.checked_add(HEAD)? > blob.len() {
            return None;
        }
        (self.rows, self.columns) = (rows, columns);
        Some(())
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// A value; none where it does not exist, or its bytes are missing.
    pub(super) fn cell(&self, row: usize, column: usize) -> Option<Cell<'_>> {
        if row >= self.rows || column >= self.columns {
            return None;
        }
        let at = HEAD + (row * self.columns + column) * CELL;
        let eight = self.bytes.get(at + 1..at + CELL)?.try_into().ok()?;
        let bytes = || {
            let place = u64::from_le_bytes(eight);
            let start = (place & u64::from(u32::MAX)) as usize;
            let end = start.checked_add((place >> 32) as usize)?;
            self.bytes.get(start..end)
        };
        match *self.bytes.get(at)? {
            NULL => Some(Cell::Null),
            INT => Some(Cell::Int(i64::from_le_bytes(eight))),
            TEXT => Some(Cell::Text(bytes()?)),
            ID => Some(Cell::Id(bytes()?)),
            _ => None,
        }
    }
}

fn number(blob: &[u8], at: usize) -> Option<usize> {
    let four = blob.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(four)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn read(blob: &[u8]) -> Option<Packed> {
        let mut packed = Packed::default();
        packed.read(blob).map(|()| packed)
    }

    #[test]
    fn a_batch_without_rows_has_none() {
        let empty = Rows::new().ids("id", Vec::<Uuid>::new()).ints("n", []);
        assert_eq!(read(&pack(&empty)).unwrap().rows(), 0);
        assert_eq!(read(&pack(&Rows::new())).unwrap().rows(), 0);
        assert_eq!(read(&[]).unwrap().rows(), 0);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_again(
            rows in prop::collection::vec(
                (any::<Option<u128>>(), any::<Option<String>>(), any::<Option<i64>>()), 0..20),
        ) {
            let batch = Rows::new()
                .optional_ids("id", rows.iter().map(|row| row.0.map(Uuid::from_u128)))
                .optional_texts("text", rows.iter().map(|row| row.1.as_deref()))
                .optional_ints("n", rows.iter().map(|row| row.2));
            let packed = read(&pack(&batch)).unwrap();
            prop_assert_eq!(packed.rows(), rows.len());
            for (at, (id, text, int)) in rows.iter().enumerate() {
                let id = id.map(u128::to_be_bytes);
                let id = id.as_ref().map_or(Cell::Null, |id| Cell::Id(id));
                prop_assert_eq!(packed.cell(at, 0), Some(id));
                let text = text.as_ref().map_or(Cell::Null, |text| Cell::Text(text.as_bytes()));
                prop_assert_eq!(packed.cell(at, 1), Some(text));
                prop_assert_eq!(packed.cell(at, 2), Some(int.map_or(Cell::Null, Cell::Int)));
                prop_assert_eq!(packed.cell(at, 3), None);
            }
            prop_assert_eq!(packed.cell(rows.len(), 0), None);
        }

        /// Anybody can write `ductwork_rows(x'…')`.
        #[test]
        fn any_bytes_can_be_read(
            rows in 0u32..9, columns in 0u32..9, rest in prop::collection::vec(0u8..5, 0..200),
        ) {
            let blob = [&rows.to_le_bytes()[..], &columns.to_le_bytes(), &rest].concat();
            for blob in [&blob[..], &rest] {
                if let Some(packed) = read(blob) {
                    for row in 0..packed.rows().min(100) {
                        for column in 0..10 {
                            packed.cell(row, column);
                        }
                    }
                }
            }
        }
    }
}
