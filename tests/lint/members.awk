# A struct or union has at most 20 members: more are several things, each worth a struct of its own. A struct within
# one is one member, and is counted by itself; without a name it gives its members to the one around it. Functions,
# types and static members count for nothing; of an #if all branches do.
function begin() { depth = 0; enter("", "", 0) }
function save(    i) { saved_depth = depth; for (i = 0; i <= depth; i++) hand(i, "saved" i) }
function restore(    i) { depth = saved_depth; for (i = 0; i <= depth; i++) hand("saved" i, i) }
function hand(from, to) {
    kind[to] = kind[from]; name[to] = name[from]; line[to] = line[from]; count[to] = count[from]
    said[to] = said[from]; parens[to] = parens[from]
    inner[to] = inner[from]; inner_name[to] = inner_name[from]; inner_line[to] = inner_line[from]
}
function enter(what, tag, where) {
    kind[depth] = what; name[depth] = tag; line[depth] = where
    said[depth] = ""; count[depth] = parens[depth] = 0; inner[depth] = -1
}
# What a declaration without the inside of its parentheses and braces declares in a struct.
function declared(text) {
    gsub(/(__attribute__|alignas) *\(\)/, "", text)
    gsub(/(public|private|protected) *:/, "", text)
    while (gsub(/<[^<>]*>/, "", text)) { }
    sub(/^ */, "", text); sub(/ *$/, "", text)
    if (text == "" || text ~ /^(typedef|static|using|friend) /) return 0
    if (text ~ /^(struct|union|enum|class) +[A-Za-z0-9_]+$/) return 0
    if (text ~ /\(/ && text !~ /\(\*\)/) return 0
    return gsub(/,/, "", text) + 1
}
function opened(text) { # a brace
    gsub(/(__attribute__|alignas) *\(\)/, "", text)
    depth++
    if (text ~ /[(=]/ || text ~ /(^| )enum / || !match(text, /(^|[ >])(struct|union|class)( |$)/)) { enter("", "", 0); return }
    text = substr(text, RSTART + RLENGTH)
    sub(/^ */, "", text); sub(/[^A-Za-z0-9_].*/, "", text)
    enter("struct", text, FNR)
}
function closed(    from) {
    if (depth == 0) return
    from = depth--
    if (kind[from] == "struct") {
        inner[depth] = count[from]; inner_name[depth] = name[from]; inner_line[depth] = line[from]
    }
    if (kind[from] == "struct" || said[depth] ~ /=/ || said[depth] ~ /(^| )enum( |$)/) said[depth] = said[depth] "{}"
    else said[depth] = ""
}
function ended(    text) { # a declaration, at its semicolon
    text = said[depth]
    if (inner[depth] >= 0) {
        sub(/^.*\{\}/, "", text)
        if (inner_name[depth] == "") inner_name[depth] = text ~ /[A-Za-z]/ ? text : "a struct without a name"
        gsub(/^ +| +$/, "", inner_name[depth])
        if (inner[depth] > 20) {
            print FILENAME ":" inner_line[depth] ": " inner_name[depth] " has " inner[depth] \
                " members, more than 20: give those that belong together a struct of their own"
            faults++
        }
        if (text !~ /[A-Za-z]/ && inner_name[depth] == "a struct without a name") count[depth] += inner[depth]
    } else sub(/\{\}/, "", text)
    if (kind[depth] == "struct") count[depth] += declared(text)
    said[depth] = ""; inner[depth] = -1
}
function take(text,    i, n, c) {
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "{") opened(said[depth])
        else if (c == "}") closed()
        else if (c == ")") { if (--parens[depth] == 0) said[depth] = said[depth] c }
        else if (c == "(") {
            if (parens[depth]++ == 0) said[depth] = said[depth] (substr(text, i + 1) ~ /^ *\*/ ? "(*" : "(")
        } else if (parens[depth] > 0) continue
        else if (c == ";") ended()
        else said[depth] = said[depth] c
    }
    said[depth] = said[depth] " "
}
