# lessons.sh -- two lessons with arguments: the missing bound of the first one is found; a picture from a file
# gives the same files as on the CPU.
# Environment: BUILD, the build folder; BACKEND; SAN; HOSTCUDA_CACHE.
. tests/cli/tap.sh

threads=examples/00_threads picture=$BUILD/examples/13_picture
[ -x "$picture" ] || skip_all "$picture is not built"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1

missed="lesson 0 without its bound: AddressSanitizer names the kernel and the line"
if [ "$BACKEND$SAN" = host ]; then
    line=$(awk '/square_no_bound\(/ { inside = 1 } inside && /y\[i\] =/ { print NR; exit }' $threads.cu)
    hostcuda/hcc -g -fsanitize=address -I. $threads.cu -o "$dir/threads" 2>"$dir/log" &&
        ! "$dir/threads" no-bound >"$dir/log" 2>&1 && grep -q "heap-buffer-overflow" "$dir/log" &&
        grep -q "in square_no_bound.*00_threads.cu:$line" "$dir/log"
    ok $? "$missed"
    "$dir/threads" | tail -n 1 | grep -q '^right'
    ok $? "and finds nothing with it"
else
    skip "$missed" "hcc builds hostcuda with it where BACKEND=host, without a sanitizer"
fi

# 60 x 40 pixels of noise in colour, with comments in the header.
awk 'BEGIN { printf "P6\n# noise\n60 40\n#\n255\n"; x = 7; for (i = 0; i < 60 * 40 * 3; i++) { x = (x * 211 + 97) % 8191; printf "%c", 33 + x % 94 } }' >"$dir/in.ppm"
"$picture" "$dir/in.ppm" "$dir/edges.pgm" "$dir/blurred.pgm" >"$dir/log" 2>&1 && tail -n 1 "$dir/log" | grep -q '^right' &&
    [ "$(head -c 13 "$dir/edges.pgm" | tr '\n' ' ')" = "P5 60 40 255 " ] && [ "$(wc -c <"$dir/blurred.pgm")" = $((13 + 60 * 40)) ]
ok $? "a PPM becomes two PGM of its size"
"$picture" "$dir/edges.pgm" "$dir/again.pgm" | tail -n 1 | grep -q '^right'
ok $? "a PGM is read as well"
if grep -q 'png_image' "$picture"; then
    "$picture" "$dir/in.ppm" "$dir/edges.png" >"$dir/log" && "$picture" "$dir/edges.png" "$dir/again_png.pgm" >"$dir/log" &&
        cmp -s "$dir/again.pgm" "$dir/again_png.pgm"
    ok $? "through PNG the pixels stay the same"
else
    skip "through PNG the pixels stay the same" "built without libpng"
fi
head -c 1000 "$dir/in.ppm" >"$dir/short.ppm"
for bad in short.ppm none.ppm log; do
    ! "$picture" "$dir/$bad" "$dir/out.pgm" >"$dir/said" 2>&1 && grep -q "^$dir/$bad: " "$dir/said" && [ ! -e "$dir/out.pgm" ]
    ok $? "$bad: refused in words"
done
! "$picture" "$dir/in.ppm" "$dir/no/out.pgm" >"$dir/said" 2>&1 && grep -q "out.pgm: No such" "$dir/said"
ok $? "a file that cannot be written: the same"
done_testing
