#!/bin/sh
# entropy_map.sh -- entropy_map as a user runs it: files, standard input, pictures, bad input.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty.
. tests/cli/tap.sh

map=$BUILD/examples/entropy_map
[ -x "$map" ] || skip_all "$map is not built"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1

# A sanitized program is slow and big: less data, and no limit on its memory.
mib=8
[ -n "$SAN" ] && mib=1
head -c $((mib * 1048576 + 12345)) /dev/urandom >"$dir/random"
head -c $((mib * 1048576)) /dev/zero >"$dir/zeros"
cc1=$(${CC:-gcc} -print-prog-name=cc1)
[ -f "$cc1" ] || cc1=/bin/sh
head -c $((mib * 1048576 / 2 + 777)) "$cc1" >"$dir/code"

value() { sed -n "s/.* mean \([0-9.]*\).*/\1/p" "$1"; }

for f in random zeros code; do
    "$map" "$dir/$f" -o "$dir/$f.pgm" --check >"$dir/$f.out" 2>"$dir/$f.err"
    ok $? "the entropies of a file of $f are the CPU's to 1e-5: $(sed -n 's/^check: //p' "$dir/$f.out")"
done
test "$(value "$dir/zeros.out")" = 0.0000; ok $? "a file of zeros has entropy 0"
awk "BEGIN { exit !($(value "$dir/random.out") > 7.9) }"; ok $? "a file of random bytes has close to 8"
! grep -q "MiB/s" "$dir/random.err"; ok $? "no progress bar when it is no terminal"
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    script -qec "$map $dir/random" /dev/null >"$dir/tty" </dev/null
    tr '\r' '\n' <"$dir/tty" | grep -q 'MiB/s \[########################################\]'
    ok $? "a progress bar, full at the end, on a terminal"
else
    skip "a progress bar on a terminal" "there is no script of util-linux"
fi

# The picture: header, size, and a pixel a block.
size=$(stat -c %s "$dir/random") blocks=$(((mib * 1048576 + 12345 + 4095) / 4096))
set -- $(head -n 2 "$dir/random.pgm" | tail -n 1)
rows=$(((blocks + $1 - 1) / $1))
test "$(head -n 1 "$dir/random.pgm")" = P5 && test "$2" = "$rows"; ok $? "the map is a PGM of $1 x $2"
test "$(wc -c <"$dir/random.pgm")" -eq $(($(head -n 3 "$dir/random.pgm" | wc -c) + $1 * rows))
ok $? "with a byte a pixel"
test "$(tail -c +$(($(head -n 3 "$dir/zeros.pgm" | wc -c) + 1)) "$dir/zeros.pgm" | tr -d '\0' | wc -c)" = 0
ok $? "zeros are black"

# Standard input, sizes around a block, other blocks.
"$map" - -o "$dir/in.pgm" --width "$1" <"$dir/random" >/dev/null; ok $? "standard input is read"
cmp -s "$dir/in.pgm" "$dir/random.pgm"; ok $? "and gives the map that the file gives"
cat "$dir/random" | "$map" >"$dir/pipe.out"; ok $? "so does a pipe, without a name"
good=0
for bytes in 0 1 4095 4096 4097; do
    head -c $bytes "$dir/random" >"$dir/n"
    "$map" "$dir/n" --check -o "$dir/n.pgm" >"$dir/n.out" 2>&1 || good=1
    grep -q ": $bytes bytes in $(((bytes + 4095) / 4096)) blocks" "$dir/n.out" || good=1
done
ok $good "files of 0, 1, 4095, 4096 and 4097 bytes"
good=0
for b in 64 1000 65536 1048576; do
    "$map" "$dir/code" --block $b --check >/dev/null 2>&1 || good=1
done
ok $good "blocks of 64, 1000, 65536 and 1048576 bytes"

# Files of the system's: one has no length, one says another than it has.
good=0
for f in /proc/self/status /sys/class/net/lo/mtu; do
    [ ! -r $f ] || "$map" $f >"$dir/n.out" 2>&1 || good=1
done
ok $good "files of /proc and /sys are read"

# Bad input: a sentence on stderr, a non-zero exit, and no map that looks whole.
refused() { # RULE WORD ARGS...
    rule=$1 word=$2
    shift 2
    rm -f "$dir/bad.pgm"
    "$map" "$@" >/dev/null 2>"$dir/err"
    status=$?
    test $status -ne 0 && test $status -lt 126 && grep -qi "$word" "$dir/err" && test ! -e "$dir/bad.pgm" &&
        test -z "$(ls "$dir" | grep part)"
    ok $? "$rule is refused: $(head -n 1 "$dir/err")"
}
refused "a missing file" "no such file" "$dir/none" -o "$dir/bad.pgm"
refused "a directory" "directory" "$dir" -o "$dir/bad.pgm"
if [ "$(id -u)" != 0 ]; then
    : >"$dir/secret" && chmod 000 "$dir/secret"
    refused "an unreadable file" "permission" "$dir/secret" -o "$dir/bad.pgm"
else
    skip "an unreadable file is refused" "root may read every file"
fi
[ -e /proc/self/mem ] && refused "a file whose reading fails" "reading /proc/self/mem" /proc/self/mem -o "$dir/bad.pgm"
refused "a folder that is not there" "no such file" "$dir/code" -o "$dir/none/bad.pgm"
refused "a device" "seek" "$dir/code" -o /dev/full
("$map" "$dir/code" -o /dev/stderr; echo $? >"$dir/status") 2>&1 >/dev/null | cat >"$dir/piped"
test "$(cat "$dir/status")" != 0 && tail -n 1 "$dir/piped" | grep -aq "seek"
ok $? "a map on a pipe is refused: its height is known at the end"
refused "a block of no size" "block" "$dir/code" --block 0
refused "a block that is no number" "block" "$dir/code" --block many
refused "an unknown option" "usage" "$dir/code" --frobnicate
"$map" "$dir/code" -o "$dir/old.pgm" >/dev/null && cp "$dir/old.pgm" "$dir/keep.pgm"
"$map" "$dir/none" -o "$dir/old.pgm" >/dev/null 2>&1
cmp -s "$dir/old.pgm" "$dir/keep.pgm"; ok $? "a failed run leaves an older map as it was"

"$map" "$dir/code" >/dev/full 2>"$dir/err"
test $? -ne 0 && grep -q "standard output" "$dir/err"
ok $? "facts that cannot be printed: $(head -n 1 "$dir/err")"
(trap '' XFSZ && ulimit -f 1 && exec "$map" "$dir/code" --block 64 -o "$dir/bad.pgm" >/dev/null 2>"$dir/err")
test $? -ne 0 && grep -q "bad.pgm at byte" "$dir/err" && test ! -e "$dir/bad.pgm" && ! ls "$dir" | grep -q part
ok $? "a map that may not become so long: $(head -n 1 "$dir/err")"

# A map in the place of the file that it is of would destroy that file.
cp "$dir/code" "$dir/same" && ln -s same "$dir/link" && ln "$dir/same" "$dir/hard"
for out in same link hard; do
    refused "the file itself as its map ($out)" "it is the file to be mapped" "$dir/same" -o "$dir/$out"
done
refused "the same from standard input" "it is the file to be mapped" - -o "$dir/link" <"$dir/same"
cmp -s "$dir/same" "$dir/code" && test -L "$dir/link"; ok $? "the file is as it was"

# Interrupted while it waits for more of its input. It has begun when its map is there, without a name
# where the system has such files.
begun() { ls "$dir" | grep -q 'part$' || ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$dir.*deleted"; }
mkfifo "$dir/slow"
for signal in INT TERM HUP; do
    rule="interrupted by SIG$signal it leaves nothing behind"
    if ! env --default-signal=$signal true 2>/dev/null; then # in the background a shell has SIGINT ignored
        skip "$rule" "env has no --default-signal"
        continue
    fi
    env --default-signal=$signal "$map" "$dir/slow" -o "$dir/cut.pgm" >/dev/null 2>&1 &
    pid=$!
    exec 3>"$dir/slow"
    while kill -0 $pid 2>/dev/null && ! begun $pid; do sleep 0.01; done
    begun $pid; began=$?
    kill -$signal $pid
    wait $pid 2>/dev/null
    status=$?
    exec 3>&-
    test $began = 0 && test $status -gt 128 && test -z "$(ls "$dir" | grep cut)"; ok $? "$rule (status $status)"
done
(trap '' HUP && exec "$map" "$dir/slow" -o "$dir/kept.pgm" >/dev/null 2>&1) &
pid=$!
exec 3>"$dir/slow"
while kill -0 $pid 2>/dev/null && ! begun $pid; do sleep 0.01; done
kill -HUP $pid
exec 3>&-
wait $pid && test -s "$dir/kept.pgm"; ok $? "a signal that is ignored, as under nohup, stays ignored"

# A full disk in the middle, where a small file system can be had.
if [ "$(id -u)" = 0 ] && mkdir "$dir/small" && mount -t tmpfs -o size=4k none "$dir/small" 2>/dev/null; then
    "$map" "$dir/code" --block 64 -o "$dir/small/map.pgm" >/dev/null 2>"$dir/err"
    test $? -ne 0 && grep -qi "no space" "$dir/err" && test -z "$(ls "$dir/small")"
    ok $? "a disk that fills up in the middle leaves nothing behind: $(head -n 1 "$dir/err")"
    umount "$dir/small"
else
    skip "a disk that fills up in the middle leaves nothing behind" "no small file system can be mounted"
fi

# Memory: a sparse file larger than all the memory that the program may have.
# One arena: glibc reserves 64 MiB of address space for each of those that threads make, by chance.
if [ -n "$SAN" ]; then
    skip "memory does not grow with the file" "sanitizers need address space of their own"
elif [ "$BACKEND" = cuda ]; then
    skip "memory does not grow with the file" "the CUDA driver reserves more address space than that; run by hand"
else
    truncate -s 512M "$dir/sparse"
    (ulimit -v 393216 && MALLOC_ARENA_MAX=1 exec "$map" "$dir/sparse" --block 65536) >"$dir/sparse.out" 2>"$dir/err"
    ok $? "a sparse file of 512 MiB passes through a program that may take 384 MiB: $(sed -n 's/^  memory *//p' "$dir/sparse.out")"
    test "$(value "$dir/sparse.out")" = 0.0000; ok $? "and all of it was read"
fi
done_testing
