#!/bin/sh
# mutate.sh -- `make mutate` still works: without one wait of the header a test fails, and with all waits none does.
# Without ThreadSanitizer, which takes most of its time. In check-all only.
# Environment: BACKEND; SAN; CXX; THOROUGH.
. tests/cli/tap.sh

[ "$BACKEND" = host ] && [ -z "$SAN" ] || skip_all "it builds hostcuda"
[ -n "$THOROUGH" ] || skip_all "only in make check-all"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
place=$(tests/tools/mutate --places | grep -n 'spipe_priv_issuable: ' | head -n 1 | cut -d : -f 1)
[ -n "$place" ]; ok $? "the place is found where only filled slots are issued"
MUTATE_SECONDS=2 MUTATE_PLAIN=yes tests/tools/mutate 0 "$place" >"$dir/out" 2>&1; ok $? "the tool runs"
grep -q 'nothing taken out .*no test fails, as it must be' "$dir/out"; ok $? "with nothing taken out no test fails"
grep -q "^ *$place .*test_engine" "$dir/out"; ok $? "without that rule a test fails"
sed 's/^/# /' "$dir/out"
done_testing
