# shellcheck shell=bash
# What scripts that check the repository share: the list of modules, and phases with their times.

# list FORMAT: what FORMAT says of each package of all modules of go.work, the root's first. Imports
# are not resolved: that takes most of the time of go list, and no FORMAT here asks for them.
list() {
  local dirs
  mapfile -t dirs < <(go list -m -f '{{.Dir}}/...')
  go list -find -f "$1" "${dirs[@]}"
}

# modules: the directories of all modules of go.work that hold packages, the root's first.
modules() { list '{{.Module.Dir}}' | uniq; }

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
