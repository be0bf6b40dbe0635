SELECT a.id, a.at, substr(a.by_whom, 1, 1000) AS by_whom, substr(a.channel, 1, 1000) AS channel,
       substr(a.verb, 1, 1000) AS verb, substr(a.pipeline, 1, 1000) AS pipeline, a.run_id, a.made_run,
       a.bulk_id
  FROM ductwork_actions a WHERE a.run_id = ? AND a.id < ?
 ORDER BY a.run_id DESC, a.id DESC LIMIT ?
