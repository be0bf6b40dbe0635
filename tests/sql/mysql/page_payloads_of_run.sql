SELECT CAST(octet_length(r.input) AS SIGNED) AS input_size,
       CASE WHEN octet_length(r.input) <= ? THEN r.input ELSE substr(r.input, 1, 1000) END AS input,
       CAST(octet_length(r.output) AS SIGNED) AS output_size,
       CASE WHEN octet_length(r.output) <= ? THEN r.output ELSE substr(r.output, 1, 1000) END AS output
  FROM ductwork_runs r WHERE r.id = ? AND r.pruning_at IS NULL
