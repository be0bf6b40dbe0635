SELECT x.pipeline, x.digest, x.versions
  FROM (SELECT d.pipeline, d.digest, count(*) OVER (PARTITION BY d.pipeline) AS versions,
               row_number() OVER (PARTITION BY d.pipeline ORDER BY d.created_at DESC, d.digest DESC) AS place
          FROM ductwork_definitions d) x
 WHERE x.place = 1 ORDER BY x.pipeline LIMIT $1
