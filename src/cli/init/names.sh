#!/bin/sh
# A list stays a list, a name becomes a list of one; without either, the world is greeted.
input=$(cat)
case $input in
  \[*) printf '%s\n' "$input" ;;
  \"*) printf '[%s]\n' "$input" ;;
  *) printf '["world"]\n' ;;
esac
