#!/bin/sh
# escapes.sh -- what an example prints of a file's bytes cannot move the cursor of a terminal: escapes, other control
# characters, and the bytes 0x7F to 0x9F come out as question marks.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty.
. tests/cli/tap.sh

filter=$BUILD/examples/18_y4m_filter
[ -x "$filter" ] || skip_all "the examples are not built"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
bad=$(printf 'x\033[2J\007\177\200\233\237y')

# Whether a file has none of them; LC_ALL, so that bytes are bytes.
clean() { # FILE
    test -s "$1" && ! LC_ALL=C tr -d '\n\r\t' <"$1" | LC_ALL=C grep -q "$(printf '[\001-\037\177-\237]')"
}
printf '%s\n' "$bad" >"$dir/err" && ! clean "$dir/err"
ok $? "(such bytes are found)"

printf 'YUV4MPEG2 W8 H6 C%s\n' "$bad" | "$filter" negate >"$dir/out" 2>"$dir/err"
grep -q 'the format is none of .* x?\[2J?????y' "$dir/err" && clean "$dir/err"
ok $? "the format of a Y4M header: $(LC_ALL=C tr -cd ' -~' <"$dir/err" | cut -c 1-100)"
done_testing
