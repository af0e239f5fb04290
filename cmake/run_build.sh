#!/usr/bin/env bash
# Builds targets as a test (see BuildTest.cmake). If that fails, says why in a few lines: the first
# error, not the hundreds of lines that follow from it.
#
# usage: run_build.sh [--student LAB FILE] [--tolerant] SOURCE_FOLDER BUILD_FOLDER TARGET...
#   --student lab01 labs/01_single_gpu/single_gpu.cpp: whose file is built, for the message
#   --tolerant: succeed in any case; if the build fails, the programs are missing
set -euo pipefail
lab=
file=
tolerant=false
while [[ $1 == --* ]]; do
  case $1 in
    --student)
      lab=$2
      file=$3
      shift 2
      ;;
    --tolerant) tolerant=true ;;
  esac
  shift
done
source=$1
build=$2
shift 2
# ./workbook test has just built all but students' files: asking again for each test takes time.
if [[ -z $lab && ${LAB_BUILT:-} == "$build" ]]; then exit 0; fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
note=$build/results/${lab}_student/build_error.txt # lab01_verdict --score shows it
[[ -z $lab ]] || rm -f "$note"

export LC_ALL=C # compilers speak many languages; this script knows the word "error"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
if bash "$source/cmake/build.sh" "$source" "$build" --target "$@" >"$log" 2>&1; then exit 0; fi

# What the last attempt has said, if files were saved meanwhile.
output() {
  awk '/^saved meanwhile: / { text = ""; next } { text = text $0 "\n" } END { printf "%s", text }' "$log" |
    sed "s|$source/||g"
}
# The first error with the lines that show its place; if it is in a header, preceded by the line of
# the student's file that led there. If there is none, the end of the output.
first_error() {
  awk -v file="$file" '
    left > 0 && /^(FAILED|ninja:|make)|: (error|warning|note):|^In file included/ { exit }
    left > 0 { print; if (--left == 0) exit; next }
    /: (fatal )?error:|undefined reference to|multiple definition of|CMake Error/ {
      if (way != "") print way
      print
      found = 1
      left = 4
      next
    }
    file != "" && index($0, file ":") == 1 && /required from/ { way = $0 }
    END { exit !found }' <(output) || output | tail -n 20
}

if [[ -n $lab ]]; then
  mkdir -p "$(dirname "$note")"
  { echo "$file does not build. The first error:" && echo && first_error; } | tee "$note"
  rm -f "$build/implementations/$lab/student.so" # an old one must not be taken for the present one
else
  echo "the workbook itself does not build (no fault of a student's file). The first error:"
  echo
  first_error
fi
$tolerant
