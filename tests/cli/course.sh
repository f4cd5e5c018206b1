# course.sh -- the pages of the course: their form and links are right, and the library still draws their pictures.
# Environment: BUILD, the build folder; BACKEND; SAN.
. tests/cli/tap.sh

here=docs/course pages=$(ls docs/course/[0-9][0-9].md)
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
says() { # RULE FILE: the file has what is wrong, a line each
    [ ! -s "$2" ]
    ok $? "$1"
    sed 's/^/# /' "$2" | head -n 8
}

for page in $pages; do
    [ "$(wc -l <"$page")" -lt 80 ] || echo "$page: 80 lines or more"
    for part in '^# Lesson [0-9]*: ' ' Before it: ' ' Time: [0-9]* minutes' ' Words: ' '^## What it looks like$' '^!\[.*](pictures/.*svg)$' '^## Try$'; do
        grep -q -e "$part" "$page" || echo "$page: has no line like: $part"
    done
    head -n 1 "$page" | grep -q "^# Lesson $(basename "$page" .md | sed 's/^0\(.\)/\1/'): " || echo "$page: its number is another"
    grep -qF "]($(basename "$page"))" $here/README.md || echo "$page: the index does not have it"
    sed -n 's/^    hostcuda\/hcc .*\(examples\/[^ ]*\) -o .*/\1/p' "$page" | while read -r f; do [ -f "$f" ] || echo "$page: $f is not there"; done
    # "Numbers 1 to 9: ..." or "Numbers 10, 12: ..."
    sed -n 's/^Numbers* \([^:]*\):.*/\1/p' "$page" | tr ', to' '\n' | grep . | while read -r n; do
        ls examples/exercises/"$(printf '%02d' "$n")"_*.cu >"$dir/ls" 2>&1 || echo "$page: there is no exercise $n"
    done
done >"$dir/form"
says "each page has its parts and a picture, under 80 lines, and names files and exercises that are there" "$dir/form"

for page in $pages $here/README.md; do
    grep -oE '\]\([^)#]*' "$page" | sed 's/^](//' | while read -r to; do
        case $to in http* | '') ;; *) [ -e "$here/$to" ] || echo "$page: $to is not there" ;; esac
    done
done >"$dir/links"
says "every link of a page leads to a file" "$dir/links"

for picture in $here/pictures/*.svg; do
    grep -qF "pictures/$(basename "$picture")" $pages || echo "$picture: no page shows it"
done >"$dir/shown"
says "every picture is on a page" "$dir/shown"
cksum $here/pictures/*.svg | sort | awk '{ what = $1 " " $2 } what == last { print name " and " $3 } { last = what; name = $3 }' >"$dir/alike"
says "no two pictures are the same" "$dir/alike"

# Somebody who has never seen the program must know where to write.
for page in $pages; do
    sed '1,/^## Try$/d; /^## Exercises$/,$d' "$page" | grep -qE 'examples/[0-9a-z_]+\.(c|cu|h|py)|\./lesson' || echo "$page: which file is it about?"
done >"$dir/tasks"
says "the tasks of each page name a file or a command" "$dir/tasks"

# Words that a page promises stand in the index, in the glossary of docs/ARCHITECTURE.md, or in the page itself.
for page in $pages; do
    sed -n 's/.* Words: \(.*\)\.$/\1/p' "$page" | sed 's/, /\n/g' | while read -r word; do
        grep -qE "^\| ([^|]*[ ,])?$word[ ,|]" $here/README.md docs/ARCHITECTURE.md || sed 1,4d "$page" | tr '\n' ' ' | grep -qi "$word" || echo "$page: says nothing of \"$word\""
    done
done >"$dir/words"
says "the words that a page names are explained" "$dir/words"

tests/tools/unused_api >"$dir/unused"
says "every public function and every bundled stage is used in a lesson or a program of examples/" "$dir/unused"
printf 'SPIPE_API int spipe_never_used(int x);\n' >"$dir/never.h"
[ "$(tests/tools/unused_api "$dir/never.h")" = spipe_never_used ]
ok $? "a function that none uses is found"

# Lessons: one idea in at most 120 lines, with streampipe.h and what is beside it.
for f in examples/[0-9][0-9]_*.c examples/[0-9][0-9]_*.cu; do
    [ "$(wc -l <"$f")" -le 120 ] || echo "$f: more than 120 lines"
    name=$(basename "$f") && grep -qF "examples/$name)" $pages || echo "$f: no page has it as its program"
    grep -qE 'ex_verdict\(' "$f" || echo "$f: does not end in right or WRONG"
    sed -n 's/^#include "\(.*\)".*/\1/p' "$f" | while read -r h; do
        [ -f "examples/$h" ] || [ -f "$h" ] || [ -f "extras/$h" ] || [ "$h" = hostcuda.h ] || echo "$f: includes $h"
    done
done >"$dir/lessons"
says "each lesson has at most 120 lines, a page, a verdict, and includes what is beside it" "$dir/lessons"

# What the table of whole systems says that each gains is what the comment of its program says that it prints.
sed -n 's/^| `\([a-z0-9_/]*\)` | [^|]* | \([^|]*[0-9][^|]*\) |$/\1 \2/p' examples/README.md >"$dir/gains"
while read -r program gain; do
    for figure in $(echo "$gain" | grep -oE '[0-9]+\.[0-9]+'); do
        sed -n '/^    Expect/,/\*\//p' "examples/$program.cu" | grep -qF "$figure" || echo "$program: $figure is not what it prints"
    done
done <"$dir/gains" >"$dir/stale"
[ "$(wc -l <"$dir/gains")" -ge 5 ] || echo "the table of whole systems is not found" >>"$dir/stale"
says "the gains in examples/README.md are those that the programs print" "$dir/stale"

# A task says what changes: "... from 1.34 to ...", "... instead of 0.141 ms". That is what the program prints before the change.
for page in $pages; do
    program=examples/$(sed -n 's/^Program: \[\([^]]*\)\].*/\1/p' "$page")
    sed '1,/^## Try$/d' "$page" | tr '\n' ' ' | grep -oE '(from|instead of) +[0-9]+\.[0-9]+' | while read -r was; do
        echo "$page"
        sed -n '/^    Expect/,/\*\//p' "$program" | grep -qwF "${was##* }" || echo "$page: $program does not print ${was##* }" >>"$dir/was"
    done
done >"$dir/compared"
touch "$dir/was"
[ "$(wc -l <"$dir/compared")" -ge 6 ] || echo "the figures of the tasks are not found" >>"$dir/was"
says "where a task says what changes, the program prints what was before" "$dir/was"

current="the pictures are what the library draws (make course draws them anew)"
if [ "$BACKEND$SAN" = host ] && [ -x "$BUILD/$here/pictures" ]; then
    mkdir "$dir/drawn"
    "$BUILD/$here/pictures" "$dir/drawn" >"$dir/log" 2>&1
    ok $? "the pictures are drawn"
    diff -rq "$dir/drawn" $here/pictures --exclude='*.cu' >"$dir/differ"
    says "$current" "$dir/differ"
else
    skip "$current" "they are drawn with BACKEND=host, without a sanitizer"
fi
done_testing
