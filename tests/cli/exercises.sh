# exercises.sh -- the exercises of the course: each is as its solution but for its hole, the judge finds in
# the exercise what the solution says of it ("Unsolved"), and the solution right.
# On a GPU a race may go unseen, so there only the other exercises must fail.
# Environment: BACKEND; SAN; HOSTCUDA_CACHE, else the runtimes with sanitizers are kept in build/hcc.
. tests/cli/tap.sh

[ -z "$SAN" ] || skip_all "the judge takes sanitizers of its own"
HOSTCUDA_CACHE=${HOSTCUDA_CACHE:-$(pwd)/build/hcc} ONCE=yes
export HOSTCUDA_CACHE ONCE
here=examples/exercises
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1

# All but the opening comment and what is between the marks.
frame() { awk 'open && /\*\/$/ { open = 0; print "..."; next } /^\/\*  / { open = 1 } open { next }
               /END \*\/$/ { hole = 0 } !hole { print } /WRITE HERE/ { hole = 1 }' "$1"; }

number=0
for exercise in $here/[0-9]*.cu; do
    name=$(basename "$exercise" .cu)
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
