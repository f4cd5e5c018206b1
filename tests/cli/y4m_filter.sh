#!/bin/sh
# y4m_filter.sh -- 18_y4m_filter beside an independent judge: ffmpeg's own negate bit for bit, its
# sobel and gblur within one grey level away from the borders; all formats; streams that are cut
# short, wrong headers, readers that go away.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty.
. tests/cli/tap.sh

filter=$BUILD/examples/18_y4m_filter
[ -x "$filter" ] || skip_all "$filter is not built"
command -v ffmpeg >/dev/null || skip_all "ffmpeg is not installed; it is the judge"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
quiet="ffmpeg -nostdin -v error -y"

# Photographs: those that scikit-image brings, from its package or as .ci/run unpacks them; else a
# picture that ffmpeg computes. Each is zoomed into, coded as MPEG-4 and decoded again.
for pictures in build/pictures /usr/lib/python3/dist-packages/skimage/data none; do
    [ -f "$pictures/astronaut.png" ] && break
done
[ -n "$THOROUGH" ] && frames=4 || frames=1
for name in astronaut coffee chelsea; do
    case $pictures in
    none) $quiet -f lavfi -i "mandelbrot=size=352x288:rate=25" -frames:v $frames -c:v mpeg4 -q:v 2 "$dir/$name.avi" ;;
    *)    $quiet -i "$pictures/$name.png" -vf "zoompan=z=1+on/20:d=$frames:s=352x288" -c:v mpeg4 -q:v 2 "$dir/$name.avi" ;;
    esac
    echo "file '$dir/$name.avi'" >>"$dir/list"
    [ -n "$SAN" ] && break
done
$quiet -f concat -safe 0 -i "$dir/list" -c copy "$dir/clip.avi"
case $pictures in
none) what="computed pictures (no photographs here: see .ci/run)" ;;
*)    what="scikit-image's photographs" ;;
esac

# Of two raw videos, further than MARGIN from a border: the largest difference, and how many differ.
differ() { # A B WIDTH HEIGHT CHROMA_WIDTH CHROMA_HEIGHT MARGIN
    cmp -l "$1" "$2" 2>"$dir/cmp" | ${AWK:-awk} -v w="$3" -v h="$4" -v cw="$5" -v ch="$6" -v m="$7" '
        function octal(v) { return int(v / 100) * 64 + int(v / 10) % 10 * 8 + v % 10 }
        { i = ($1 - 1) % (w * h + 2 * cw * ch); pw = w; ph = h
          if (i >= w * h) { i = (i - w * h) % (cw * ch); pw = cw; ph = ch }
          x = i % pw; y = int(i / pw)
          if (x < m || y < m || x >= pw - m || y >= ph - m) next
          d = octal($2) - octal($3); if (d < 0) d = -d
          if (d > worst) worst = d
          n++ }
        END { print worst + 0, n + 0 }'
}

compare() { # FORMAT SCALE(WxH) CHROMA_WIDTH CHROMA_HEIGHT
    w=${2%x*} h=${2#*x}
    $quiet -i "$dir/clip.avi" -vf "scale=$w:$h,format=$1" -f yuv4mpegpipe "$dir/in.y4m"
    for name in negate sobel gblur; do
        "$filter" $name <"$dir/in.y4m" >"$dir/$name.y4m" 2>"$dir/err"
        echo $? >"$dir/$name.status"
    done
    # All three in one ffmpeg, which takes 0.2 s to start.
    $quiet -i "$dir/negate.y4m" -i "$dir/sobel.y4m" -i "$dir/gblur.y4m" \
        -map 0 -f rawvideo "$dir/negate.ours" -map 1 -f rawvideo "$dir/sobel.ours" -map 2 -f rawvideo "$dir/gblur.ours"
    $quiet -i "$dir/in.y4m" -vf negate -f rawvideo "$dir/negate.theirs" -vf sobel -f rawvideo "$dir/sobel.theirs" \
        -vf gblur=sigma=1.5:steps=6 -f rawvideo "$dir/gblur.theirs"
    for name in negate sobel gblur; do
        margin=1 allowed=1
        [ $name = negate ] && allowed=0 margin=0
        [ $name = gblur ] && margin=8
        bytes=$(wc -c <"$dir/$name.theirs")
        set -- "$1" "$2" "$3" "$4" $(differ "$dir/$name.ours" "$dir/$name.theirs" "$w" "$h" "$3" "$4" $margin)
        test "$(cat "$dir/$name.status")" = 0 && test "$bytes" -gt 0 && test "$(wc -c <"$dir/$name.ours")" = "$bytes" && test "$5" -le $allowed
        ok $? "$name of $1 ${w}x$h is ffmpeg's within $allowed: $6 of $bytes bytes differ, by $5 at most"
        rm -f "$dir/$name".*
    done
}
echo "# $what, $(ffmpeg -version | head -n 1 | cut -d ' ' -f 1-3)"
compare yuv420p 352x288 176 144
compare yuv420p 333x227 167 114
if [ -z "$SAN" ]; then
    compare yuv444p 333x227 333 227
    compare yuv422p 333x227 167 227
    compare yuv411p 333x227 84 227
    compare gray 333x227 0 0
    compare gray 17x200 0 0
fi

# As its user has it: between two ffmpegs.
$quiet -i "$dir/clip.avi" -f yuv4mpegpipe - | "$filter" sobel | ffmpeg -v error -y -i - -c:v mpeg4 "$dir/edges.avi"
count() { ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 "$1"; }
test "$(count "$dir/edges.avi")" = "$(count "$dir/clip.avi")"
ok $? "between two ffmpegs every frame comes out: $(count "$dir/edges.avi")"

# What is wrong ends in a sentence and a status that is not 0.
says() { # RULE WORDS STATUS     (one line; what AddressSanitizer says of itself aside)
    grep -v 'WARNING: ASan' "$dir/err" >"$dir/said"
    test "$3" -ne 0 && test "$3" -lt 126 && test "$(wc -l <"$dir/said")" = 1 && grep -q "$2" "$dir/said"
    ok $? "$1: $(head -n 1 "$dir/said")"
}
refuses() { # RULE WORDS     (the stream lies in $dir/bad)
    "$filter" negate <"$dir/bad" >"$dir/out.y4m" 2>"$dir/err"
    says "$1" "$2" $?
}
stream() { # HEADER FRAMES: frames of 8 x 6, 420
    printf '%s\n' "$1"
    i=0
    while [ $i -lt "$2" ]; do
        printf 'FRAME\n'
        head -c 72 /dev/zero
        i=$((i + 1))
    done
}
stream "YUV4MPEG2 W8 H6" 9 | "$filter" negate >"$dir/nine.y4m"
test "$(wc -c <"$dir/nine.y4m")" = $((16 + 9 * 78)) && test "$(head -n 1 "$dir/nine.y4m")" = "YUV4MPEG2 W8 H6"
ok $? "a stream that names no format is 420"
stream "YUV4MPEG2 W8 H6 Ip A1:1 XSOME=THING" 0 | "$filter" gblur >"$dir/none.y4m"
test "$(cat "$dir/none.y4m")" = "YUV4MPEG2 W8 H6 Ip A1:1 XSOME=THING"
ok $? "no frames in, none out; the header stays as it is"
{ stream "YUV4MPEG2 W8 H6" 9 && printf 'FRAME\nfew'; } >"$dir/bad"
refuses "a stream that ends inside a frame is refused" "frame 9: the stream ends inside"
cmp -s "$dir/out.y4m" "$dir/nine.y4m"; ok $? "and the whole frames before it come out"
{ stream "YUV4MPEG2 W8 H6" 2 && printf 'FRA'; } >"$dir/bad"
refuses "so is one that ends inside the word FRAME" "frame 2: the stream ends inside"
{ stream "YUV4MPEG2 W8 H6" 2 && head -c 100 /dev/zero; } >"$dir/bad"
refuses "a frame without FRAME is refused" "frame 2: it does not begin"
: >"$dir/bad"
refuses "an empty stream is refused" "YUV4MPEG2"
head -c 1000 /dev/zero >"$dir/bad"
refuses "what is no Y4M is refused" "YUV4MPEG2"
printf 'YUV4MPEG2 W8 H6' >"$dir/bad"
refuses "a header that does not end is refused" "header does not end"
for header in H6 "W8 H-6" "W8 H99999999" "W0 H6"; do
    stream "YUV4MPEG2 $header" 1 >"$dir/bad"
    refuses "a header with $header is refused" "width and height"
done
stream "YUV4MPEG2 W8 H6 C420p10" 1 >"$dir/bad"
refuses "more than 8 bits are refused" "8 bits"
"$filter" frobnicate <"$dir/nine.y4m" >/dev/null 2>"$dir/err"
says "a filter that is not there is refused" "negate, sobel" $?
"$filter" sobel <"$dir/nine.y4m" >/dev/full 2>"$dir/err"
says "a full disk is told" "No space" $?
# The reader takes 100 bytes and goes; the frame is far more than a pipe holds.
{ printf 'YUV4MPEG2 W640 H480\nFRAME\n' && head -c 460800 /dev/zero; } >"$dir/large.y4m"
{ "$filter" negate <"$dir/large.y4m" 2>"$dir/err"; echo $? >"$dir/status"; } | head -c 100 >/dev/null
says "a reader that goes away is told" "Broken pipe" "$(cat "$dir/status")"

# Memory: a stream larger than all the memory that the program may have.
# One arena: glibc reserves 64 MiB of address space for each of those that threads make, by chance.
if [ -n "$SAN" ]; then
    skip "memory does not grow with the stream" "sanitizers need address space of their own"
elif [ "$BACKEND" = cuda ]; then
    skip "memory does not grow with the stream" "the CUDA driver reserves more address space than that; run by hand"
else
    head -c 3110400 /dev/zero >"$dir/frame"
    {
        printf 'YUV4MPEG2 W1920 H1080\n'
        i=0
        while [ $i -lt 140 ]; do printf 'FRAME\n' && cat "$dir/frame" && i=$((i + 1)); done
    } | (ulimit -v 393216 && MALLOC_ARENA_MAX=1 exec "$filter" negate) 2>"$dir/err" | wc -c >"$dir/bytes"
    test "$(cat "$dir/bytes")" = $((22 + 140 * 3110406))
    ok $? "140 frames of 1920x1080, 415 MiB, pass through a program that may take 384 MiB$(head -n 1 "$dir/err")"
fi
done_testing
