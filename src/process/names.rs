//! The names of hosts and users, in a program that is linked statically.
//!
//! Owns: which of the C library's name services such a program asks. Never: looks up a name.
//!
//! A static glibc has the services `files` and `dns` built in. For any other service that `/etc/nsswitch.conf`
//! names, it would load a shared library and with it a second C library, of whatever version is there: usually
//! a different one in an image into which the program was copied. Nobody can predict the outcome of that.
#![expect(
    unsafe_code,
    reason = "the C library's own function for this has no safe form"
)]

/// Keeps to the built-in services, whatever is configured. Must be called before any thread is started.
pub fn keep_to_built_in_services() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // The database's address, and the user that connects to it if its URL names none.
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files")] {
        // SAFETY: the strings live for ever. The call refuses only names that it does not know, and
        // every version knows these.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}
