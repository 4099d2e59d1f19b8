#!/usr/bin/env bash
# Checks the subjects of the commits that are not on origin/main yet: at most 72 characters, no
# period at the end, and an imperative ("fix", not "fixed", "fixes" or "fixing"), also after the
# area ("kafka: stop when a topic is recreated").
# usage: scripts/commits.sh [RANGE]     default origin/main..HEAD; without origin/main nothing is new
#        scripts/commits.sh -           lines of a hash and a subject, from standard input
set -euo pipefail
cd "$(dirname "$0")/.."

range=${1:-origin/main..HEAD}
if [ $# = 0 ] && ! git rev-parse --quiet --verify origin/main > /dev/null; then
  echo "commits: there is no origin/main to compare with: nothing was checked"
  exit 0
fi

# Forms that are no imperative, of the verbs that begin most subjects. "tests" and "names" are nouns.
verbs='add|allow|ask|break|build|chang|check|clean|clos|convert|copi|delet|document|dropp|explain|fix|handl|improv|introduc|measur|merg|mov|nam|pass|prov|refus|remov|renam|replac|report|rewrit|rework|show|start|stopp|support|test|turn|updat|us|wait'
wrong="^(($verbs)(ed|ing)|adds|allows|converts|deletes|drops|explains|fixes|gives|introduces|keeps|lets|makes|puts|refuses|removes|renames|replaces|says|stops|updates)$"

check() { # SUBJECT: prints what is wrong
  local rest=${1#*: } word
  [ ${#1} -le 72 ] || echo "has ${#1} characters, at most 72 are allowed"
  case $1 in *.) echo "ends with a period" ;; esac
  word=${rest%% *}
  if [[ ${word,,} =~ $wrong ]]; then echo "\"$word\" is not an imperative"; fi
}

bad=0
while IFS= read -r line; do
  [ -n "$line" ] || continue
  while IFS= read -r fault; do
    printf '%s %s: %s\n' "${line%% *}" "${line#* }" "$fault"
    bad=1
  done < <(check "${line#* }")
done < <(if [ "$range" = - ]; then cat; else git log --no-merges --format='%h %s' "$range"; fi)
exit $bad
