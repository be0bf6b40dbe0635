SELECT CAST(octet_length(r.input) AS bigint) AS input_size,
       CASE WHEN octet_length(r.input) <= $1 THEN r.input ELSE substr(r.input, 1, 1000) END AS input,
       CAST(octet_length(r.output) AS bigint) AS output_size,
       CASE WHEN octet_length(r.output) <= $1 THEN r.output ELSE substr(r.output, 1, 1000) END AS output
  FROM ductwork_runs r WHERE r.id = $2 AND r.pruning_at IS NULL
