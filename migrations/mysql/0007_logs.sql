-- The end of what the attempt wrote to stderr, where it is not in `error_backtrace` already.
ALTER TABLE ductwork_executions ADD COLUMN log longtext;
