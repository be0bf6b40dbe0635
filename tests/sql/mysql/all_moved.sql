SET @d_whole = 9223372036854775807 + ((ROW_COUNT()) <> ?)
;
