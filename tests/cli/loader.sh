#!/bin/sh
# loader.sh -- 14_loader with files that are whole, damaged, exchanged and missing: it names the bad file, or its
# sums differ; and four workers are as much faster as its table must say.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty.
. tests/cli/tap.sh

loader=$BUILD/examples/14_loader
[ -x "$loader" ] || skip_all "$loader is not built"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
files=$dir/files

run() { # [FOLDER]
    "$loader" "$@" >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status != 77 ] || skip_all "$(cat "$dir/err")"
}

run "$files"
test $status = 0 && grep -q '^right' "$dir/out" && test "$(ls "$files" | wc -l)" = 101
ok $? "it makes a folder of 101 pictures, each comes once an epoch, and the sums are right"
text="four workers take a third of the time or less: $(grep '^4 workers' "$dir/out")"
if [ "$BACKEND" = cuda ] && [ "$(nproc)" -lt 6 ]; then
    skip "$text" "$(nproc) processors decode"
else # without a GPU the time is modelled: the same on any number of processors
    "${AWK:-awk}" '/^4 workers / { fast = $5 >= 3 } END { exit !fast }' "$dir/out"
    ok $? "$text"
fi

mkdir "$dir/empty"
run "$dir/empty"
test $status = 0 && grep -q '^right' "$dir/out" && test "$(ls "$dir/empty" | wc -l)" = 101
ok $? "an empty folder that is there gets the pictures, too"

mkdir "$dir/tmp"
TMPDIR=$dir/tmp "$loader" >"$dir/out" 2>"$dir/err"
test $? = 0 && test -z "$(ls "$dir/tmp")"
ok $? "of the folder that it makes for itself nothing is left"

refuses() { # TEXT WORDS     (one line on stderr, besides what hostcuda and sanitizers say of themselves)
    run "$files"
    test $status = 1 && grep -q "$2" "$dir/err" && ! grep -qE '^right|-1 ms' "$dir/out"
    ok $? "$1: $(grep -m 1 "$2" "$dir/err" | sed "s,$dir/,,")"
}
cp "$files/picture042" "$dir/kept"
size=$(wc -c <"$dir/kept")
head -c $((size / 2)) "$dir/kept" >"$files/picture042"
refuses "a file that is cut short is named" "picture042: it is not one whole picture"
head -c $((size - 1)) "$dir/kept" >"$files/picture042"
refuses "so is one that lacks a byte" "picture042: it is not one whole picture"
{ cat "$dir/kept" && echo; } >"$files/picture042"
refuses "so is one with a byte too many" "picture042: it is not one whole picture"
: >"$files/picture042"
refuses "so is an empty one" "picture042: it is not one whole picture"
rm "$files/picture042"
refuses "so is one that is missing" "picture042: No such file"
cp "$files/picture041" "$files/picture042"
run "$files"
test $status = 1 && grep -q '^WRONG' "$dir/out"
ok $? "a picture in place of another one is found by its sum"
run "$dir/kept/files"
test $status = 1 && grep -q '^cannot write pictures to .*: Not a directory' "$dir/err"
ok $? "a folder that cannot be made is told: $(head -n 1 "$dir/err" | sed "s,$dir/,,")"
done_testing
