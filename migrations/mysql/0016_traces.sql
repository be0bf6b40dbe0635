-- The caller's span, in the form of the W3C's `traceparent`; null if the caller gave none.
ALTER TABLE ductwork_runs ADD COLUMN trace_parent varchar(255);
