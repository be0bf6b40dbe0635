SELECT a.pipeline AS name FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
 WHERE a.pipeline > ? ORDER BY a.pipeline LIMIT 1
