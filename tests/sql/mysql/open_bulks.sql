SELECT k.id, k.verb, k.selection, k.definition, k.newest, k.dealt, k.done, k.skipped, k.failed, k.failures,
       k.created_at, k.by_whom, k.channel, k.ended_at, k.stopped_by
  FROM ductwork_bulks k WHERE k.ended_at IS NULL AND k.id > ? ORDER BY k.id LIMIT ?
