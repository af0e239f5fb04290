#!/usr/bin/env bash
# cmake --build as ./workbook and the tests call it: one build of a folder at a time, and always from
# the labs' current source files.
#
# usage: build.sh SOURCE_FOLDER BUILD_FOLDER OPTION...    (OPTION: of cmake --build)
set -euo pipefail
shopt -s nullglob
source=$1
build=$2
shift 2

exec {lock}<"$build"
if ! flock --nonblock "$lock"; then
  echo "waiting for another build in $build"
  flock --timeout 1800 "$lock" || { echo "error: that build has been running for half an hour" >&2 && exit 1; }
fi

cd "$source"
known=$build/labs.cksum
files=(labs/*/*.cpp labs/*/*.cu)
if ((!${#files[@]})); then cmake --build "$build" "$@" {lock}<&-; exit; fi

sums() { cksum -- "${files[@]}" 2>/dev/null | sort || true; } # an editor may just be replacing one
# Names of the files whose contents were others when $1 was written.
changed_since() { comm -13 <(sort "$1") <(sums) | while read -r _ _ file; do echo "$file"; done; }

# ninja compares times: a file that has been replaced by an older one (mv, cp -p, an archive) is new to it if touched.
if [[ -f $known ]]; then
  changed_since "$known" | while read -r file; do
    if [[ $file -ot $known ]]; then touch -- "$file"; fi
  done
fi
while true; do
  sums >"$known"
  status=0
  cmake --build "$build" "$@" {lock}<&- || status=$?
  # So is one that was saved while it was compiled: what was made of it is newer than it.
  mapfile -t files_saved < <(changed_since "$known")
  if ((!${#files_saved[@]})); then exit "$status"; fi
  touch -- "${files_saved[@]}"
done
