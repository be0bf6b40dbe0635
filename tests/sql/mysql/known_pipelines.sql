SELECT d.pipeline FROM ductwork_definitions d
UNION SELECT w.pipeline FROM ductwork_processes w WHERE w.pipeline IS NOT NULL
UNION SELECT p.pipeline FROM ductwork_pauses p
ORDER BY pipeline LIMIT ?
