# expected.sh -- tests/tools/expected, which compares an example's output with its comment: it can fail, and --write works.
. tests/cli/tap.sh

dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
example() { # WHERE: reads the lines of the comment
    printf '/*  x.cu -- made for this test.\n\n    Expect      (hostcuda%s) ' "$1"
    cat
    printf '                right: the CPU finds the same */\nint main() { return 3; }\n'
}
cat >"$dir/log" <<'END'
on a GPU
kernel 1 took 10.5 ms
kernel 2 took 7.25 ms
causes: one, and 12 more; cures: two
right: the CPU finds the same
END
accepted() { # RULE WHERE LINE: [OPTION in the environment]
    echo "$3" | example "$2" >"$dir/x.cu"
    # shellcheck disable=SC2086  # an option or nothing
    tests/tools/expected $OPTION "$dir/x.cu" "$dir/log" >"$dir/said"
    ok $? "$1"
}
refused() { # RULE WHERE LINE TEXT
    echo "$3" | example "$2" >"$dir/x.cu"
    # shellcheck disable=SC2086
    ! tests/tools/expected $OPTION "$dir/x.cu" "$dir/log" >"$dir/said" && grep -qF "$4" "$dir/said"
    ok $? "$1"
}
OPTION=
accepted "the line that is printed" "" "kernel 2 took 7.25 ms"
accepted "spaces may differ" "" "kernel 1   took  10.5 ms"
accepted "a part of a long line" "" "12 more; cures"
refused  "another number is refused, and what is printed is said" "" "kernel 2 took 7.26 ms" "it prints: kernel 2 took 7.25 ms"
refused  "the number of another line is refused" "" "kernel 1 took 7.25 ms" "expects: kernel 1 took 7.25 ms"
refused  "another word is refused" "" "kernel 2 takes 7.25 ms" "no line like it"
refused  "another number in a part of a line is refused" "" "11 more; cures" "expects: 11 more"
accepted "~ allows half" "" "kernel 2 took ~3.7 ms"
accepted "~ allows twice" "" "kernel 2 took ~14.4 ms"
refused  "~ does not allow more than twice" "" "kernel 2 took ~14.6 ms" "expects"
refused  "~ does not allow less than half" "" "kernel 2 took ~3.5 ms" "expects"
refused  "~ is for its own number alone" "" "kernel 1 took ~7.25 ms and 3" "no line like it"
accepted "? allows any number" "" "kernel 2 took ?900 ms"
refused  "? is for its own number alone" "" "kernel ?9 took 7.26 ms" "it prints"
accepted "times of this CPU may be any" "; these times are this CPU's" "kernel 2 took 99.00 ms"
refused  "its words may not" "; these times are this CPU's" "kernel 2 took 99.00 s" "no line like it"
printf 'kernel 2 took 7.25 ms\n                kernel 1 took 10.5 ms\n' | example "" >"$dir/x.cu"
! tests/tools/expected "$dir/x.cu" "$dir/log" >"$dir/said" && grep -q "expects: kernel 1 took 10.5 ms" "$dir/said"
ok $? "lines in another order are refused"
OPTION=--shape
accepted "--shape takes any number" "" "kernel 2 took 99.00 ms"
refused  "and no other words" "" "kernel 2 lost 99.00 ms" "no line like it"

printf 'kernel 1 took   9.0 ms\n                kernel 2 took ~100 ms\n                kernel 2 took ~7 ms\n' | example "" >"$dir/x.cu"
tests/tools/expected --write "$dir/x.cu" "$dir/log" >"$dir/new.cu" && tests/tools/expected "$dir/new.cu" "$dir/log" &&
    grep -q '(hostcuda) kernel 1 took  10.5 ms$' "$dir/new.cu" && grep -q 'kernel 2 took ~7.25 ms$' "$dir/new.cu" &&
    grep -q 'kernel 2 took ~7 ms$' "$dir/new.cu" && [ "$(tail -n 1 "$dir/new.cu")" = "int main() { return 3; }" ]
ok $? "--write mends the numbers that are wrong, in their columns, and no others"

{ cat "$dir/log" && printf 'its comment expects: kernel 1 took 9.0 ms\n'; } >"$dir/judged"
printf 'kernel 1 took   9.0 ms\n' | example "" >"$dir/x.cu"
! tests/tools/expected "$dir/x.cu" "$dir/judged" >"$dir/out"
ok $? "what it said of an earlier run, at the end of the log, is not what the example prints"
done_testing
