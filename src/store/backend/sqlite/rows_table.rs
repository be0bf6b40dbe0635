//! A packed batch as a table in SQLite: `ductwork_rows(blob)` with the columns `c0`, `c1`, …, and for
//! each batch of `batch` a function with the names of its columns, such as `batch_results(blob)`.
//!
//! Owns: the table-valued functions that the `{rows:…}` fragment reads on SQLite, in the form that
//! SQLite requires. Never: knows the contents of the blob (`packed` does, and it takes any bytes), or
//! keeps anything longer than a scan.
//!
//! ADR 12 explains why this is not JSON and `json_each`.
#![expect(unsafe_code, reason = "SQLite is asked in C, and asks back in C")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use libsqlite3_sys::{
    SQLITE_CONSTRAINT, SQLITE_ERROR, SQLITE_INDEX_CONSTRAINT_EQ, SQLITE_OK, SQLITE_TRANSIENT,
    SQLITE_UTF8, sqlite3, sqlite3_context, sqlite3_create_module_v2, sqlite3_declare_vtab,
    sqlite3_index_info, sqlite3_int64, sqlite3_module, sqlite3_result_blob64, sqlite3_result_int64,
    sqlite3_result_null, sqlite3_result_text64, sqlite3_value, sqlite3_value_blob,
    sqlite3_value_bytes, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, ffi};

use super::packed::{Cell, Packed};
use crate::store::batch;

/// No fragment has more columns than this.
pub(super) const COLUMNS: usize = 40;

/// One of the functions.
struct Function {
    name: CString,
    /// Its columns, followed by its argument as the last column.
    declaration: CString,
    columns: c_int,
}

impl Function {
    fn new(name: &str, columns: &[String]) -> Self {
        let quoted: Vec<String> = columns
            .iter()
            .map(|column| format!("\"{column}\""))
            .collect();
        let declaration = format!("CREATE TABLE x({}, batch HIDDEN)", quoted.join(", "));
        let text = |text: String| CString::new(text).expect("names have no zero in them");
        Self {
            name: text(name.to_owned()),
            declaration: text(declaration),
            columns: columns.len() as c_int,
        }
    }
}

/// Each function stays in its place: SQLite receives its address.
static FUNCTIONS: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let plain: Vec<String> = (0..COLUMNS).map(|index| format!("c{index}")).collect();
    let named = batch::NAMES.iter().map(|name| {
        let columns = batch::columns(name);
        let columns: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Function::new(&format!("batch_{name}"), &columns)
    });
    std::iter::once(Function::new("ductwork_rows", &plain))
        .chain(named)
        .collect()
});

/// Registers the functions with a connection. Statements with `{rows:…}` do not run without them.
pub fn register(conn: &Connection) -> rusqlite::Result<()> {
    for function in FUNCTIONS.iter() {
        // SAFETY: the handle is open while `conn` lives, and only this thread uses it; the name, the
        // module and the function, which nobody writes to, live as long as the process.
        let code = unsafe {
            sqlite3_create_module_v2(
                conn.handle(),
                function.name.as_ptr(),
                &raw const MODULE,
                ptr::from_ref(function).cast_mut().cast(),
                None,
            )
        };
        if code != SQLITE_OK {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        }
    }
    Ok(())
}

/// Without `xCreate` it cannot be used in `CREATE VIRTUAL TABLE`: it is only a function.
static MODULE: sqlite3_module = sqlite3_module {
    iVersion: 1,
    xCreate: None,
    xConnect: Some(connect),
    xBestIndex: Some(best_index),
    xDisconnect: Some(disconnect),
    xDestroy: None,
    xOpen: Some(open),
    xClose: Some(close),
    xFilter: Some(filter),
    xNext: Some(next),
    xEof: Some(eof),
    xColumn: Some(column),
    xRowid: Some(rowid),
    xUpdate: None,
    xBegin: None,
    xSync: None,
    xCommit: None,
    xRollback: None,
    xFindFunction: None,
    xRename: None,
    xSavepoint: None,
    xRelease: None,
    xRollbackTo: None,
    xShadowName: None,
    xIntegrity: None,
};

/// A function on a connection. SQLite knows only its first field.
#[repr(C)]
struct Table {
    base: sqlite3_vtab,
    columns: c_int,
}

/// A scan. SQLite knows only its first field.
#[repr(C)]
struct Cursor {
    base: sqlite3_vtab_cursor,
    batch: Packed,
    row: usize,
}

/// # Safety
/// SQLite calls this with its connection, the function that `register` gave it, and a place for the
/// table.
unsafe extern "C" fn connect(
    db: *mut sqlite3,
    function: *mut c_void,
    _: c_int,
    _: *const *const c_char,
    table: *mut *mut sqlite3_vtab,
    _: *mut *mut c_char,
) -> c_int {
    // SAFETY: the pointer is to one of `FUNCTIONS`.
    let function = unsafe { &*function.cast_const().cast::<Function>() };
    // SAFETY: SQLite is connecting this table, which is the time to declare it.
    let code = unsafe { sqlite3_declare_vtab(db, function.declaration.as_ptr()) };
    if code == SQLITE_OK {
        let new = Table {
            base: sqlite3_vtab {
                pModule: ptr::null(),
                nRef: 0,
                zErrMsg: ptr::null_mut(),
            },
            columns: function.columns,
        };
        // SAFETY: SQLite provides the place for this; a table begins with the part that SQLite
        // knows.
        unsafe { *table = Box::into_raw(Box::new(new)).cast() };
    }
    code
}

/// # Safety
/// SQLite calls this with a table that `connect` has made, once.
unsafe extern "C" fn disconnect(table: *mut sqlite3_vtab) -> c_int {
    // SAFETY: it came from a box, and nobody uses it any more.
    drop(unsafe { Box::from_raw(table.cast::<Table>()) });
    SQLITE_OK
}

/// A valid plan has the batch first: the other tables are looked up by it.
///
/// # Safety
/// SQLite calls this with a table that `connect` has made, and a description that is valid during the
/// call.
unsafe extern "C" fn best_index(table: *mut sqlite3_vtab, info: *mut sqlite3_index_info) -> c_int {
    // SAFETY: as promised by the caller.
    let (columns, info) = unsafe { ((*table.cast::<Table>()).columns, &mut *info) };
    for index in 0..usize::try_from(info.nConstraint).unwrap_or(0) {
        // SAFETY: there are this many constraints, and as many usages.
        let constraint = unsafe { &*info.aConstraint.add(index) };
        if constraint.iColumn != columns {
            continue;
        }
        if constraint.usable == 0 || i32::from(constraint.op) != SQLITE_INDEX_CONSTRAINT_EQ {
            return SQLITE_CONSTRAINT;
        }
        // SAFETY: as above.
        let usage = unsafe { &mut *info.aConstraintUsage.add(index) };
        usage.argvIndex = 1;
        usage.omit = 1;
        info.estimatedCost = 1.0;
        return SQLITE_OK;
    }
    // Without an argument there is nothing to read.
    SQLITE_CONSTRAINT
}

/// # Safety
/// SQLite calls this with a place for the cursor.
unsafe extern "C" fn open(_: *mut sqlite3_vtab, place: *mut *mut sqlite3_vtab_cursor) -> c_int {
    let cursor = Box::new(Cursor {
        base: sqlite3_vtab_cursor {
            // SQLite sets it.
            pVtab: ptr::null_mut(),
        },
        batch: Packed::default(),
        row: 0,
    });
    // SAFETY: SQLite provides the place for this; a cursor begins with the part that SQLite knows.
    unsafe { *place = Box::into_raw(cursor).cast() };
    SQLITE_OK
}

/// # Safety
/// SQLite calls this with a cursor that `open` has made, once.
unsafe extern "C" fn close(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: it came from a box, and nobody uses it any more.
    drop(unsafe { Box::from_raw(cursor.cast::<Cursor>()) });
    SQLITE_OK
}

/// # Safety
/// `open` has made `cursor` and `close` has not seen it, and SQLite makes one call on it at a time:
/// a connection belongs to one thread.
unsafe fn at<'a>(cursor: *mut sqlite3_vtab_cursor) -> &'a mut Cursor {
    // SAFETY: see above.
    unsafe { &mut *cursor.cast::<Cursor>() }
}

/// # Safety
/// SQLite calls this with its cursor and the values that `best_index` has requested.
unsafe extern "C" fn filter(
    cursor: *mut sqlite3_vtab_cursor,
    _: c_int,
    _: *const c_char,
    count: c_int,
    values: *mut *mut sqlite3_value,
) -> c_int {
    // SAFETY: as promised by the caller.
    let cursor = unsafe { at(cursor) };
    cursor.row = 0;
    let mut blob: &[u8] = &[];
    if count == 1 {
        // SAFETY: there is one value. Its blob is valid until the next call on this value, and has
        // this many bytes; a NULL has no blob.
        unsafe {
            let value = *values;
            let start = sqlite3_value_blob(value).cast::<u8>();
            let length = usize::try_from(sqlite3_value_bytes(value)).unwrap_or(0);
            if !start.is_null() {
                blob = std::slice::from_raw_parts(start, length);
            }
        }
    }
    match cursor.batch.read(blob) {
        Some(()) => SQLITE_OK,
        None => SQLITE_ERROR,
    }
}

/// # Safety
/// SQLite calls this with its cursor.
unsafe extern "C" fn next(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe { at(cursor) }.row += 1;
    SQLITE_OK
}

/// # Safety
/// SQLite calls this with its cursor.
unsafe extern "C" fn eof(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: as promised by the caller.
    let cursor = unsafe { at(cursor) };
    c_int::from(cursor.row >= cursor.batch.rows())
}

/// # Safety
/// SQLite calls this with its cursor and the place for the value.
unsafe extern "C" fn column(
    cursor: *mut sqlite3_vtab_cursor,
    to: *mut sqlite3_context,
    index: c_int,
) -> c_int {
    // SAFETY: as promised by the caller.
    let cursor = unsafe { at(cursor) };
    let index = usize::try_from(index).unwrap_or(COLUMNS);
    let Some(cell) = cursor.batch.cell(cursor.row, index) else {
        return SQLITE_ERROR;
    };
    // SAFETY: SQLite copies the bytes before the call returns (TRANSIENT): it may keep the
    // value longer than the cursor.
    unsafe {
        match cell {
            Cell::Null => sqlite3_result_null(to),
            Cell::Int(int) => sqlite3_result_int64(to, int),
            Cell::Text(text) => sqlite3_result_text64(
                to,
                text.as_ptr().cast(),
                text.len() as u64,
                SQLITE_TRANSIENT(),
                SQLITE_UTF8 as u8,
            ),
            Cell::Id(id) => {
                sqlite3_result_blob64(to, id.as_ptr().cast(), id.len() as u64, SQLITE_TRANSIENT())
            }
        }
    }
    SQLITE_OK
}

/// # Safety
/// SQLite calls this with its cursor and a place for the number.
unsafe extern "C" fn rowid(cursor: *mut sqlite3_vtab_cursor, to: *mut sqlite3_int64) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe { *to = at(cursor).row as sqlite3_int64 };
    SQLITE_OK
}
