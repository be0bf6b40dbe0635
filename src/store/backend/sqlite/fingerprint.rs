//! `ductwork_fingerprint(id, salt, weight)`: the sum of the hashes of a column of ids, as an
//! aggregate function for SQLite.
//!
//! Owns: the only aggregate that the `{fingerprint:…}` fragment calls on SQLite, in the form that
//! SQLite requires. Never: compares anything (`audit_prefilter` does).
#![expect(unsafe_code, reason = "SQLite asks in C")]

use std::ffi::{CStr, c_int};
use std::{ptr, slice};

use libsqlite3_sys::{
    SQLITE_DETERMINISTIC, SQLITE_NULL, SQLITE_OK, SQLITE_UTF8, sqlite3_aggregate_context,
    sqlite3_context, sqlite3_create_function_v2, sqlite3_result_error_nomem, sqlite3_result_int64,
    sqlite3_value, sqlite3_value_blob, sqlite3_value_bytes, sqlite3_value_int64,
    sqlite3_value_type,
};
use rusqlite::{Connection, ffi};

const NAME: &CStr = c"ductwork_fingerprint";

/// The id, the salt that it is hashed together with (or null), and its weight.
const ARGUMENTS: usize = 3;

/// Registers the function with a connection. Statements with `{fingerprint:…}` do not run without
/// it.
pub fn register(conn: &Connection) -> rusqlite::Result<()> {
    // SAFETY: the handle is open while `conn` lives, and only this thread uses it; the name is
    // static, and the functions follow SQLite's rules for an aggregate.
    let code = unsafe {
        sqlite3_create_function_v2(
            conn.handle(),
            NAME.as_ptr(),
            ARGUMENTS as c_int,
            SQLITE_UTF8 | SQLITE_DETERMINISTIC,
            ptr::null_mut(),
            None,
            Some(step),
            Some(last),
            None,
        )
    };
    match code {
        SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// # Safety
/// SQLite calls this for each row, with the arguments that the function was registered with.
unsafe extern "C" fn step(to: *mut sqlite3_context, _: c_int, values: *mut *mut sqlite3_value) {
    // SAFETY: there are this many values, valid during the call.
    let [id, salt, weight] = unsafe { [*values, *values.add(1), *values.add(2)] };
    // SAFETY: as above; a null has no type but its own.
    if unsafe { sqlite3_value_type(id) } == SQLITE_NULL {
        return;
    }
    // SAFETY: SQLite returns the same memory for each row of a group, zeroed for the first row, and
    // aligned for any number; or null when memory has run out.
    unsafe {
        let sum = sqlite3_aggregate_context(to, size_of::<u64>() as c_int).cast::<u64>();
        if sum.is_null() {
            return sqlite3_result_error_nomem(to);
        }
        let hash = hash(bytes(id), hash(bytes(salt), 0));
        let times = sqlite3_value_int64(weight) as u64;
        *sum = (*sum).wrapping_add(hash.wrapping_mul(times));
    }
}

/// # Safety
/// SQLite calls this once, after the last row.
unsafe extern "C" fn last(to: *mut sqlite3_context) {
    // SAFETY: the sum that `step` computed, or null where `step` was never called.
    unsafe {
        let sum = sqlite3_aggregate_context(to, 0).cast::<u64>();
        let sum = if sum.is_null() { 0 } else { *sum };
        sqlite3_result_int64(to, sum as i64);
    }
}

/// # Safety
/// The value belongs to a call under way; its bytes are valid until the next call on this value.
unsafe fn bytes<'a>(value: *mut sqlite3_value) -> &'a [u8] {
    // SAFETY: a blob has this many bytes; a null, and an empty one, has none.
    unsafe {
        let start = sqlite3_value_blob(value).cast::<u8>();
        let length = usize::try_from(sqlite3_value_bytes(value)).unwrap_or(0);
        match start.is_null() {
            true => &[],
            false => slice::from_raw_parts(start, length),
        }
    }
}

/// Every bit of the result depends on every bit of the input.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(seed), |hash, word| {
        mix(hash.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15))
    })
}

/// The last step of splitmix64: one to one, and similar inputs have dissimilar results.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn hashes_of_ids_that_are_alike_are_not() {
        let mut seen = BTreeSet::new();
        for bit in 0..128 {
            let id = (1_u128 << bit).to_be_bytes();
            assert!(seen.insert(hash(&id, 0)), "bit {bit}");
            assert!(seen.insert(hash(&id, 1)), "bit {bit}, with a salt");
        }
        let far = |a: u64, b: u64| (a ^ b).count_ones() > 10;
        let all: Vec<u64> = seen.into_iter().collect();
        assert!(all.windows(2).all(|pair| far(pair[0], pair[1])));
    }
}
