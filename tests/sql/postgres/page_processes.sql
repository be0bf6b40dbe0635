SELECT p.id, p.host, p.pid, CAST(0 AS bigint) AS gone, NULL AS death, NULL AS went_on_as
  FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_processes p ON p.id = ANY (ARRAY[b.id])
UNION ALL
SELECT d.id, d.host, d.pid, CAST(1 AS bigint), d.death, d.went_on_as
  FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_departed d ON d.id = ANY (ARRAY[b.id])
