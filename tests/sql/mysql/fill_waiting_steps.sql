INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70038', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70018', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70028', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), 0, ?, ?, 'start', 'in_progress', 'null', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (WITH RECURSIVE numbers(n) AS (SELECT CAST(? AS SIGNED) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) SELECT n FROM numbers) AS series
