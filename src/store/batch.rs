//! The batches of the hot operations: the columns of each.
//!
//! Owns: the only declaration of each batch: its columns as SQL names them (`{rows:results}`), and the struct that
//! a row is made from. Never: the use of the batches.

use uuid::Uuid;

use super::statement::{Column, Rows};

/// Sorted keys, for the rows of a batch: locks are taken in one order, and some databases take them in the order of
/// the batch.
pub(super) fn in_order<T: Ord>(keys: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut keys: Vec<T> = keys.into_iter().collect();
    keys.sort_unstable();
    keys
}

/// The type of a column; any value may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A key.
    Id,
    /// A text.
    Text,
    /// A whole number.
    Int,
}

impl Kind {
    /// The name of the type in a fragment.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Text => "text",
            Self::Int => "int",
        }
    }

    /// The type with this name in a fragment.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "id" => Self::Id,
            "text" => Self::Text,
            "int" => Self::Int,
            other => unreachable!("unknown column type {other:?}"),
        }
    }
}

/// A column of a batch.
pub(super) type Declared = (&'static str, Kind);

/// The names of all batches.
pub(super) const NAMES: [&str; 3] = ["results", "held", "new_runs"];

/// The columns of a batch.
pub(super) fn columns(batch: &str) -> Vec<Declared> {
    match batch {
        "results" => ResultRow::COLUMNS.to_vec(),
        // The results that the guard let through, and whether each is the last at its barrier.
        "held" => [ResultRow::COLUMNS, &[("last", Kind::Int)]].concat(),
        "new_runs" => NewRunRow::COLUMNS.to_vec(),
        _ => unreachable!("there is no batch {batch:?}"),
    }
}

/// A value of a row.
trait Value<'a> {
    const KIND: Kind;
    fn put(self, to: &mut Column<'a>);
}

macro_rules! values {
    ($($type:ty, $kind:ident, $column:ident;)*) => {$(
        impl<'a> Value<'a> for Option<$type> {
            const KIND: Kind = Kind::$kind;
            fn put(self, to: &mut Column<'a>) {
                match to {
                    Column::$column(values) => values.push(self),
                    _ => unreachable!("a column has one kind"),
                }
            }
        }
        impl<'a> Value<'a> for $type {
            const KIND: Kind = Kind::$kind;
            fn put(self, to: &mut Column<'a>) {
                Some(self).put(to);
            }
        }
    )*};
}

values! {
    Uuid, Id, Ids;
    &'a str, Text, Texts;
    i64, Int, Ints;
}

fn column<'a>(kind: Kind, rows: usize) -> Column<'a> {
    match kind {
        Kind::Id => Column::Ids(Vec::with_capacity(rows)),
        Kind::Text => Column::Texts(Vec::with_capacity(rows)),
        Kind::Int => Column::Ints(Vec::with_capacity(rows)),
    }
}

macro_rules! batch {
    ($(#[$doc:meta])* struct $name:ident { $($column:ident: $type:ty,)* }) => {
        $(#[$doc])*
        pub(super) struct $name<'a> {
            $(pub(super) $column: $type,)*
        }

        impl<'a> $name<'a> {
            const COLUMNS: &'static [Declared] =
                &[$((stringify!($column), <$type as Value<'a>>::KIND)),*];

            /// The rows, by column.
            pub(super) fn batch(rows: impl ExactSizeIterator<Item = Self>) -> Rows<'a> {
                $(let mut $column = column(<$type as Value<'a>>::KIND, rows.len());)*
                for row in rows {
                    $(row.$column.put(&mut $column);)*
                }
                Rows {
                    columns: vec![$((stringify!($column), $column)),*],
                }
            }
        }
    };
}

batch! {
    /// A result, and everything that follows from it. Ids of rows that are not written are absent.
    struct ResultRow {
        execution_id: Uuid,
        result: &'a str,
        error_class: Option<&'a str>,
        error_message: Option<&'a str>,
        error_backtrace: Option<&'a str>,
        log: Option<&'a str>,
        step_id: Uuid,
        run_id: Uuid,
        branch_id: Uuid,
        step_status: Option<&'a str>,
        output: Option<&'a str>,
        ready: i64,
        ends: i64,
        transition_id: Option<Uuid>,
        via: Option<&'a str>,
        produced: i64,
        advancement_id: Option<Uuid>,
        claim_token: Option<Uuid>,
        next_step_id: Option<Uuid>,
        next_ordinal: i64,
        next_node: Option<&'a str>,
        next_step: Option<&'a str>,
        attempt_id: Option<Uuid>,
        attempt_step_id: Option<Uuid>,
        attempt: Option<i64>,
        retry_count: Option<i64>,
        crash_count: Option<i64>,
        leased: i64,
        due_in: Option<i64>,
        arrives_at: Option<Uuid>,
    }
}

batch! {
    /// A run: its key, its input, and the keys of its first rows.
    struct NewRunRow {
        id: Uuid,
        input: &'a str,
        trigger_key: Option<&'a str>,
        branch_id: Uuid,
        step_id: Uuid,
        execution_id: Uuid,
    }
}
