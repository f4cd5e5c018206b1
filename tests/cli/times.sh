#!/bin/sh
# times.sh -- examples/systems/times, which runs all examples and prints one table: programs that are right, wrong,
# skipped, not built or do not end are in it, and after a wrong one the others still run.
. tests/cli/tap.sh

dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
mkdir -p "$dir/examples/systems" "$dir/bin" || exit 1
program() { # NAME LINE...
    name=$1
    shift
    printf '%s\n' '#!/bin/sh' "$@" >"$dir/examples/$name" && chmod +x "$dir/examples/$name"
}
program 01_right "echo 'on a GPU; times are measured'" "echo '                 time      faster by'" \
    "echo '    one stream   2.103 ms   1.00 x'" "echo '    overlapped   0.630 ms   3.34 x'" "echo 'a sentence about nothing'" "echo 'right: the CPU finds the same'"
program 02_wrong "echo 'WRONG: not what the CPU finds'" "exit 1"
program 03_skipped "echo 'needs two GPUs'" "exit 77"
program 04_no_end "exec sleep 100"
program systems/06_right "echo right"
# A Python without the packages, whatever this machine has.
printf '#!/bin/sh\nexit 1\n' >"$dir/bin/python3" && chmod +x "$dir/bin/python3"
no_end=
! command -v timeout >/dev/null || no_end=examples/04_no_end

PATH=$dir/bin:$PATH TIMEOUT=1 examples/systems/times host "$dir" examples/01_right examples/02_wrong \
    examples/03_skipped $no_end examples/05_not_there examples/systems/06_right >"$dir/table" 2>&1
[ $? = 1 ]
ok $? "something wrong makes the status 1"
has() { # RULE LINE, spaces squeezed
    tr -s ' ' <"$dir/table" | grep -q "$2"
    ok $? "$1"
}
has "the machine is in the table" "^processors: [1-9]"
has "so is the commit" "^commit: "
has "what is right, with its seconds" "^01_right right [0-9.]*$"
has "what it says of its times" "^ one stream 2.103 ms 1.00 x$"
has "with the heads of the columns" "^ time faster by$"
has "all of that" "^ overlapped 0.630 ms 3.34 x$"
! grep -qE "sentence|on a GPU;" "$dir/table"
ok $? "and nothing else of it"
has "what is wrong, with its status" "^02_wrong WRONG (1) "
has "what that said at its end" "^ WRONG: not what the CPU finds"
has "what is skipped" "^03_skipped skipped "
has "and why" "^ needs two GPUs"
if [ -n "$no_end" ]; then
    has "what does not end" "^04_no_end no end "
else
    skip "what does not end" "there is no timeout here"
fi
has "what was not built" "^05_not_there NOT BUILT "
has "what comes after all these" "^systems/06_right right "
has "Numba's pipeline, skipped without Numba" "^systems/numba_pipeline.py skipped "
has "a sum" "^2 right, [23] wrong, 4 skipped$"
PATH=$dir/bin:$PATH examples/systems/times host "$dir" examples/01_right examples/03_skipped >"$dir/table"
ok $? "nothing wrong makes the status 0"
done_testing
