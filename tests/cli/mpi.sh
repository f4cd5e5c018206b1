#!/bin/sh
# mpi.sh -- examples/mpi_stream over four ranks: equal and unequal parts, more ranks than chunks, a
# rank that fails, one that dies, no file. Each run must end by itself within its time.
# Environment: BUILD, the build folder; SAN.
. tests/cli/tap.sh

program=$BUILD/examples/mpi_stream
[ -z "$SAN" ] || skip_all "MPI is not instrumented"
command -v mpirun >/dev/null || skip_all "mpirun is not there (Debian: openmpi-bin, libopenmpi-dev)"
[ -x "$program" ] || skip_all "$program is not built"
case $("$program" 2>&1) in *"built without MPI"*) skip_all "built without MPI" ;; esac
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # of Open MPI; others do not look
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export TMPDIR="$dir"

ranks() { # N ARGUMENT...: status and text of a run
    number=$1
    shift
    timeout -k 5 60 mpirun -n "$number" "$program" "$@" >"$dir/text" 2>&1
    status=$?
}
last() { grep -v '^$' "$dir/text" | tail -n 1; }

head -c 1000003 "$program" >"$dir/in" # real bytes, an odd number of them
ranks 1 "$dir/in" "$dir/one" --chunk 30000 --check
ok $status "one rank does the whole file: $(last)"
entropy=$(sed -n 's/.*entropy //p' "$dir/text")

ranks 4 "$dir/in" "$dir/out" --chunk 30000 --check
cmp -s "$dir/one" "$dir/out" && [ $status = 0 ] && [ "$(sed -n 's/.*entropy //p' "$dir/text")" = "$entropy" ]
ok $? "four ranks write the same file and count the same: $(head -n 1 "$dir/text")"

rm -f "$dir/out"
ranks 4 "$dir/in" "$dir/out" --chunk 30000 --check --parts 5,1,0,2.5
cmp -s "$dir/one" "$dir/out" && [ $status = 0 ]
ok $? "unequal parts, one of them empty, make the same file"

rm -f "$dir/out"
ranks 4 "$dir/in" "$dir/out" --chunk 600000 --check
cmp -s "$dir/one" "$dir/out" && [ $status = 0 ]
ok $? "more ranks than chunks: the others have nothing to do: $(head -n 1 "$dir/text")"

rm -f "$dir/out"
ranks 4 "$dir/in" "$dir/out" --chunk 10000 --check --fail 2
[ $status != 0 ] && [ $status != 124 ] && grep -q "rank 2: the sink of buffer 1 failed.*told to fail" "$dir/text" &&
    grep -q "the output is not whole" "$dir/text"
ok $? "a rank that fails says where, and all ranks end"
grep -v '^-\|^$\|mpirun' "$dir/text" | head -n 1 | sed 's/^/# /'
# What it calls whole is, and so are the other ranks' parts.
first=$(sed -n 's/.*bytes \([0-9]*\) to .*are whole/\1/p' "$dir/text")
end=$(sed -n 's/.*bytes [0-9]* to \([0-9]*\) of.*/\1/p' "$dir/text")
part() { tail -c +$(($2 + 1)) "$dir/$1" | head -c $(($3 - $2)) | cksum; }
[ -n "$end" ] && [ "$end" -gt "$first" ] && [ "$(part one 0 "$end")" = "$(part out 0 "$end")" ] &&
    [ "$(part one 760000 1000003)" = "$(part out 760000 1000003)" ]
ok $? "what it calls whole is, bytes $first to $end, and so are the parts of the others"

ranks 4 "$dir/in" "$dir/out" --chunk 10000 --die 1
[ $status != 0 ] && [ $status != 124 ]
ok $? "a rank that dies takes the run with it, in time (status $status)"

: >"$dir/empty"
ranks 4 "$dir/empty" "$dir/out" --check
[ $status = 0 ] && [ ! -s "$dir/out" ]
ok $? "an empty file gives an empty file"

ranks 4 "$dir/absent" "$dir/out"
[ $status = 1 ] && grep -q "absent cannot be read" "$dir/text"
ok $? "a file that is not there is refused by all ranks"

printf old >"$dir/out"
for parts in 1,2,3 0,0 nan,1 inf,1 -1,2 1,,2 ""; do
    ranks 2 "$dir/in" "$dir/out" --parts "$parts"
    [ $status = 2 ] && grep -q "parts wants a finite weight for each rank: 0 or more, and one above 0" "$dir/text" &&
        grep -q usage "$dir/text" && [ "$(cat "$dir/out")" = old ]
    ok $? "weights '$parts' for two ranks are refused, and the output is as it was"
done
done_testing
