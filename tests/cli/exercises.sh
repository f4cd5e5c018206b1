# exercises.sh -- the exercises of the course: each equals its solution except for the hole; the judge says of the
# exercise what the solution's comment announces ("Unsolved"), and of the solution that it is right.
# On a GPU the judge may not see a race, so there only the other exercises must fail.
# Environment: BACKEND; SAN; HOSTCUDA_CACHE, else the runtimes with sanitizers are kept in build/hcc.
. tests/cli/tap.sh

[ -z "$SAN" ] || skip_all "the judge takes sanitizers of its own"
HOSTCUDA_CACHE=${HOSTCUDA_CACHE:-$(pwd)/build/hcc}
export HOSTCUDA_CACHE
here=examples/exercises
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1

# Without a GPU one program holds all exercises and solutions, each in a namespace: streampipe.h is compiled once
# for each sanitizer, not fifty times. The judge looks at it as at a program of one exercise.
all_together() {
    printf '#include "exercise.h"\n#include "streampipe.h"\n#include <math.h>\n#include <string.h>\n'
    for f in $here/[0-9]*.cu $here/solutions/[0-9]*.cu; do
        name=${f##*/} folder=${f%/*}
        printf 'namespace %s_%s {\n#define main judged\n#line 1 "%s"\n' "${folder##*/}" "${name%%_*}" "$PWD/$f"
        cat "$f"
        printf '#undef main\n}\n'
    done
    printf 'int main(int argc, char **argv) {\n    const char *it = argc > 1 ? argv[1] : "";\n'
    for f in $here/[0-9]*.cu $here/solutions/[0-9]*.cu; do
        name=${f##*/} folder=${f%/*}
        printf '    if (!strcmp(it, "%s_%s")) return %s_%s::judged();\n' "${folder##*/}" "${name%%_*}" "${folder##*/}" "${name%%_*}"
    done
    printf '    return 2;\n}\n'
}
if [ "$BACKEND" != cuda ]; then
    # Two of them through the judge alone, as a student calls it.
    said=$($here/judge 2)
    case $said in "02_bound: out of bounds: twice (line "*) ok 0 "judge 2 builds the exercise, and finds it out of bounds" ;; *)
        ok 1 "judge 2 builds the exercise, and finds it out of bounds"
        echo "$said" | sed 's/^/# /' ;;
    esac
    said=$($here/judge 12 --solution)
    [ "$said" = "12_order: right" ]
    ok $? "judge 12 --solution builds the solution, and finds it right"
    said=$(echo 'int main() { return wrong_word; }' >"$dir/90_word.cu" && $here/judge "$dir/90_word.cu")
    echo "$said" | head -n 1 | grep -q '^90_word: does not compile$' && echo "$said" | grep -q 'wrong_word'
    ok $? "what does not compile is said, with the compiler's message"

    all_together >"$dir/all.cu"
    for sanitizer in thread address; do
        hostcuda/hcc -g1 -fsanitize=$sanitizer -I $here -I . "$dir/all.cu" -o "$dir/$sanitizer" >"$dir/log" 2>&1
        ok $? "all exercises together, with -fsanitize=$sanitizer"
        grep error "$dir/log" | head -n 4 | sed 's/^/# /'
    done
    TOGETHER=$dir
    export TOGETHER
fi

# All but the opening comment and what is between the marks.
frame() { awk 'open && /\*\/$/ { open = 0; print "..."; next } /^\/\*  / { open = 1 } open { next }
               /END \*\/$/ { hole = 0 } !hole { print } /WRITE HERE/ { hole = 1 }' "$1"; }

number=0
for exercise in $here/[0-9]*.cu; do
    name=${exercise##*/} name=${name%.cu}
    number=$((number + 1))
    solution=$here/solutions/$name.cu
    [ "${name%%_*}" = "$(printf '%02d' $number)" ] && [ "$(wc -l <"$exercise")" -le 100 ] &&
        [ "$(grep -c 'WRITE HERE' "$exercise") $(grep -c 'END \*/$' "$exercise")" = "1 1" ] &&
        tail -n 1 "$exercise" | grep -q '^/\* Hint: .*\*/$'
    ok $? "$name: the next number, one hole, a hint in the last line, at most 100 lines"
    frame "$exercise" >"$dir/exercise" && frame "$solution" >"$dir/solution" && cmp -s "$dir/exercise" "$dir/solution"
    ok $? "$name: the solution differs in the opening comment and the hole, and nowhere else"

    unsolved=$(sed -n 's/^    Unsolved //p' "$solution" | sed 's/ *\*\/$//')
    case $BACKEND-$unsolved in
    *-) ok 1 "$name: its solution says what the judge finds in the exercise" ;;
    cuda-race* | cuda-out* | cuda-slow*) skip "$name: the judge finds: $unsolved" "it may go unseen on a GPU" ;;
    *)
        said=$($here/judge "$exercise" | sed -n "s/^$name: //p")
        # Which elements of a kernel that does not wait are wrong differs from GPU to GPU.
        [ "$BACKEND" != cuda ] || unsolved=${unsolved%%:*}
        case $said in "$unsolved"*) ok 0 "$name: the judge finds: $unsolved" ;; *)
            ok 1 "$name: the judge finds: $unsolved"
            echo "# it finds: $said" ;;
        esac ;;
    esac
    said=$($here/judge "$solution")
    [ "$said" = "$name: right" ]
    ok $? "$name: the judge finds the solution right"
    [ "$said" = "$name: right" ] || echo "$said" | sed 's/^/# /'
done
[ $number -ge 20 ] && [ $number = "$(ls $here/solutions/*.cu | wc -l)" ]
ok $? "there are $number exercises, and as many solutions"
done_testing
