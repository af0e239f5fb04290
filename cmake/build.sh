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
running=$build/labs.building # there during a build, and after one that was killed
files=(labs/*/*.cpp labs/*/*.cu)
if ((!${#files[@]})); then cmake --build "$build" "$@" {lock}<&-; exit; fi

sums() { cksum -- "${files[@]}" 2>/dev/null | sort || true; } # an editor may just be replacing one
# Names of the files whose contents have changed since $1 was written.
changed_since() { comm -13 <(sort "$1") <(sums) | while read -r _ _ file; do echo "$file"; done; }

# ninja compares times. It must be told by a touch of a file that has been replaced by an older one (mv, cp -p, an
# archive), and of one that was saved while it was compiled: its object is newer than it.
if [[ -f $known ]]; then
  changed_since "$known" | while read -r file; do
    if [[ -e $running || $file -ot $known ]]; then touch -c -- "$file"; fi
  done
fi
: >"$running"
while true; do
  sums >"$known"
  status=0
  cmake --build "$build" "$@" {lock}<&- || status=$?
  mapfile -t changed < <(changed_since "$known")
  if ((!${#changed[@]})); then break; fi
  echo "saved meanwhile: building again" # what is above this line is about old contents
  touch -c -- "${changed[@]}"
done
rm -f "$running"
exit "$status"
