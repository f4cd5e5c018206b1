# At most one statement a line. In parentheses nothing counts: the header of a for, a lambda that is an
# argument. `case X: f(); break;`, as clang-format writes short cases, is one step of a list.
function begin() { open = "" }
function save() { saved = open }
function restore() { open = saved }
function take(text,    i, n, c, ended, rest) {
    ended = 0
    rest = text
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "(" || c == "[" || c == "{") open = open c
        else if (c == ")" || c == "]" || c == "}") open = substr(open, 1, length(open) - 1)
        else if (c == ";" && open !~ /[(\[]/) {
            if (++ended == 1) rest = substr(text, i + 1)
        }
    }
    if (ended > 2 || (ended == 2 && !(text ~ /^ *(case |default:)/ && rest ~ /^ *(break|continue|return[^;]*);/)))
        fault(ended " statements in one line: give each a line of its own")
}
