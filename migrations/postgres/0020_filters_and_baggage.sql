-- Messages of one endpoint in one state, newest first, however long the history of the others is,
CREATE INDEX ductwork_deliveries_endpoint ON ductwork_deliveries (endpoint, state, id);
-- and those about runs of one pipeline.
CREATE INDEX ductwork_deliveries_pipeline ON ductwork_deliveries (pipeline, endpoint, state, id);
-- In addition to the caller's span, its `tracestate` and its `baggage`; null if it gave none.
ALTER TABLE ductwork_runs ADD COLUMN trace_state text;
ALTER TABLE ductwork_runs ADD COLUMN baggage text;
