-- The end of the attempt's stderr, if it is not in `error_backtrace` already.
ALTER TABLE ductwork_executions ADD COLUMN log text;
