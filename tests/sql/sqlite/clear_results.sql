DELETE FROM temp.results
