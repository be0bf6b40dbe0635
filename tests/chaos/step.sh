# A step that keeps the ledger: one line when it starts and one when it has done its work, each
# in a single write. Arguments: the number of elements in its output (0: one value), the number of
# attempts that fail, its duration, and whether it is sick: a sick step fails until the file for its
# input exists. It forks nothing but the wait.
read -r nonce </proc/sys/kernel/random/uuid
read -r input || :
say() {
  read -r now _ </proc/uptime
  printf '%s %s %s %s %s %s %s %s %s %s %s\n' "$1" "$DUCTWORK_RUN_ID" "$DUCTWORK_STEP_ID" \
    "$DUCTWORK_EXECUTION_ID" "$DUCTWORK_ATTEMPT" "$DUCTWORK_STEP" "$nonce" "$$" "$PPID" "$now" "$2" >>ledger
}
say start "$input"
[ "$3" = 0 ] || sleep "$3"
if [ "$DUCTWORK_ATTEMPT" -le "$2" ] || { [ "$4" != 0 ] && ! [ -e "mended/$input" ]; }; then
  say fail -
  exit 1
fi
case $1 in
  0) output="\"$nonce\"" ;;
  *)
    output= element=0
    while [ "$element" -lt "$1" ]; do
      output="$output,\"$nonce:$element\"" element=$((element + 1))
    done
    output="[${output#,}]"
    ;;
esac
say end "$output"
printf '%s\n' "$output"
