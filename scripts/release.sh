#!/usr/bin/env bash
# Tries a release before there is one: what users get is not this checkout with its go.work, but each module
# alone, at a version, from a proxy.
#
#   release.sh check [VERSION]   default v0.0.1-check
#   release.sh order             the tags of a release, in the order in which they are pushed
#
# check puts every module of the last commit into a module proxy of files, at VERSION, with its requirements of
# the others at VERSION and without replace; builds each of them with GOWORK=off against that proxy; gets all that
# has a tag into a module of its own, as users do, and builds every package; and installs the command from the proxy
# in an empty directory and runs it. Nothing outside of a temporary directory is changed.
#
# Exit: 0 all of it works, 1 something does not, 2 wrong usage.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh

root=github.com/onceward/onceward

# requires: the directories of the modules of ours that the module in directory $2 of tree $1 requires.
requires() {
  (cd "$1/$2" && GOWORK=off go mod edit -json) | awk -F'"' -v root="$root" '
    /"Require"/ { in_list = 1 } /^\t\],/ { in_list = 0 }
    in_list && /"Path"/ && ($4 == root || index($4, root "/") == 1) {
      path = substr($4, length(root) + 2); print (path == "" ? "." : path)
    }'
}

# ordered: the directories of all modules of the directory tree $1, each after those that it requires.
ordered() {
  (cd "$1" && find . -name go.mod -printf '%h\n' | sed 's|^\./||' | sort) | while read -r dir; do
    echo "$dir $dir"
    requires "$1" "$dir" | sed "s|\$| $dir|"
  done | tsort
}

# path: the module path of a directory.
path() { if [ "$1" = . ]; then echo "$root"; else echo "$root/$1"; fi; }

# released: what users import or install; the rest is built, and gets no tag.
released() { case $1 in bench | examples | examples/* | internal/*) return 1 ;; esac; }

order() {
  local dir
  ordered . | while read -r dir; do
    if released "$dir"; then if [ "$dir" = . ]; then echo "$1"; else echo "$dir/$1"; fi; fi
  done
}

# publish DIR: puts a module of the tree into the proxy.
publish() {
  local dir=$1 to name nested=()
  name=$(path "$dir")
  to=$proxy/$name/@v
  mkdir -p "$to"
  while read -r inner; do nested+=("$inner/*"); done < <(cd "$tree/$dir" && find . -mindepth 2 -name go.mod -printf '%P\n' | xargs -r -n1 dirname)
  echo "$version" >> "$to/list"
  printf '{"Version":"%s","Time":"%s"}\n' "$version" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" > "$to/$version.info"
  cp "$tree/$dir/go.mod" "$to/$version.mod"
  # A zip of a module holds its files under path@version, and none of the modules below it.
  local staged=$work/zip/$name@$version
  mkdir -p "$staged"
  local exclude=()
  for inner in ${nested[@]+"${nested[@]}"}; do exclude+=(--exclude "./${inner%/\*}"); done
  (cd "$tree/$dir" && tar -cf - ${exclude[@]+"${exclude[@]}"} .) | tar -xf - -C "$staged"
  [ -f "$staged/LICENSE" ] || cp "$tree/LICENSE" "$staged/"
  (cd "$work/zip" && python3 -c 'import shutil, sys; shutil.make_archive(sys.argv[1], "zip", ".", sys.argv[2])' "$to/$version" "$name@$version")
  rm -rf "$staged"
}

# build DIR: builds a module. The proxy has what its go.mod forgets, and -mod=mod would add it in silence.
build() {
  local stated
  stated=$(requires "$tree" "$1")
  go -C "$tree/$1" build ./... || return
  if [ "$(requires "$tree" "$1")" != "$stated" ]; then
    printf '%s imports of ours what its go.mod does not require; that would be\n%s\n' "$(path "$1")" "$(requires "$tree" "$1")"
    return 1
  fi
}

# import: builds all packages that have a tag, from the zips, as a module that requires them does.
import() {
  local got=()
  for dir in $all; do if released "$dir"; then got+=("$(path "$dir")@$version"); fi; done
  mkdir -p "$work/user" && (cd "$work/user" && go mod init example.com/user && go get "${got[@]}" && go build "$root/...")
}

install() {
  mkdir -p "$work/empty" && (
    cd "$work/empty" && GOBIN=$work/bin GOFLAGS='' go install "$root/cmd/onceward@$version" &&
      "$work/bin/onceward" help | head -n 1
  )
}

check() {
  version=$1 work=$(mktemp -d "${TMPDIR:-/tmp}/onceward-release.XXXXXX") failed=0
  trap 'go clean -modcache > /dev/null 2>&1 || true; rm -rf "$work"' EXIT
  tree=$work/tree proxy=$work/proxy
  mkdir -p "$tree" "$proxy"
  git archive HEAD | tar -xf - -C "$tree"
  rm -f "$tree"/go.work "$tree"/go.work.sum
  local have all dir
  have=$(go env GOMODCACHE)
  GOPROXY=file://$proxy,file://$have/cache/download,$(go env GOPROXY)
  GOMODCACHE=$work/modules
  GOFLAGS="$(go env GOFLAGS) -mod=mod"
  export GOPROXY GOMODCACHE GOFLAGS GOWORK=off GONOSUMDB=$root,$root/*
  all=$(ordered "$tree")
  for dir in $all; do
    local edits=()
    for other in $all; do
      if grep -q "^\s*\(require \)\?$(path "$other") v" "$tree/$dir/go.mod"; then
        edits+=("-require=$(path "$other")@$version")
      fi
      edits+=("-dropreplace=$(path "$other")")
    done
    go -C "$tree/$dir" mod edit "${edits[@]}"
  done
  for dir in $all; do publish "$dir"; done
  for dir in $all; do phase "build $(path "$dir")@$version" build "$dir" || failed=1; done
  phase "import every package" import || failed=1
  phase "install the command" install || failed=1
  if [ $failed = 0 ]; then
    echo "All of it works, after $SECONDS s. Tags, in this order:"
    order vX.Y.Z
  fi
  return $failed
}

case ${1:-} in
  check) check "${2:-v0.0.1-check}" ;;
  order) order "${2:-vX.Y.Z}" ;;
  *) sed -n 2,/^set/p "$0" | grep '^#' | sed 's/^# \{0,1\}//' >&2 && exit 2 ;;
esac
