//! The names of hosts and users, in a program that is linked statically.
//!
//! Owns: which of the C library's name services such a program asks. Never: looks up a name.
//!
//! A static glibc has the services `files` and `dns` in itself. For any other that
//! `/etc/nsswitch.conf` names it would load a shared library, and with that a second C library,
//! of whatever version is there: in an image into which the program was copied, as a rule another
//! one. Nobody knows the outcome of that.
#![expect(
    unsafe_code,
    reason = "the C library's own function for this has no safe form"
)]

/// Keeps to what is built in, whatever is configured. To be called before any thread is started.
pub fn keep_to_built_in_services() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // Where the database is, and who asks it if its URL does not say.
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files")] {
        // SAFETY: the strings live for ever. It refuses only what it does not know, and these
        // are in every version.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}
