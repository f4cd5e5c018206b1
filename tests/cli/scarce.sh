#!/bin/sh
# scarce.sh -- the core's tests with few resources: one processor or two, threads or none, pinned memory, none of
# it, or one page. Whatever is missing, every result is right.
# Environment: BUILD, the build folder; BACKEND; SAN; EVERY=yes.
. tests/cli/tap.sh

# In six surroundings of the twelve, among which any two of the three conditions meet, or with EVERY=yes in all:
# sizes and schedules, graphs of stages, staging, host stages, enqueued runs and captures, signals and devices, runs
# that are stopped, functions that throw. The two that take longest, with the other kinds of buffers and with sources,
# only on one processor without threads. Instrumented: two, by ThreadSanitizer one, because without threads of the
# library there is nothing for it to find, and only the three in which threads do other work where little is pinned.
unset THOROUGH # every case is tried once, in the usual surroundings
programs="pipeline stages staging host_stages enqueue caller stopped exceptions"
[ "$SAN" != thread ] || programs="pipeline staging host_stages"
longest="buffers sources"

[ "$BACKEND" = host ] || skip_all "a limit of pinned memory needs hostcuda"
command -v taskset >/dev/null || skip_all "taskset is not there"
for t in $programs $longest; do
    [ -x "$BUILD/tests/test_$t" ] || skip_all "$BUILD/tests/test_$t is not built"
done
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1

# The first processor that may be used, and the first two.
cpus=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done)
one=$(echo "$cpus" | head -n 1) two=$(echo "$cpus" | head -n 2 | paste -sd , -)
[ -z "$SAN" ] || [ "$one" != "$two" ] || skip_all "instrumented programs are tried on two processors"

try() ( # NAME PROCESSORS THREADS PINS PROGRAM...
    name=$1 on=$2 threads=$3 pins=$4
    shift 4
    [ "$threads" = yes ] || export PIPE_NO_THREADS=1
    [ "$pins" = all ] || export PIPE_FEW_PINS=1 HOSTCUDA_PINNED_LIMIT="$pins"
    for t in "$@"; do
        timeout 300 taskset -c "$on" "$BUILD/tests/test_$t" >"$dir/out.$name.$t" 2>&1 &&
            tail -n 1 "$dir/out.$name.$t" | grep -q '^1\.\.' && continue
        echo "# test_$t:" >>"$dir/bad.$name"
        grep -A 1 '^not ok' "$dir/out.$name.$t" | head -n 6 | sed 's/^/#   /' >>"$dir/bad.$name"
        tail -n 3 "$dir/out.$name.$t" | sed 's/^/#   /' >>"$dir/bad.$name"
    done
)

judge() { # NAME TEXT
    [ ! -s "$dir/bad.$1" ]
    ok $? "$2: every result is right"
    [ ! -s "$dir/bad.$1" ] || head -n 30 "$dir/bad.$1"
}

# PROCESSORS-THREADS-PINS
wanted() {
    [ -z "$EVERY" ] || return 0
    case $SAN-$1 in
    -1-yes-all | -1-yes-0 | -1-no-4096 | -2-yes-4096 | -2-no-all | -2-no-0) ;;
    thread-2-yes-0 | address-2-yes-0 | address-2-no-4096) ;;
    *) return 1 ;;
    esac
}

# Both numbers of processors side by side.
for threads in yes no; do
    for pins in all 0 4096; do
        for cpus in 1 2; do
            on=$one more=
            wanted $cpus-$threads-$pins || continue
            [ $cpus = 1 ] || on=$two
            [ $cpus = 1 ] || [ "$one" != "$two" ] || continue
            [ $cpus$threads != 1no ] || more=$longest
            # shellcheck disable=SC2086 # names of programs
            try "$cpus-$threads-$pins" "$on" $threads $pins $programs $more &
        done
    done
    wait
    for pins in all 0 4096; do
        for cpus in 1 2; do
            wanted $cpus-$threads-$pins || continue
            text="processors: $cpus, threads: $threads, bytes that may be pinned: $pins"
            if [ $cpus = 2 ] && [ "$one" = "$two" ]; then
                skip "$text" "there is one"
            else
                judge "$cpus-$threads-$pins" "$text"
            fi
        done
    done
done

# What is missing is really missing: the tests say where they met it.
met() { # WORDS FILE...
    words=$1
    shift
    cat "$@" 2>/dev/null | grep -q "$words"
}
without() { [ "$SAN" = thread ] || met "$@"; } # by ThreadSanitizer they were not run
without 'no thread can be had' "$dir"/out.?-no-4096.staging && ! met 'no thread can be had' "$dir"/out.?-yes-*
ok $? "without threads, and only then, none is had"
refused='so left to the library: no room'
met "$refused" "$dir"/out.?-yes-0.pipeline && without "$refused" "$dir"/out.?-no-4096.pipeline && ! met "$refused" "$dir"/out.?-*-all.*
ok $? "with few pins, and only then, what asks for pinned slots is refused in words"
done_testing
