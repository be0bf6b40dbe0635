DELETE FROM ductwork_deadlines WHERE ductwork_deadlines.branch_id = ANY ($1::uuid[]) AND answer_by <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
