# shellcheck shell=bash
# What scripts that check the repository share: the list of modules, and phases with their times.

# modules: the directories of all modules of go.work that hold packages, the root's first.
modules() {
  local dir
  go list -m -f '{{.Dir}}' | while read -r dir; do
    if [ -n "$(go -C "$dir" list ./... 2> /dev/null)" ]; then echo "$dir"; fi
  done
}

# phase NAME COMMAND...: runs the command and says how long it took, whatever came of it. The
# command must be a program or a function whose last command tells its success: bash ignores
# `set -e` inside, as it does in every command whose result is looked at.
phase() {
  local name=$1 started=$SECONDS code=0
  shift
  printf '== %s\n' "$name"
  "$@" || code=$?
  printf '== %s: %s after %d s\n' "$name" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((SECONDS - started))
  return $code
}
