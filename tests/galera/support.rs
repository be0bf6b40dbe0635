//! A database in the form that the driver of the store's tests expects.

use ductwork::store::{Conn, Location, Purpose};

/// A database at one node.
#[derive(Clone)]
pub struct Db {
    /// Its address.
    pub url: String,
    /// How to connect to it.
    pub location: Location,
}

impl Db {
    /// A connection to the database, which has its schema.
    pub async fn conn(&self) -> Conn {
        let conn = self.location.connect(Purpose::Engine).await;
        conn.expect("the test's database")
    }
}
