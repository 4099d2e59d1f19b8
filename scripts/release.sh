#!/usr/bin/env bash
# Tries a release before there is one: what users get is not this checkout with its go.work, but each module
# alone, at a version, from a proxy.
#
#   release.sh check [VERSION]      default v0.0.1-check
#   release.sh order                the tags of a release, in the order in which they are pushed
#   release.sh binaries             the command for each system, into dist/
#
# check puts every module of the last commit into a module proxy of files, at VERSION, with its requirements of
# the others at VERSION and without replace; builds each of them with GOWORK=off against that proxy; gets every module
# that has a tag into a module of its own, as users do, and builds every package; and installs the command from the proxy
# in an empty directory and runs it. Nothing outside of a temporary directory is changed.
#
# binaries builds the last commit, whose tag is the version. It builds the one for this system twice, in two directories
# and with an empty cache, fails when they differ (anybody can build the same bytes), and starts it to see that it names its commit. Next to them: checksums, the licences of all that is
# linked, and a bill of materials (SBOM, CycloneDX). dist/Containerfile makes an image of the one for Linux.
#
# Exit: 0 all of it works, 1 something does not, 2 wrong usage.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh
# shellcheck source=lib/tool.sh
. scripts/lib/tool.sh

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
      "$work/bin/onceward" help | sed -n 1p
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

systems="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64"

# binary TREE SYSTEM DIR: builds the command of a tree for a system.
binary() {
  local os=${2%/*} arch=${2#*/} name
  name=onceward-$os-$arch
  [ "$os" != windows ] || name=$name.exe
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOFLAGS= GOWORK=off go -C "$1/cmd" build -trimpath -buildvcs=true -ldflags "-s -w -buildid=" -o "$3/$name" ./onceward
}

# licences: the licence of each module that is linked into any of the binaries.
licences() {
  local name at file
  for file in dist/onceward-*; do go version -m "$file"; done | awk '$1 == "dep" { print $2, $3 }' | sort -u |
    while read -r name at; do
      [ "${name#"$root"}" = "$name" ] || continue
      printf '\n== %s %s\n\n' "$name" "$at"
      at=$(GOWORK=off go -C "$work/1/cmd" list -m -f '{{.Dir}}' "$name")
      # A module without a licence may not be linked.
      cat "$at"/LICEN[CS]E* "$at"/COPYING* "$at"/NOTICE* 2> /dev/null > "$work/licence" || [ -s "$work/licence" ] ||
        { echo "no licence: $name" >&2; return 1; }
      cat "$work/licence"
    done
}

binaries() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/onceward-release.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  local sbom n system here again
  sbom=$(tool cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)
  rm -rf dist && mkdir dist
  for n in 1 2; do git clone -q . "$work/$n"; done
  for system in $systems; do
    phase "build for $system" binary "$work/1" "$system" "$PWD/dist" || return
  done
  here=$(go env GOOS)/$(go env GOARCH)
  GOCACHE=$work/cache phase "build for $here again" binary "$work/2" "$here" "$work" || return
  for again in "$work"/onceward-*; do
    cmp "$again" "dist/$(basename "$again")" || { echo "release: two builds of one commit differ" >&2; return 1; }
    "$again" version | grep -F "$(git -C "$work/1" rev-parse HEAD)" || { echo "release: it does not name its commit" >&2; return 1; }
  done
  (echo "== $root" && cat LICENSE && licences) > dist/licences.txt
  (cd "$work/1" && GOWORK=off "$sbom" app -json -licenses -main onceward -output "$OLDPWD/dist/sbom.json" cmd)
  cp scripts/lib/Containerfile dist/
  (cd dist && sha256sum -- * | tee "$work/sums" && mv "$work/sums" SHA256SUMS)
}

case ${1:-} in
  binaries) binaries ;;
  check) check "${2:-v0.0.1-check}" ;;
  order) order "${2:-vX.Y.Z}" ;;
  *) sed -n 2,/^set/p "$0" | grep '^#' | sed 's/^# \{0,1\}//' >&2 && exit 2 ;;
esac
