#!/bin/sh
# demo.sh -- what `make demo` leaves behind: a PNG of the map, and a page with a slow and a fast run.
# Environment: BUILD, the build folder.
. tests/cli/tap.sh

[ -x "$BUILD/tests/tools/pgm_to_png" ] && [ -x "$BUILD/examples/07_timeline" ] || skip_all "the demo's programs are not built"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
head -c 3000000 "$BUILD/examples/07_timeline" >"$dir/file"
tests/tools/demo "$BUILD" "$dir/demo" "$dir/file" >"$dir/out" 2>&1; ok $? "the demo runs"
last=$(tail -n 3 "$dir/out" | awk '{ print $1 }')
good=0
for path in $last; do case $path in /*) [ -s "$path" ] || good=1 ;; *) good=1 ;; esac; done
[ "$(echo "$last" | grep -c .)" = 3 ] || good=1
ok $good "it ends with three paths, and there are files"
# but those of a sanitizer
awk 'length($0) > 110 && !/\/demo\// && !/^==[0-9]+==/ { exit 1 }' "$dir/out"; ok $? "no line is longer than 110 columns"
good=0
for page in $(grep -o 'src="[^"]*"' "$dir/demo/compare.html" | cut -d '"' -f 2 | sed 's/#.*//'); do
    grep -q '<h2>Why was it not faster?</h2>' "$dir/demo/$page" || good=1
    grep -qE '<h1>.*(modelled|measured).*</h1>' "$dir/demo/$page" || good=1
done
[ "$(grep -c '<iframe' "$dir/demo/compare.html")" = 2 ] || good=1
ok $good "the page shows two runs, each with its verdict, modelled or measured"
# "in 37": the direction that is the limit, and how busy the verdict says it is; nothing if it is not a copy
said() { sed -n 's/.*the limit is copies \([a-z]*\),.*busy \([0-9]*\) % of the time.*/\1 \2/p' "$dir/demo/$1"; }
drawn() { sed -n 's/.*\["copy '"$2"'",\([0-9]*\)\].*/'"$2"' \1/p' "$dir/demo/$1"; }
good=0
for page in slow.html timeline.html; do
    verdict=$(said $page)
    [ "$verdict" = "$(drawn $page "${verdict% *}")" ] || [ -z "$verdict" ] || good=1
done
[ -n "$(said slow.html)$(said timeline.html)" ] || good=1
ok $good "the verdict and the chart's row say one percentage of the limit"
wall() { sed -n 's/^const D={wall:\([0-9.]*\),.*/\1/p' "$dir/demo/$1"; }
[ "$(grep -o '#[0-9.]*"' "$dir/demo/compare.html" | sort -u)" = "#$(wall slow.html)\"" ] &&
    awk -v slow="$(wall slow.html)" -v fast="$(wall timeline.html)" 'BEGIN { exit !(fast > 0 && slow > fast) }'
ok $? "both on the scale of the slow run"
grep -q "<li>stage &#39;busy&#39; returned only when its work was done" "$dir/demo/slow.html"
ok $? "the slow run's page names the cause"

if ! command -v python3 >/dev/null; then skip "the PNG has the map's pixels" "python3 is not there"; done_testing; fi
cat >"$dir/check.py" <<'END'
import struct, sys, zlib
png, pgm = (open(p, "rb").read() for p in sys.argv[1:])
assert png[:8] == b"\x89PNG\r\n\x1a\n"
at, data, head, kinds = 8, b"", None, []
while at < len(png):
    n, kind = struct.unpack(">I4s", png[at:at + 8])
    body, crc = png[at + 8:at + 8 + n], struct.unpack(">I", png[at + 8 + n:at + 12 + n])[0]
    assert crc == zlib.crc32(kind + body), kind
    kinds.append(kind)
    if kind == b"IHDR": head = struct.unpack(">IIBBBBB", body)
    if kind == b"IDAT": data += body
    at += 12 + n
assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND" and head[2:] == (8, 0, 0, 0, 0), (kinds, head)
magic, width, height, most, pixels = pgm.split(None, 3)[:3] + [b"255", pgm[-int(pgm.split()[1]) * int(pgm.split()[2]):]]
w, h, rows = int(width), int(height), zlib.decompress(data)
times = head[0] // w
assert magic == b"P5" and head[:2] == (w * times, h * times) and head[0] >= 512, head
for y in range(h * times):
    want = bytes(p for p in pixels[y // times * w:(y // times + 1) * w] for _ in range(times))
    assert rows[y * (1 + w * times):(y + 1) * (1 + w * times)] == b"\0" + want, y
END
python3 -B "$dir/check.py" "$dir/demo/map.png" "$dir/demo/map.pgm" 2>"$dir/err"; ok $? "the PNG has the map's pixels, at least 512 columns of them"
tail -n 1 "$dir/err" | sed 's/^/# /'
printf 'P5\n4 4\n255\nshort' >"$dir/short.pgm"
! "$BUILD/tests/tools/pgm_to_png" "$dir/short.pgm" "$dir/short.png" 2>"$dir/err" && grep -q "shorter" "$dir/err"
ok $? "a picture that is cut short is refused"
done_testing
