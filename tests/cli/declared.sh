#!/bin/sh
# declared.sh -- a program of three files as a user builds it: two have SPIPE_DECLARATIONS, one has SPIPE_DEFINITIONS.
# It links in C99, C++11 and C++17 without a warning, and its results are right. A file with declarations alone has
# no code, and the file with the code gives no name but those of the API and of what its macros call.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty; CC, CXX.
. tests/cli/tap.sh

[ "$BACKEND" = host ] || skip_all "the compile matrix links it with nvcc"
[ -z "$SAN" ] || skip_all "the other tests have this code with sanitizers"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
here=tests/cli/declared
flags="-Wall -Wextra -Wshadow -Wconversion -pedantic -Werror -pthread -I. -Iextras -Ihostcuda/include"
# shellcheck disable=SC2086  # a list of options
in_c() { "${CC:-gcc}" -x c -std=c99 $flags -c "$@" 2>>"$dir/said"; }
# shellcheck disable=SC2086  # a list of options
in_cpp() { std=$1; shift; "${CXX:-g++}" -x c++ -std="$std" -include cuda_runtime.h $flags -c "$@" 2>>"$dir/said"; }
said() { head -n 1 "$dir/said"; }

program() { # RULE OBJECT... : links it and runs it
    rule=$1 language=$2
    shift 2
    "${CXX:-g++}" "$@" "$BUILD"/hostcuda/*.cpp.o -pthread -o "$dir/program" 2>>"$dir/said" &&
        "$dir/program" "$language" "$dir/file" >"$dir/out" 2>>"$dir/said"
    ok $? "$rule $(said; grep wrong "$dir/out" 2>/dev/null)"
}
: >"$dir/said"
in_c $here/declared_caller.c -o "$dir/caller.o" && in_c $here/declared_code.c -o "$dir/code_c99.o"
ok $? "C99 compiles declarations, and the code, without a warning $(said)"
for std in c++11 c++17; do
    in_cpp "$std" $here/declared_stages.cu -o "$dir/stages_$std.o" && in_cpp "$std" $here/declared_code.c -o "$dir/code_$std.o"
    ok $? "$std compiles declarations, and the code, without a warning $(said)"
done
program "the code in C, stages in C++11: the results are right" c "$dir/caller.o" "$dir/stages_c++11.o" "$dir/code_c99.o"
program "the code in C++11, stages in C++17: the results are right, exceptions arrive" c++ \
    "$dir/caller.o" "$dir/stages_c++17.o" "$dir/code_c++11.o"
program "the code in C++17, stages in C++11: the results are right, exceptions arrive" c++ \
    "$dir/caller.o" "$dir/stages_c++11.o" "$dir/code_c++17.o"

# What a file costs that uses nothing.
sed 's/#define SPIPE_DEFINITIONS//' $here/declared_code.c >"$dir/nothing.c"
in_c -O2 "$dir/nothing.c" -o "$dir/nothing_c.o" && in_cpp c++17 -O2 "$dir/nothing.c" -o "$dir/nothing_cpp.o"
for object in nothing_c nothing_cpp; do
    bytes=$(size "$dir/$object.o" | awk 'NR == 2 { print $1 + $2 + $3 }')
    test "${bytes:-999}" -le 16
    ok $? "$object: $bytes bytes of code and data, at most 16"
done

# The names that the code gives are those of the API, and the functions behind SPIPE_CHECK, SPIPE_BUF and SPIPE_MAP_STAGE.
{ for header in streampipe.h extras/*.h; do tests/compile/prototypes "$header" | cut -d '|' -f 2; done
  echo spipe_priv_check spipe_priv_check_run spipe_priv_buf spipe_priv_check_map | tr ' ' '\n'; } | sort -u >"$dir/api"
for std in c99 c++11 c++17; do
    nm "$dir/code_$std.o" | awk '$2 ~ /^[TDB]$/ { print $3 }' | sort >"$dir/given"
    differ=$(comm -3 "$dir/api" "$dir/given" | tr -d '\t' | head -n 3 | tr '\n' ' ')
    test -s "$dir/given" -a -z "$differ"
    ok $? "the code in $std gives the names of the API and no others: $differ"
done
for object in caller stages_c++11 stages_c++17; do
    other=$(nm -u "$dir/$object.o" | awk '{ print $2 }' | grep -i spipe | sort | comm -23 - "$dir/api" | tr '\n' ' ')
    given=$(nm "$dir/$object.o" | awk '$2 == "T" && $3 ~ /spipe|map_twice/ { print $3 }' | tr '\n' ' ')
    test -z "$other$given"
    ok $? "$object needs names of the API alone, and gives none: $other$given"
done

# Mistakes.
{ echo '#define SPIPE_DECLARATIONS'; echo '#include "streampipe.h"'; echo '#define SPIPE_DEFINITIONS'; echo '#include "streampipe.h"'; } >"$dir/late.c"
! in_c "$dir/late.c" -o "$dir/late.o" && grep -q 'define SPIPE_DEFINITIONS before' "$dir/said"
ok $? "SPIPE_DEFINITIONS after the first include is refused, in words"
done_testing
