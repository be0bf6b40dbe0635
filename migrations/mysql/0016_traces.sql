-- The caller's span, as the W3C's `traceparent` writes it; null where it gave none.
ALTER TABLE ductwork_runs ADD COLUMN trace_parent varchar(255);
