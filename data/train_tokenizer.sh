#!/usr/bin/env bash
# Train data/tokenizer.model on data/stories.txt with SentencePiece (Debian package
# `sentencepiece`): a BPE model of 4096 pieces laid out like LLaMA's.
#
#   data/train_tokenizer.sh            write data/tokenizer.model
#   data/train_tokenizer.sh --check    train into a temporary folder and compare the bytes
#
# The marker lines are left out: a trainer puts the eos token between stories instead.  The newline
# is not in the vocabulary; it is encoded as the byte piece <0x0A>, as in LLaMA.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    echo "usage: train_tokenizer.sh [--check]"
}

fail() {
    echo "train_tokenizer.sh: $*" >&2
    exit 1
}

check=no
case "${1:-}" in
    "") ;;
    --check) check=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
[ $# -le 1 ] || { usage >&2; exit 2; }

command -v spm_train >/dev/null || fail "spm_train is missing: apt-get install sentencepiece"
[ -f "$here/stories.txt" ] || fail "data/stories.txt is missing: run data/make_corpus.py"

# Characters that the corpus lacks but other stories have, so that they need not be spelt in bytes:
# one line with each of them is added to the text.
chars='0 1 2 3 4 5 6 7 8 9 A B C D E F G H I J K L M N O P Q R S T U V W X Y Z a b c d e f g h i j
k l m n o p q r s t u v w x y z . , ; : ! ? ( ) & -'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The model file records the names it was trained with, so these are relative and always the same.
grep -v -x -F '<|endoftext|>' "$here/stories.txt" >"$work/stories.txt"
echo "${chars//$'\n'/ }" >>"$work/stories.txt"
(
    cd "$work"
    spm_train \
        --input=stories.txt --model_prefix=tokenizer \
        --model_type=bpe --vocab_size=4096 --byte_fallback=true \
        --character_coverage=1.0 --split_digits=true \
        --normalization_rule_name=identity --remove_extra_whitespaces=false \
        --add_dummy_prefix=true --allow_whitespace_only_pieces=true \
        --unk_id=0 --bos_id=1 --eos_id=2 --pad_id=-1 \
        --num_threads=1 --input_sentence_size=0 --max_sentence_length=100000 \
        --shuffle_input_sentence=false --minloglevel=1
) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "spm_train failed"; }

if [ "$check" = yes ]; then
    cmp "$work/tokenizer.model" "$here/tokenizer.model" || fail "data/tokenizer.model differs"
    echo "data/tokenizer.model is what spm_train writes"
else
    cp "$work/tokenizer.model" "$here/tokenizer.model"
    echo "wrote data/tokenizer.model"
fi
sha256sum "$work/tokenizer.model" | cut -d ' ' -f 1
