#!/bin/sh
# timeline.sh -- the pictures as other programs read them: XML, JSON, a trace that obeys its format.
# Environment: BUILD, the build folder.
. tests/cli/tap.sh

tools=$BUILD/tests/test_tools
[ -x "$tools" ] || skip_all "$tools is not built"
command -v python3 >/dev/null || skip_all "python3 is not there"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
"$tools" "$dir"; ok $? "pictures of 8 chunks, of 1,000, of odd spans and of none are written"

cat >"$dir/check.py" <<'END'
import json, math, re, sys, traceback, xml.etree.ElementTree as tree

def number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)

def refuse(name):
    raise ValueError(name)

def parse(text):  # NaN and Infinity are no JSON, though Python takes them
    return json.loads(text, parse_constant=refuse)

def check_trace(text):
    t = parse(text)
    assert t["displayTimeUnit"] in ("ms", "ns")
    spans, names = {}, {}
    for e in t["traceEvents"]:
        assert isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        if e["ph"] == "M":
            assert isinstance(e["args"], dict)
            if e["name"] == "thread_name":
                names[e["tid"]] = e["args"]["name"]
            continue
        assert e["ph"] == "X" and isinstance(e["cat"], str) and isinstance(e["args"]["chunk"], int)
        assert number(e["ts"]) and number(e["dur"]) and e["ts"] >= 0 and e["dur"] >= 0
        spans.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["dur"]))
    for (_, tid), row in spans.items():
        assert tid in names
        row.sort()
        for (ts, dur), (after, _) in zip(row, row[1:]):  # in binary, as browsers add
            assert ts + dur <= after, f"{names[tid]}: {ts} + {dur} > {after}"
    return sum(len(r) for r in spans.values()), names

def check_svg(text):
    root = tree.fromstring(text)
    width, height = [float(x) for x in root.get("viewBox").split()[2:]]
    for e in root.iter():
        for key, value in e.attrib.items():
            assert "href" not in key and "nan" not in value and "inf" not in value, (key, value)
        if e.tag.endswith("rect"):
            x, y, w, h = [float(e.get(k)) for k in ("x", "y", "width", "height")]
            assert 0 <= x and 0 <= y and 0 <= w and x + w <= width + .01 and y + h <= height

def outside(text):  # what a browser would fetch
    text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    return re.findall(r"https?:|//[a-z]|url\(|@import|\bsrc=|\bhref=", text)

def check(what, text):
    if what == "trace8":
        n, names = check_trace(text)
        assert n == 8 * 4 and list(names.values()) == ["copy in", "stage 'blur'", "stage 1", "copy out"], names
    elif what == "trace":
        check_trace(text)
    elif what == "svg":
        check_svg(text)
        assert not outside(text), outside(text)
    elif what == "html":
        assert not outside(text), outside(text)
        assert text.count("</script>") == 1 and text.count("<script>") == 1 and "<b>" not in text
        data = re.search(r"const D=(.*?);\n", text, re.S).group(1)
        d = parse(re.sub(r"(wall|modelled|rows|spans):", r'"\1":', data, count=4))
        for row, chunk, begin, end in d["spans"]:
            assert 0 <= row < len(d["rows"]) and 0 <= begin <= end <= d["wall"]
    elif what == "verdict":
        points = re.findall(r"<li>(.*?)</li>", text)
        limit = re.search(r"faster\?</h2>\n<p>the limit is (.*?)</p>\n<ul>", text)
        assert limit and len(points) == 1 and points[0] == limit.group(1), (limit, points)
        assert text.index("</canvas>") < limit.start() < text.index("<script>")
    elif what == "report":
        r = parse(text)
        assert r["error"] == "cudaErrorInvalidValue" and r["wall_ms"] == 1.5 and r["setup_ms"] is None
        assert r["failure.chunk"] is None and "</script>" in r["failure.message"]
        header = open("streampipe.h").read()
        fields = re.search(r"\nstruct spipe_report \{(.*?)\n\};", header, re.S).group(1)
        fields = re.sub(r"/\*.*?\*/", "", fields, flags=re.S)
        fields = re.sub(r"\w+ \(\*.*?;", "", fields)  # a function
        names = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", fields)
        missing = [n for n in names if n not in r and n != "failure"]
        assert len(names) > 15 and not missing, missing
    elif what == "modelled":
        assert "modelled" in text
    elif what == "measured":
        assert "modelled" not in re.sub(r"<script>.*", "", text, flags=re.S).replace('"modelled":false', "")
    else:
        raise ValueError("there is no check of this name: " + what)

for line in sys.stdin:  # WHAT FILE RULE
    what, path, rule = line.rstrip("\n").split(" ", 2)
    try:
        check(what, open(path, "rb").read().decode("utf-8"))  # strict
        print(0, rule)
    except Exception as e:
        print(1, rule)
        print(f"# {traceback.extract_tb(e.__traceback__)[-1].lineno}: {type(e).__name__}: {e}".replace("\n", " "))
END
check() { echo "$2 $dir/$3 $1"; } # RULE WHAT FILE

# All in one Python, which takes 0.1 s to start, and 0.4 s where it is a script that looks for one.
{
    check "the trace of 8 chunks has a thread for each engine and an event for each operation" trace8 8.json
    for f in 1000 odd empty; do
        check "trace, $f: keys as the format wants them, finite numbers, no overlap within a thread" trace $f.json
    done
    for f in 8 1000 odd empty; do
        check "SVG, $f: well-formed, all of it in the picture, no outside reference" svg $f.svg
        check "HTML, $f: data that parse, nothing that ends the script early, no outside reference" html $f.html
    done
    check "the page has the limit and each cause of the verdict below the chart" verdict odd.html
    check "the report parses, times that are no numbers are null, every field is there" report report.json
    for f in 8.svg 8.html 8.json 8.txt; do check "modelled times are called so in $f" modelled $f; done
    for f in odd.svg odd.html odd.json odd.txt; do check "measured ones are not in $f" measured $f; done
} >"$dir/checks"
python3 -B "$dir/check.py" <"$dir/checks" >"$dir/checked" 2>"$dir/err"
while read -r status rule; do
    case $status in '#') echo "# $rule" ;; *) ok "$status" "$rule" ;; esac
done <"$dir/checked"
[ "$(grep -c '^[01]' "$dir/checked")" = "$(wc -l <"$dir/checks")" ]
ok $? "each of these checks has an answer$(tail -n 1 "$dir/err")"
test "$(wc -c <"$dir/1000.svg")" -lt 400000; ok $? "the SVG of 1,000 chunks is under 400 kB"
done_testing
