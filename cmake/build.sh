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

# ninja compares times: a file that has been replaced by an older one (mv, cp -p, an archive) is new to it if touched.
cd "$source"
known=$build/labs.cksum
files=(labs/*/*.cpp labs/*/*.cu)
if ((${#files[@]})); then
  now=$(cksum -- "${files[@]}" 2>/dev/null) || true  # an editor may just be replacing one
  if [[ -f $known ]]; then
    while read -r _ _ file; do
      if [[ $file -ot $known ]]; then touch -- "$file"; fi
    done < <(comm -13 <(sort "$known") <(sort <<<"$now"))
  fi
  printf '%s\n' "$now" >"$known"
fi

cmake --build "$build" "$@" {lock}<&-
