SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
                     WHERE r.status = 'completed' AND r.pipeline = b.pipeline
                       AND r.revived_from IS NULL AND r.pruning_at IS NULL
                     ORDER BY r.pipeline DESC, r.id DESC LIMIT 1) AS id
  FROM (SELECT j.c0 AS pipeline FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b
