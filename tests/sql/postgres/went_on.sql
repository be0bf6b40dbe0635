UPDATE ductwork_departed SET went_on_as = $1 WHERE id = $2
