# mistakes.sh -- the mistakes of docs/MISTAKES.md that no sentence tells: the sanitizer that the page names finds
# each on hostcuda, and nothing in the program without them. In check-all only.
# Environment: BACKEND; SAN; THOROUGH; HOSTCUDA_CACHE, else the runtimes with sanitizers are kept in build/hcc.
. tests/cli/tap.sh

[ "$BACKEND$SAN" = host ] || skip_all "hcc builds hostcuda with sanitizers where BACKEND=host, without one"
[ -n "$THOROUGH" ] || skip_all "only in make check-all: it builds a program with each sanitizer"
HOSTCUDA_CACHE=${HOSTCUDA_CACHE:-$(pwd)/build/hcc}
export HOSTCUDA_CACHE
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
for san in address thread; do
    hostcuda/hcc -g -O1 -fsanitize=$san -I. tests/host/sanitized_mistakes.cu -o "$dir/$san" 2>"$dir/log"
    ok $? "hcc -fsanitize=$san builds the program"
done
TSAN_OPTIONS="halt_on_error=1 exitcode=66 report_signal_unsafe=0"
export TSAN_OPTIONS
prefix=$(tests/tools/tsan_prefix "$dir" "${CXX:-g++}")
finds() { # SANITIZER MISTAKE WORDS TEXT
    run=
    [ "$1" = thread ] && run=$prefix
    $run "$dir/$1" "$2" >"$dir/log" 2>&1
    [ $? != 0 ] && grep -q "$3" "$dir/log"
    ok $? "$4: $3"
}
finds address sink heap-use-after-free "a sink that keeps its pointer, in a checked run"
finds address source heap-use-after-free "a source that writes when it has returned, in a checked run"
finds address tickets heap-buffer-overflow "tickets indexed by first + i, in a checked run"
finds thread scratch "data race" "one scratch array for all chunks"
finds thread stream "data race" "a chunk released on another stream than it was used on"
"$dir/address" right >"$dir/log" 2>&1
ok $? "without mistakes AddressSanitizer finds nothing"
$prefix "$dir/thread" right >"$dir/log" 2>&1
ok $? "nor does ThreadSanitizer"
[ $failed = 0 ] || sed 's/^/# /' "$dir/log" | head -n 20
done_testing
