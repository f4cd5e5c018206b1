#!/bin/sh
# hostile.sh -- tests where threads are held up at random, wake without a signal and start late (torture/hostile.c).
# Environment: BUILD, the build folder; SAN; CC; SEEDS=1, how many; HOSTILE_ONE_IN=300, calls of which one is held up;
# PROGRAMS, tests by name without test_: `make hostile` tries many.
. tests/cli/tap.sh

[ -z "$SAN" ] || skip_all "sanitizers stand in the same places"
[ "$BACKEND" = host ] || skip_all "on a GPU the driver's own threads would be held up, too"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
printf '#include <stdio.h>\n#ifndef __GLIBC__\n#error\n#endif\n' | ${CC:-cc} -E - >/dev/null 2>&1 ||
    skip_all "it needs Linux with glibc"
${CC:-cc} -O1 -Wall -Werror -shared -fPIC -o "$dir/hostile.so" tests/torture/hostile.c -ldl
ok $? "the library that holds threads up compiles"

for seed in $(seq "${SEEDS:-1}"); do
    for t in ${PROGRAMS:-fewer_workers pull resources staging stopped enqueue}; do
        [ -f "tests/test_$t.cu" ] && [ ! -x "$BUILD/tests/test_$t" ] && skip "test_$t, held up, seed $seed" "not built" && continue
        HOSTILE_SEED=$seed LD_PRELOAD="$dir/hostile.so" timeout 120 "$BUILD/tests/test_$t" >"$dir/out" 2>&1
        status=$?
        ok $status "test_$t, held up, seed $seed"
        [ $status = 0 ] || { echo "# exit status $status"; grep -A 2 '^not ok' "$dir/out" | head -n 9 | sed 's/^/# /'; }
    done
done
done_testing
