# Shorthand for the commands of this project; none of them does more than it says.

# Lists the recipes.
default:
    @just --list

# Formats everything.
fmt:
    cargo fmt

# Format, lints and documentation, as the tests want them.
check:
    cargo fmt --check
    cargo clippy --locked -- -D warnings -D unnameable_types
    cargo clippy --all-targets --locked -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked

# All tests, or those that are named, with a real PostgreSQL.
test *ARGS:
    scripts/test {{ARGS}}

# Looks for texts that break what must hold of all of them.
fuzz *ARGS:
    scripts/fuzz {{ARGS}}

# Holds the HTTP API against its own description.
contract *ARGS:
    scripts/contract {{ARGS}}

# The example pipeline, on SQLite.
example:
    cargo run --release --locked -- -c examples/airports/ductwork.yml run Airports

# A PostgreSQL to try things on; prints what to put into the environment.
db-up DIR='/tmp/ductwork-postgres':
    scripts/postgres start {{DIR}}

# Stops it and deletes it.
db-down DIR='/tmp/ductwork-postgres':
    scripts/postgres remove {{DIR}}

# Everything that has to pass before a merge.
verify: check test
