#!/usr/bin/env bash
# Download the real TinyStories data set (not part of this repository) from Hugging Face.
# Run with --help for the options.
set -euo pipefail

DEFAULT_URL=https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main
base_url=${TINYSTORIES_URL:-$DEFAULT_URL}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$here/tinystories
valid_only=no
tool=

usage() {
    cat <<'TEXT'
usage: get_tinystories.sh [--out DIR] [--valid-only] [--base-url URL] [--help]

Download the TinyStories data set (R. Eldan and Y. Li, licence CDLA-Sharing-1.0):
TinyStories-train.txt (about 1.9 GB) and TinyStories-valid.txt (about 19 MB).

  --out DIR       where to put the files (default: data/tinystories)
  --valid-only    fetch only the small validation file
  --base-url URL  fetch from here instead (also: environment variable TINYSTORIES_URL)
  --help          show this text

An interrupted download is resumed by running the same command again; a file that is complete is
not fetched again.  Needs curl or wget.
TEXT
}

fail() {
    echo "get_tinystories.sh: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
        --out | --base-url)
            [ $# -ge 2 ] || fail "$1 needs a value"
            if [ "$1" = --out ]; then out=$2; else base_url=$2; fi
            shift 2 ;;
        --valid-only) valid_only=yes; shift ;;
        --help | -h) usage; exit 0 ;;
        *) fail "unknown option $1 (--help shows the options)" ;;
    esac
done
base_url=${base_url%/}

if command -v curl >/dev/null; then
    tool=curl
elif command -v wget >/dev/null; then
    tool=wget
else
    fail "neither curl nor wget is installed"
fi
command -v sha256sum >/dev/null || fail "sha256sum is not installed"

part=
interrupted() {
    echo "get_tinystories.sh: interrupted; run the same command again to go on" \
        "${part:+(kept $part)}" >&2
    exit 130
}
trap interrupted INT TERM

# headers URL: print the response headers of every hop of a HEAD request.
headers() {
    if [ "$tool" = curl ]; then
        curl --silent --show-error --location --head --connect-timeout 20 --max-time 60 "$1" 2>&1
    else
        wget --spider --server-response --tries=1 --timeout=60 "$1" 2>&1 | sed 's/^  *//'
    fi
}

# header_value NAME: print the value of the last such header on stdin, or nothing.
header_value() {
    tr -d '\r' | awk -v name="$1" '
        BEGIN { name = tolower(name) ":" }
        tolower(substr($0, 1, length(name))) == name {
            value = substr($0, length(name) + 1); gsub(/^[ \t]+|[ \t]+$/, "", value) }
        END { print value }'
}

# wanted_hash HEADERS: print the sha256 that the server gives for the file, or nothing.
wanted_hash() {
    local name value
    for name in X-Linked-Etag ETag; do
        value=$(printf '%s\n' "$1" | header_value "$name" | sed 's/^W\///' | tr -d '"')
        if [[ $value =~ ^[0-9a-fA-F]{64}$ ]]; then
            printf '%s\n' "${value,,}"
            return
        fi
    done
}

size_of() { wc -c <"$1" | tr -d ' '; }
hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }

human() {
    awk -v n="$1" 'BEGIN {
        if (n >= 1e9) printf "%.2f GB", n / 1e9
        else if (n >= 1e6) printf "%.1f MB", n / 1e6
        else printf "%d bytes", n }'
}

# fetch URL FILE: download, going on at the end of FILE if there is one.
fetch() {
    if [ "$tool" = curl ]; then
        curl --fail --silent --show-error --location --connect-timeout 20 \
            --speed-limit 1 --speed-time 60 --continue-at - --output "$2" "$1"
    else
        wget --quiet --tries=1 --timeout=60 --continue --output-document="$2" "$1"
    fi
}

# looks_right FILE: whether it begins as UTF-8 text and has the story marker.
looks_right() {
    # The cut at 64 KiB may split a character, so up to three bytes at the end may be left over.
    local start cut
    start=$(mktemp)
    for cut in 65536 65535 65534 65533; do
        head -c "$cut" "$1" >"$start"
        if iconv -f UTF-8 -t UTF-8 "$start" >/dev/null 2>&1; then
            rm -f "$start"
            grep -q -m 1 -F '<|endoftext|>' "$1"
            return
        fi
    done
    rm -f "$start"
    return 1
}

# verified FILE SIZE HASH: whether the file is complete; SIZE and HASH may be empty (not known).
verified() {
    [ -z "$2" ] || [ "$(size_of "$1")" -eq "$2" ] || return 1
    [ -z "$3" ] || [ "$(hash_of "$1")" = "$3" ] || return 1
    looks_right "$1"
}

# get NAME: fetch and verify one file.
get() {
    local name=$1 url file reply status size hash have free attempt
    url=$base_url/$name
    file=$out/$name
    part=$file.part
    reply=$(headers "$url") || {
        status=$(printf '%s\n' "$reply" | awk '/^HTTP\// { s = $2 } END { print s }')
        [ -z "$status" ] || fail "the server answers $status for $url"
        fail "cannot reach the server of $url" \
            "($(printf '%s\n' "$reply" | grep -v '^$' | tail -n 1))"
    }
    status=$(printf '%s\n' "$reply" | awk '/^HTTP\// { s = $2 } END { print s }')
    [ "${status:-0}" = 200 ] || fail "the server answers ${status:-nothing} for $url"
    size=$(printf '%s\n' "$reply" | header_value Content-Length)
    [[ $size =~ ^[0-9]+$ ]] || size=
    hash=$(wanted_hash "$reply")

    if [ -f "$file" ]; then
        if verified "$file" "$size" "$hash"; then
            echo "$file is already there and complete"
            return
        fi
        fail "$file is there but is not what the server has; move it away first"
    fi

    have=0
    [ ! -f "$part" ] || have=$(size_of "$part")
    if [ -n "$size" ] && [ "$have" -gt "$size" ]; then
        echo "$part is too long; starting again"
        rm -f "$part"
        have=0
    fi
    echo "downloading $url"
    if [ -n "$size" ]; then
        echo "  $(human "$size") to $file, $(human "$have") of it are there already"
        free=$(df -P -k "$out" | awk 'NR == 2 { print $4 }')
        if [ $(((size - have) / 1024 + 1024)) -gt "$free" ]; then
            fail "not enough room in $out: $(human $((size - have))) needed," \
                "$(human $((free * 1024))) free"
        fi
    else
        echo "  to $file (the server does not say how large it is)"
    fi

    for attempt in 1 2; do
        if [ -z "$size" ] || [ "$have" -lt "$size" ]; then
            fetch "$url" "$part" 2>"$out/.fetch-error" || {
                status=$?
                reply=$(tail -n 1 "$out/.fetch-error" || true)
                rm -f "$out/.fetch-error"
                fail "download of $name stopped (${reply:-$tool ended with $status});" \
                    "run the same command again to go on"
            }
            rm -f "$out/.fetch-error"
        fi
        [ -f "$part" ] || fail "download of $name gave no file"
        if verified "$part" "$size" "$hash"; then
            mv "$part" "$file"
            echo "  complete${hash:+, sha256 $hash}"
            return
        fi
        if [ "$attempt" -eq 2 ] || [ "$have" -eq 0 ]; then
            break
        fi
        echo "  the resumed file is damaged (its size or sha256 is wrong); starting again"
        rm -f "$part"
        have=0
    done
    mv "$part" "$part.bad"
    fail "$name is not what the server announced (size, sha256 or text);" \
        "kept as $part.bad"
}

mkdir -p "$out" 2>/dev/null || fail "cannot make the folder $out"
[ -w "$out" ] || fail "cannot write to $out"
get TinyStories-valid.txt
[ "$valid_only" = yes ] || get TinyStories-train.txt
