#!/usr/bin/env bash
# Test data/get_tinystories.sh against a small local server; nothing is fetched from outside.
set -euo pipefail

for tool in python3 curl; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$root/data/get_tinystories.sh
work=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
unset TINYSTORIES_URL http_proxy HTTP_PROXY all_proxy ALL_PROXY || true

checks=0
ok() { checks=$((checks + 1)); echo "ok $checks - $1"; }
die() { echo "FAILED: $1" >&2; [ ! -f "$work/log" ] || cat "$work/log" >&2; exit 1; }

# fetch ARGS...: run the script into $work/out, with its output in $work/log; return its status.
fetch() { bash "$script" --out "$work/out" "$@" >"$work/log" 2>&1; }

# fails TEXT ARGS...: the script must fail and say so in one line with that text on stderr.
fails() {
    local text=$1
    shift
    if bash "$script" --out "$work/out" "$@" >"$work/log" 2>"$work/err"; then
        die "succeeded, but '$text' was expected"
    fi
    grep -q -- "$text" "$work/err" || { cat "$work/err" >&2; die "no '$text' on stderr"; }
    if [ "$(wc -l <"$work/err")" -ne 1 ]; then
        cat "$work/err" >&2
        die "more than one line on stderr"
    fi
}

mkdir "$work/site" "$work/empty"
for name in train valid; do
    for i in $(seq 1 400); do
        printf 'Story %d of %s. Zo\303\253 had a kite.\nIt flew.\n<|endoftext|>\n' "$i" "$name"
    done >"$work/site/TinyStories-$name.txt"
done
python3 "$root/tests/data/range_server.py" "$work/site" "$work/port" &
server=$!
for _ in $(seq 1 100); do
    [ ! -f "$work/port" ] || break
    sleep 0.1
done
[ -f "$work/port" ] || die "the server did not start"
url=http://127.0.0.1:$(cat "$work/port")
requests=$work/site/requests.log
train=TinyStories-train.txt
valid=TinyStories-valid.txt

bash "$script" --help >"$work/log" || die "--help fails"
grep -q -- --valid-only "$work/log" || die "--help does not name the options"
fails "unknown option" --nonsense
ok "--help"

fetch --base-url "$url" --valid-only || die "the download of the small file fails"
cmp "$work/site/$valid" "$work/out/$valid" || die "the small file differs"
[ ! -e "$work/out/$train" ] || die "--valid-only fetched the large file"
ok "--valid-only"

rm -r "$work/out"
TINYSTORIES_URL=$url fetch || die "the full download fails"
for name in "$train" "$valid"; do
    cmp "$work/site/$name" "$work/out/$name" || die "$name differs"
    [ ! -e "$work/out/$name.part" ] || die "$name.part was left"
done
grep -q "bytes to" "$work/log" || die "the size is not announced"
ok "full download, URL from the environment"

: >"$requests"
fetch --base-url "$url" || die "a second run fails"
grep -q "already there" "$work/log" || die "a second run does not say that all is there"
if grep -q GET "$requests"; then die "a second run fetched again"; fi
ok "complete files are not fetched again"

rm "$work/out/$train"
head -c 5000 "$work/site/$train" >"$work/out/$train.part"
: >"$requests"
fetch --base-url "$url" || die "resuming fails"
cmp "$work/site/$train" "$work/out/$train" || die "the resumed file differs"
grep -q "GET /$train bytes=5000-" "$requests" || die "it was not resumed at byte 5000"
ok "a truncated .part is resumed"

rm "$work/out/$train"
head -c 5000 "$work/site/$train" | tr 'k' 'q' >"$work/out/$train.part"
fetch --base-url "$url" || die "a damaged .part is not recovered from"
cmp "$work/site/$train" "$work/out/$train" || die "the file differs after a damaged .part"
grep -q "damaged" "$work/log" || die "the damage is not reported"
ok "a damaged .part is found by its hash and fetched again"

rm "$work/out/$train"
cp "$work/site/$train" "$work/out/$train.part"
fetch --base-url "$url" || die "a complete .part is not accepted"
cmp "$work/site/$train" "$work/out/$train" || die "the file from a complete .part differs"
ok "a complete .part is verified and renamed"

printf 'changed' >>"$work/out/$train"
fails "is not what the server has" --base-url "$url"
grep -q changed "$work/out/$train" || die "the changed file was touched"
rm "$work/out/$train"
ok "a changed file is reported and left alone"

mv "$work/site/$train" "$work/elsewhere"
fails "answers 404" --base-url "$url"
mv "$work/elsewhere" "$work/site/$train"
ok "404"

printf 'just text, no marker\n' >"$work/empty/text"
mv "$work/site/$train" "$work/elsewhere"
cp "$work/empty/text" "$work/site/$train"
fails "is not what the server announced" --base-url "$url"
[ ! -e "$work/out/$train" ] || die "a file without the marker was accepted"
mv "$work/elsewhere" "$work/site/$train"
ok "a file that is no TinyStories is not accepted"

head -c 5000 "$work/site/$train" >"$work/out/$train.part"
kill "$server"
wait "$server" 2>/dev/null || true
server=
fails "cannot reach the server" --base-url "$url"
[ "$(wc -c <"$work/out/$train.part")" -eq 5000 ] || die "the .part file was not kept"
ok "server gone, .part kept"

echo "all $checks checks passed"
