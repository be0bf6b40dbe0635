INSERT INTO ductwork_runs
    (id, pipeline, definition, status, input, output, triggered_at, completed_at)
SELECT UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70018', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), ?, ?, 'completed', 'null', 'null',
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? + n, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? + n
  FROM (WITH RECURSIVE numbers(n) AS (SELECT CAST(? AS SIGNED) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) SELECT n FROM numbers) AS series
