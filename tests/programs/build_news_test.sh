#!/usr/bin/env bash
# What ./workbook shows of a build: nothing if all is up to date, warnings, and the errors of labs' files first.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/programs/helpers.sh
source "$here/helpers.sh"
root=$(mktemp -d -t build-news-test.XXXXXX)
build=$root/build/student
trap 'rm -rf "$root"' EXIT
# shellcheck source=scripts/setup.sh
source "$here/../../scripts/setup.sh"
unset CI

mkdir "$root/cmake"
cp "$here/../../cmake/build.sh" "$root/cmake"
cat >"$root/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(news NONE)
file(GLOB parts CONFIGURE_DEPENDS *.part)
add_custom_command(OUTPUT made COMMAND cmake -E touch made)
add_custom_command(OUTPUT warned COMMAND echo "warning: unused" COMMAND cmake -E touch warned)
add_custom_command(OUTPUT labs/02_x/x.o COMMAND echo "x.cpp: error in the lab" COMMAND sh -c "exit 3")
add_custom_command(OUTPUT other.o COMMAND echo "other.cpp: error elsewhere" COMMAND sh -c "exit 3")
add_custom_command(OUTPUT labs/02_x/saved.o DEPFILE saved.d COMMAND sh ${CMAKE_SOURCE_DIR}/compile.sh)
add_custom_command(OUTPUT linked DEPENDS labs/02_x/saved.o COMMAND sh ${CMAKE_SOURCE_DIR}/link.sh)
add_custom_target(saved DEPENDS linked)
add_custom_target(quiet DEPENDS made)
add_custom_target(loud DEPENDS warned)
add_custom_target(broken DEPENDS other.o labs/02_x/x.o)
CMAKE
cmake -G Ninja -S "$root" -B "$build" >/dev/null

# says TEXT TARGET: all that building it prints, on stderr.
says() {
  local text
  text=$(build_targets "$2" 2>&1 >"$root/stdout") || true
  [[ $text == "$1" && ! -s $root/stdout ]] || fail "$2 says:"$'\n'"$text"$'\n'"and not:"$'\n'"$1"
}

says '' quiet
says '' quiet # up to date
touch "$root/new.part"
says '' quiet # cmake runs again
says 'warning: unused' loud

# A file that is saved while it is compiled is compiled again, although what was made of it is newer than it. What the
# compiler has said about the old contents is not shown.
file=$root/labs/02_x/saved.cpp
object=$build/labs/02_x/saved.o
mkdir -p "$root/labs/02_x" "$build/labs/02_x"
cat >"$root/compile.sh" <<SCRIPT
echo "labs/02_x/saved.o: $file" >saved.d
cp "$file" read
if grep -q save read; then echo new >"$file"; fi
sleep 0.1
mv read "$object" && touch "$object"
if grep -q wrong read "$object" 2>/dev/null; then echo "saved.cpp: error in old contents"; exit 3; fi
SCRIPT
cat >"$root/link.sh" <<SCRIPT
if grep -q kill "$object"; then kill -9 -\$(cat killed); fi
cp "$object" linked
SCRIPT
compiles_to() { [[ $(<"$object") == "$1" ]] || fail "what is compiled is '$(<"$object")', not '$1'"; }
kill_the_build() {
  # shellcheck disable=SC2016  # for the bash that is started
  setsid --wait bash -c 'echo $$ >"$2/killed" && exec bash "$1/cmake/build.sh" "$1" "$2" --target saved' _ "$root" "$build"
}
echo save >"$file"
says '' saved
compiles_to new
echo 'save, wrong' >"$file"
says '' saved
compiles_to new

# Also if the build is killed before it comes to that.
echo 'save, kill' >"$file"
(kill_the_build || true) >/dev/null 2>&1
compiles_to 'save, kill'
says '' saved
compiles_to new

# Both fail at once, because two run at once, and in either order.
build_jobs() { echo 2; }
says 'x.cpp: error in the lab
other.cpp: error elsewhere
error: the build failed: see the first error above (all of its output: build/student/build.log)' broken
grep -q 'FAILED: other.o' "$build/build.log" || fail "the log lacks what the terminal leaves out"
if (build_targets broken 2>/dev/null); then fail "a broken build counts as a success"; fi

# In CI, everything.
CI=true build_targets quiet 2>&1 | grep -q 'no work to do' || fail "CI does not show all"

# Whatever takes longer than two seconds says so, though nothing is finished yet.
news=$({ sleep 3.5 && echo "[1/1] Building it" && printf 'without an end'; } | build_news)
[[ $news == $'building ...\nwithout an end' ]] || fail "a slow build says: $news"
