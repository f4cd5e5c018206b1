#!/bin/sh
# timeline_browser.sh -- the pictures in a real browser: nothing is fetched, nothing fails, the page
# zooms and tells what is under the pointer, text stays in its place in light and dark; and the trace
# in speedscope, where that is installed (npm i speedscope, here or globally, or SPEEDSCOPE=folder).
# Environment: BUILD; SAN; CHROMIUM, the browser; SPEEDSCOPE, the folder of its index.html.
. tests/cli/tap.sh

tools=$BUILD/tests/test_tools
[ -z "$SAN" ] || skip_all "the files are the same as without a sanitizer"
[ -x "$tools" ] || skip_all "$tools is not built"
for c in $CHROMIUM chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$c")
done
[ -n "$browser" ] || skip_all "there is no Chromium"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
"$tools" "$dir" || { ok 1 "pictures are written"; done_testing; }

# What a page has become, after its scripts ran; no name can be resolved, so nothing can be fetched.
dom() { # SCHEME(0 dark, 1 light) URL
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --enable-unsafe-swiftshader \
        --allow-file-access-from-files --user-data-dir="$dir/profile" --window-size=1200,700 \
        --host-resolver-rules='MAP * ~NOTFOUND' --blink-settings=preferredColorScheme="$1" \
        --virtual-time-budget=20000 --dump-dom "$2" 2>/dev/null
}
echo '<p id="r"></p><script>r.textContent=6*7</script>' >"$dir/try.html"
dom 1 "file://$dir/try.html" | grep -q '>42<' || skip_all "$browser does not run here"

# The page: errors, then an operation under the pointer, before and after zooming, moving, resetting.
cat >"$dir/probe" <<'END'
<pre id="probe"></pre><script>
const said = [], box = () => cv.getBoundingClientRect();
function point(span) { // the middle of an operation, where it is drawn now
  const x = X((span[2] + span[3]) / 2), y = T + span[0] * S + H / 2;
  cv.dispatchEvent(new PointerEvent('pointermove', {clientX: box().left + x, clientY: box().top + y}));
  return tip.style.display == 'block' ? tip.textContent.replace(/\n/g, '; ') : 'nothing';
}
function key(k) { dispatchEvent(new KeyboardEvent('keydown', {key: k})) }
const s = D.spans[Math.floor(D.spans.length / 2)], all = b - a;
said.push('wanted: chunk ' + s[1] + '; ' + D.rows[s[0]][0] + '; start  ' + s[2].toFixed(6));
said.push('whole: ' + point(s));
for (let i = 0; i < 5; i++) cv.dispatchEvent(new WheelEvent('wheel', {deltaY: -300, cancelable: true,
  clientX: box().left + X((s[2] + s[3]) / 2), clientY: box().top + 20}));
said.push('zoomed: ' + ((b - a) < all / 10) + ' ' + point(s));
const from = a; key('ArrowRight'); said.push('moved: ' + (a > from) + ' ' + (Math.abs(b - a - all) > 1e-9));
key('0'); said.push('reset: ' + (a == 0 && b == W) + ' ' + point(s));
cv.dispatchEvent(new PointerEvent('pointerleave')); said.push('left: ' + tip.style.display);
said.push('colour: ' + getComputedStyle(document.body).backgroundColor);
document.querySelector("#probe").textContent = said.join("\n") + "\n";
</script>
END
for f in 8 1000 odd; do
    sed '/<\/body>/d' "$dir/$f.html" >"$dir/p$f.html"
    sed '$!d' "$dir/$f.html" | grep -q '^</script></body></html>$' && echo '</script>' >>"$dir/p$f.html"
    cat "$dir/probe" >>"$dir/p$f.html"
    for scheme in 0 1; do
        dom $scheme "file://$dir/p$f.html" | sed -n '/<pre id="probe">/,/<\/pre>/p' | sed "s/<[^>]*>//g; /^\$/d" >"$dir/said"
        wanted=$(sed -n 's/^wanted: //p' "$dir/said")
        [ $scheme = 0 ] && name=dark paper="rgb(20, 24, 31)" || { name=light paper="rgb(255, 255, 255)"; }
        [ -n "$wanted" ] && grep -qF "whole: $wanted" "$dir/said" && grep -qF "zoomed: true $wanted" "$dir/said" &&
            grep -q '^moved: true true' "$dir/said" && grep -qF "reset: true $wanted" "$dir/said" &&
            grep -q '^left: none' "$dir/said" && grep -qF "colour: $paper" "$dir/said"
        ok $? "HTML, $f, $name: the operation under the pointer is told; wheel, keys and reset work"
    done
done
grep -q modelled "$dir/8.html" && dom 1 "file://$dir/p8.html" | grep -q '^whole: .*; modelled'
ok $? "what is modelled is told so under the pointer"

# The SVG, as a page shows it: colours, and every text within the picture and out of the bars.
cat >"$dir/measure" <<'END'
<pre id="probe"></pre><script>
const svg = document.querySelector('svg'), said = [getComputedStyle(svg).backgroundColor];
for (const t of svg.querySelectorAll('text')) {
  const b = t.getBBox();
  if (b.x < 0 || b.x + b.width > 1060) said.push('outside: ' + t.textContent);
  if (t.classList.contains('t') && t.getAttribute('font-size') != '16' && b.x + b.width > 150)
    said.push('into the bars: ' + t.textContent);
}
document.querySelector("#probe").textContent = said.join("\n") + "\n";
</script>
END
for f in 8 1000 odd; do
    cat "$dir/$f.svg" "$dir/measure" >"$dir/s$f.html"
    for scheme in 0 1; do
        dom $scheme "file://$dir/s$f.html" | sed -n '/<pre id="probe">/,/<\/pre>/p' | sed "s/<[^>]*>//g; /^\$/d" >"$dir/said"
        [ $scheme = 0 ] && name=dark paper="rgb(20, 24, 31)" || { name=light paper="rgb(255, 255, 255)"; }
        test "$(cat "$dir/said")" = "$paper"
        ok $? "SVG, $f, $name: its colours, and every text in its place"
        sed '1d; s/^/# /' "$dir/said"
    done
done

# speedscope
for d in $SPEEDSCOPE node_modules/speedscope/dist/release "$(npm root -g 2>/dev/null)/speedscope/dist/release"; do
    [ -z "$scope" ] && [ -f "$d/index.html" ] && scope=$(cd "$d" && pwd)
done
if [ -z "$scope" ]; then
    skip "the traces load in speedscope" "speedscope is not there (npm i speedscope)"
    done_testing
fi
for f in 8 1000 odd; do
    printf "speedscope.loadFileFromBase64('%s.json','%s')" $f "$(base64 -w0 "$dir/$f.json")" >"$dir/$f.js"
    dom 1 "file://$scope/index.html#localProfilePath=$dir/$f.js" >"$dir/dom"
    good=0
    for row in $(sed -n 's/.*"ph":"X".*"tid":\([0-9]*\).*/\1/p' "$dir/$f.json" | sort -u); do
        grep -q "(tid $row)" "$dir/dom" || good=1
    done
    grep -q "streampipe: " "$dir/dom" || good=1
    ok $good "the trace, $f, loads in speedscope with all its threads"
done
done_testing
